"""Programs broken in one command: what changes the result when run must be refused before.

Whole programs of random networks, optimized and not, are changed by one mutation each (an operand
changed, a command dropped, doubled or exchanged with the next, a range or an index list off by
one, a memo, a flag). A mutant that the checker accepts is run: it must give what the original
gives, unless its kind is one that no static check can tell (UNSEEN, with reasons).
"""

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import ProgramError
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.program.checker import check_computation
from nnet3tools.program.command import Command, operand_names
from nnet3tools.program.commands import (
    AddRowRanges,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    MatrixAdd,
    MatrixCopy,
    Propagate,
    SetConst,
)
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType
from support.equivalence import difference, run
from support.random_networks import Case, random_case

Mutant = tuple[str, Command, Computation]
"""(kind of mutation, the command it is about, the program)."""

NUM_CASES, MUTANTS_PER_PROGRAM = 24, 24

UNSEEN = {
    "component": "another component of the same sizes and properties is as good to the checker",
    "precomputed": "other precomputed indexes of the same kind name rows that are there, too",
    "read": "another matrix of the same size that has its value already is as good",
    "rows": "other rows that have their values already are as good",
    "alpha": "any factor is allowed",
    "value": "any constant is allowed",
    "add": "an addition to zeros, or what is added to, may be left out, repeated or moved",
    "(zeros": "where a matrix was zeroed at first, zeros may be what was meant",
    "in-place": "what works in place may be left out or done twice",
    "update": "whether a backprop updates the model is the network's business",
    "statistics": "so are statistics",
    "compression": "a range is a matter of precision",
}


def programs(case: Case) -> Iterator[Computation]:
    whole = Compiler(case.nnet).compile([case.request], CompilerOptions())
    yield whole
    yield optimize(whole, PassContext(case.nnet, max_output_time=case.request.max_output_time))


def mutant(rng: random.Random, case: Case, program: Computation) -> Mutant:
    """One random mutation."""
    changes = [_drop, _double, _exchange, _operand, _operand, _operand, _operand, _table, _flag]
    while True:
        at = rng.randrange(len(program.commands))
        out = program.copy()
        kind = rng.choice(changes)(rng, case, out, at)
        if kind is not None:
            return kind, program.commands[at], out


def _drop(rng: random.Random, case: Case, out: Computation, at: int) -> str:
    command = out.commands.pop(at)
    return f"drop {_effect(case, out, command)}"


def _double(rng: random.Random, case: Case, out: Computation, at: int) -> str:
    command = out.commands[at]
    out.commands.insert(at, command)
    return f"double {_effect(case, out, command)}"


def _exchange(rng: random.Random, case: Case, out: Computation, at: int) -> str | None:
    if at + 1 == len(out.commands):
        return None
    first, second = out.commands[at : at + 2]
    out.commands[at : at + 2] = [second, first]
    return f"exchange {_effect(case, out, first)} and {_effect(case, out, second)}"


def _effect(case: Case, computation: Computation, command: Command) -> str:
    """What a command does to its results, as words for the kind of its mutations."""
    if isinstance(command, SetConst):
        return "zeros"
    if isinstance(command, Backprop) and not command.in_deriv:
        return "update"
    accesses = command.accesses(computation, ComponentTable(case.nnet))
    written = [s for s, kind in accesses if kind & AccessType.WRITE]
    read = {s for s, kind in accesses if kind & AccessType.READ}
    if any(kind == AccessType.READ_WRITE for _, kind in accesses):
        return "add"
    if read & set(written):
        return "in-place"
    zeroed = {
        computation.matrix_of(c.submatrix) for c in computation.commands if isinstance(c, SetConst)
    }
    if any(computation.matrix_of(s) in zeroed for s in written):
        return "write (zeros stand in)"
    return "write"


def _operand(rng: random.Random, case: Case, out: Computation, at: int) -> str | None:
    command = out.commands[at]
    names = [name for name, kind in command.OPERANDS.items() if kind not in ("bool", "int")]
    if not names:
        return None
    name = rng.choice(names)
    old, kind = getattr(command, name), command.OPERANDS[name]
    sizes = {
        "Submatrix": len(out.submatrices),
        "Indexes": len(out.indexes),
        "IndexesMulti": len(out.indexes_multi),
        "IndexesRanges": len(out.indexes_ranges),
        "Precomputed": len(out.component_precomputed_indexes),
        "Component": len(case.nnet.components),
        "Node": len(case.nnet.node_names),
        "Memo": 4,
        "Position": len(out.commands),
    }
    if kind == "Alpha":
        new = old + 1.0
    elif rng.random() < 0.5:
        new = old + rng.choice((-1, 1))
    else:
        new = rng.randrange(-1, sizes[kind] + 1)
    if new == old:
        return None
    out.commands[at] = command.replace(**{name: new})
    reads = {
        "Component": "component",
        "Precomputed": "precomputed",
        "Alpha": "value" if isinstance(command, SetConst) else "alpha",
        "Indexes": "rows",
        "IndexesMulti": "rows",
        "IndexesRanges": "rows",
    }
    if isinstance(command, CompressMatrix) and kind == "Alpha":
        return "operand compression"
    if kind in reads:
        return f"operand {reads[kind]}"
    if kind == "Submatrix":
        accesses = command.accesses(out, ComponentTable(case.nnet)) if old > 0 else []
        written = {s for s, t in accesses if t & AccessType.WRITE}
        if old not in written:
            return "operand read"
        return f"operand written by {_effect(case, out, command)}"
    return f"operand {kind}"


def _table(rng: random.Random, case: Case, out: Computation, at: int) -> str | None:
    """A row of an index list, or a submatrix, off by one."""
    command = out.commands[at]
    tables = {
        "Indexes": out.indexes,
        "IndexesMulti": out.indexes_multi,
        "IndexesRanges": out.indexes_ranges,
    }
    for kind, table in tables.items():
        for name in operand_names(type(command), kind):
            changed = table[getattr(command, name)].copy()
            flat = changed.reshape(-1)
            flat[rng.randrange(len(flat))] += rng.choice((-1, 1))
            table.append(changed)
            out.commands[at] = command.replace(**{name: len(table) - 1})
            return "table rows"
    named = [name for name in operand_names(type(command), "Submatrix") if getattr(command, name)]
    if not named:
        return None
    name = rng.choice(named)
    info = out.submatrices[getattr(command, name)]
    field = rng.choice(("row_offset", "num_rows", "col_offset", "num_cols"))
    out.submatrices.append(info._replace(**{field: getattr(info, field) + rng.choice((-1, 1))}))
    out.commands[at] = command.replace(**{name: len(out.submatrices) - 1})
    accesses = command.accesses(out, ComponentTable(case.nnet))
    written = {s for s, t in accesses if t & AccessType.WRITE}
    if getattr(command, name) not in written:
        return "table read"
    return f"table written by {_effect(case, out, command)}"


def _flag(rng: random.Random, case: Case, out: Computation, at: int) -> str | None:
    command = out.commands[at]
    if isinstance(command, Propagate):
        out.commands[at] = command.replace(store_stats=not command.store_stats)
        return "flag statistics"
    if type(command) is Backprop:
        values = {name: getattr(command, name) for name in command.OPERANDS}
        out.commands[at] = BackpropNoModelUpdate(**values)
        return "flag update"
    if isinstance(command, MatrixAdd):
        out.commands[at] = MatrixCopy(command.dest, command.src, command.alpha)
        return "flag copied instead of added"
    if isinstance(command, AddRowRanges):
        return None
    return None


def accepted(case: Case, program: Computation) -> bool:
    try:
        check_computation(program, case.nnet, case.request)
    except ProgramError:
        return False
    return True


def same(case: Case, program: Computation, expected: dict[str, np.ndarray]) -> bool:
    return difference(expected, run(case, program), 1e-5) == ""


@pytest.mark.parametrize("seed", range(NUM_CASES))
def test_what_changes_the_result_is_refused(seed: int) -> None:
    case = random_case(seed)
    rng = random.Random(seed)
    for program in programs(case):
        expected = run(case, program)
        for _ in range(MUTANTS_PER_PROGRAM):
            kind, command, changed = mutant(rng, case, program)
            if accepted(case, changed) and not any(word in UNSEEN for word in kind.split()):
                assert same(case, changed, expected), f"{case}: {kind}: {command}"


def test_most_mutants_are_refused() -> None:
    """Else the test above shows little."""
    refused: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for seed in range(12):
        case, rng = random_case(seed), random.Random(seed)
        for program in programs(case):
            for _ in range(20):
                kind, _, changed = mutant(rng, case, program)
                verb = kind.split()[0]
                tried[verb] += 1
                refused[verb] += not accepted(case, changed)
    assert sum(tried.values()) > 450
    for verb in ("drop", "double", "operand", "table"):
        assert refused[verb] > 0.5 * tried[verb], (verb, refused, tried)

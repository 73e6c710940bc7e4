#!/usr/bin/env python3
"""Mutation testing of a room: how many small changes of its code do the tests notice?

    tests/mutate.py optimizer                      # 60 mutants; lists those that survive
    tests/mutate.py chain --mutants 200 --seed 1 --jobs 2

A mutant is the room with one comparison, operator, constant or condition changed. It is compiled in
memory, in a forked process that runs the tests which execute the changed line, the fastest first,
until one fails. Which tests execute which lines is found by a first run under a trace function. A
mutant whose tests take more than two minutes counts as killed; a line that no test executes
survives. Messages of errors, logging, annotations and `__all__` are not mutated. Exit status 1 if
fewer than 90 % of the mutants are killed.
"""

import argparse
import ast
import copy
import os
import pickle
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import FrameType

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "src/nnet3tools"
SECONDS = 120
ALSO = {
    "compiler": ("executor", "optimizer", "program"),
    "optimizer": ("executor", "compiler", "program"),
    "executor": ("training", "cli"),
    "chain": ("training",),
    "training": ("roundtrip",),
}
"""Other folders of tests that check a room."""

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NOT_MUTATED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom, ast.AnnAssign)
LOGGING = ("log", "vlog", "warn", "note")


@dataclass(frozen=True)
class Mutant:
    """One change of one file: the number of a node in the order of `_mutable`, in words."""

    path: Path
    node: int
    line: int
    at_import: bool
    """Whether the line stands outside of functions."""
    change: str


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that can be mutated, in a fixed order."""
    if isinstance(node, NOT_MUTATED) or _is_logging(node):
        return
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
        return
    is_number = isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float))
    if is_number or isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.If, ast.UnaryOp)):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _mutable(child)


def _is_logging(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).startswith(LOGGING)


def _mutate(node: ast.AST) -> str:
    """Change a node in place; the change in words, "" if there is none for it."""
    before = ast.unparse(node)
    if isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        node.ops[0] = SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS:
        node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.If):
        before = f"if {ast.unparse(node.test)}"
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"{before}  ->  negated"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        node.op = ast.UAdd() if isinstance(node.op, ast.USub) else ast.Not()
        if isinstance(node.op, ast.Not):
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
    after = ast.unparse(node)
    return f"{before}  ->  {after}" if after != before else ""


def mutants(room: str) -> list[Mutant]:
    """All mutants of a room."""
    found = []
    for path in sorted((PACKAGE / room).rglob("*.py")):
        tree = ast.parse(path.read_text())
        functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
        inside = {line for f in functions for line in range(f.lineno, (f.end_lineno or 0) + 1)}
        for number, node in enumerate(_mutable(tree)):
            if change := _mutate(copy.deepcopy(node)):
                line = node.lineno  # type: ignore[attr-defined]
                found.append(Mutant(path, number, line, line not in inside, change))
    return found


class LineCoverage:
    """A plugin of pytest: the lines of a room that each test executes."""

    def __init__(self, room: str) -> None:
        self._prefix = str(PACKAGE / room) + os.sep
        self._lines: set[tuple[str, int]] = set()
        self.tests: dict[tuple[str, int], list[tuple[float, str]]] = {}
        """(file, line) -> seconds and id of the tests that execute it."""

    def _trace(self, frame: FrameType, event: str, argument: object) -> Callable | None:
        path = frame.f_code.co_filename
        if not path.startswith(self._prefix):
            return None
        self._lines.add((path, frame.f_lineno))
        return self._trace

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Note what one test executes."""
        began = time.monotonic()
        sys.settrace(self._trace)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            for line in self._lines:
                self.tests.setdefault(line, []).append((time.monotonic() - began, item.nodeid))
            self._lines.clear()


def covering_tests(room: str) -> dict[tuple[str, int], list[tuple[float, str]]]:
    """The tests that execute each line, found in a process of its own."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        _silence()
        coverage = LineCoverage(room)
        folders = [str(TESTS / folder) for folder in (room, *ALSO[room])]
        pytest.main(["-q", "-p", "no:cacheprovider", *folders], plugins=[coverage])
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(coverage.tests, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        covered = pickle.load(pipe)
    os.waitpid(child, 0)
    return covered


def _tests_of(mutant: Mutant, covered: dict[tuple[str, int], list[tuple[float, str]]]) -> list[str]:
    """The ids of the tests to run. A line that only imports execute needs those of its module."""
    path = str(mutant.path)
    tests = covered.get((path, mutant.line), [])
    if not tests and mutant.at_import:
        tests = [test for (file, _), found in covered.items() if file == path for test in found]
    return list(dict.fromkeys(name for _, name in sorted(tests)))


def _silence() -> None:
    output = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(output, stream)


def _run(mutant: Mutant, tests: list[str]) -> None:
    """Run tests on the mutant, then exit; status 0 if all passed."""
    tree = ast.parse(mutant.path.read_text())
    _mutate(list(_mutable(tree))[mutant.node])
    code = compile(ast.fix_missing_locations(tree), str(mutant.path), "exec")
    get_code = SourceFileLoader.get_code

    def mutated(loader: SourceFileLoader, name: str) -> object:
        return code if Path(loader.path) == mutant.path else get_code(loader, name)

    SourceFileLoader.get_code = mutated  # type: ignore[method-assign, assignment]
    _silence()
    signal.alarm(SECONDS)
    os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])))


def main() -> int:
    """Run the mutants, report the survivors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("room", choices=sorted(ALSO))
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    every = mutants(options.room)
    chosen = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
    os.chdir(TESTS.parent)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.path.insert(0, str(PACKAGE.parent))
    running: dict[int, Mutant] = {}
    survivors: list[Mutant] = []
    covered = covering_tests(options.room)
    waiting = list(chosen)
    while waiting or running:
        while waiting and len(running) < options.jobs:
            mutant = waiting.pop()
            tests = _tests_of(mutant, covered)
            if (child := os.fork()) == 0:
                _run(mutant, tests) if tests else os._exit(0)
            running[child] = mutant
        child, status = os.wait()
        mutant = running.pop(child)
        if status == 0:
            survivors.append(mutant)
            place = f"{mutant.path.relative_to(PACKAGE.parent)}:{mutant.line}"
            print(f"survived: {place}: {mutant.change}", flush=True)
    killed = len(chosen) - len(survivors)
    print(f"{options.room}: {killed} of {len(chosen)} mutants killed ({len(every)} in all)")
    return int(killed < 0.9 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())

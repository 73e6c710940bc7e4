"""Passes applied by name in any order, and the differences that they make."""

import contextlib
import random
import re
from collections import Counter

import pytest

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import PASSES, apply_passes, optimize
from nnet3tools.program import printing
from nnet3tools.program.computation import Computation
from support.equivalence import difference as difference_of_results
from support.equivalence import run
from support.random_networks import Case, random_case

NAMES = [step.name for step in PASSES]


def plain_program(case: Case) -> Computation:
    """The unoptimized program of a case."""
    return Compiler(case.nnet).compile([case.request], CompilerOptions())


@pytest.mark.parametrize("seed", range(40))
def test_passes_in_any_order_keep_the_results_or_are_refused(seed: int) -> None:
    case, rng = random_case(1000 + seed), random.Random(seed)
    context = PassContext(case.nnet, OptimizeOptions(), case.request.max_output_time)
    program = plain_program(case)
    expected = run(case, program)
    if rng.random() < 0.5:
        program = optimize(program, context)
    for name in rng.choices(NAMES, k=6):
        with contextlib.suppress(DataError):
            program = apply_passes(program, context, [name])
    assert not difference_of_results(expected, run(case, program))


@pytest.mark.parametrize("seed", range(12))
def test_a_difference_leads_from_the_program_before_to_the_one_after(seed: int) -> None:
    case = random_case(2000 + seed)
    seen = []

    def check(name: str, before: Computation, after: Computation) -> None:
        lines = printing.difference_text(before, after, case.nnet).splitlines()
        removed = Counter(_unnumbered(line[2:]) for line in lines if line.startswith("- "))
        added = Counter(_unnumbered(line[2:]) for line in lines if line.startswith("+ "))
        assert len(lines) == removed.total() + added.total()
        old, new = (
            Counter(map(_unnumbered, printing._lines(program, case.nnet)))
            for program in (before, after)
        )
        assert not removed - old
        assert old - removed + added == new
        seen.append(name)

    context = PassContext(case.nnet, OptimizeOptions(), case.request.max_output_time)
    optimize(plain_program(case), context, after_pass=check)
    assert seen == [step.name for step in PASSES if step.wanted(context)]


def _unnumbered(line: str) -> str:
    return re.sub(r"^c\d+: ", "", line)

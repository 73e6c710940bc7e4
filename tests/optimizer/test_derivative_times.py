"""Limiting derivatives to a range of times: the same as setting the others to zero."""

import dataclasses

import pytest

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import RequestError
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.program.commands import Backprop
from nnet3tools.program.computation import Computation
from support.equivalence import ALL_OFF, describe, difference, run
from support.random_networks import Case, random_case

KINDS = ("lstm", "gru", "splices", "descriptors", "tdnn", "statistics", "mixture", "feed forward")


N_MAJOR = ("tdnn", "statistics", "mixture")
"""Kinds whose components take rows sequence by sequence. A matrix of several sequences then wants
derivatives in several stretches; what is copied as one block, from the first to the last of them,
is not limited in between (Kaldi's way, and harmless): one sequence is exact."""


def training_case(seed: int, kind: str | None = None) -> Case:
    """A case with all derivatives."""
    kind = kind or KINDS[seed % len(KINDS)]
    case = random_case(seed, kind)
    while kind in N_MAJOR and any(io.indexes[:, 0].any() for io in case.request.inputs):
        seed += 1000
        case = random_case(seed, kind)
    case.request.need_model_derivative = True
    for io in (*case.request.inputs, *case.request.outputs):
        io.has_deriv = True
    return case


def compiled(case: Case) -> Computation:
    return Compiler(case.nnet).compile([case.request], CompilerOptions())


def limited(
    case: Case, options: OptimizeOptions, program: Computation | None = None
) -> Computation:
    program = program or compiled(case)
    context = PassContext(case.nnet, options, case.request.max_output_time)
    return optimize(program, context, check=True)


@pytest.mark.parametrize("seed", range(30))
def test_as_with_derivatives_set_to_zero(seed: int) -> None:
    case = training_case(seed)
    last = case.request.max_output_time
    first, end = [(0, last), (-1, last + 1), (1, 1 << 20), (-(1 << 20), 0), (0, last - 1)][seed % 5]
    if end < first:
        end = first
    program = compiled(case)
    expected = run(case, program, wanted_times=(first, end))
    for base in (OptimizeOptions(), ALL_OFF):
        options = dataclasses.replace(base, min_deriv_time=first, max_deriv_time=end)
        problem = difference(expected, run(case, limited(case, options, program)))
        assert not problem, f"{describe(case)}\n{first}..{end}: {problem}"


def test_the_limit_makes_a_difference() -> None:
    """Else the test above shows nothing: gradients change, and backprop is done less often."""
    changed = fewer = 0
    for seed in range(8):
        case = training_case(seed)
        options = OptimizeOptions(min_deriv_time=0, max_deriv_time=1)
        whole = compiled(case)
        program = limited(case, options, whole)
        changed += difference(run(case, whole), run(case, program)) != ""
        fewer += sum(isinstance(c, Backprop) for c in program.commands) < sum(
            isinstance(c, Backprop) for c in whole.commands
        )
    assert changed >= 6
    assert fewer >= 2


@pytest.mark.parametrize("relative", [-1, 0, 2])
@pytest.mark.parametrize("kind", ["lstm", "splices"])
def test_relative_to_the_last_output(kind: str, relative: int) -> None:
    case = training_case(3, kind)
    last = case.request.max_output_time
    by_offset = limited(case, OptimizeOptions(max_deriv_time_relative=relative))
    by_time = limited(case, OptimizeOptions(max_deriv_time=last + relative))
    assert by_offset.commands == by_time.commands
    assert by_offset.matrices == by_time.matrices


def test_a_limit_that_excludes_nothing_changes_nothing() -> None:
    case = training_case(1)
    options = OptimizeOptions(min_deriv_time=-1000, max_deriv_time=1000)
    assert limited(case, options).commands == limited(case, OptimizeOptions()).commands


def test_an_empty_range_is_refused() -> None:
    case = training_case(0)
    with pytest.raises(RequestError, match="max-deriv-time=0 is less than min-deriv-time=1"):
        limited(case, OptimizeOptions(min_deriv_time=1, max_deriv_time=0))

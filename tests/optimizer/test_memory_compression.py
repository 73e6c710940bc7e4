"""Memory compression: level 1 changes nothing at all, level 2 little; both save memory."""

import dataclasses

import numpy as np
from test_derivative_times import training_case

from nnet3tools.compiler.compiler import Compiler
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.pipeline import optimize
from nnet3tools.program.commands import CompressionType, CompressMatrix, DecompressMatrix
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import max_memory_use
from support.configs import in_a_row
from support.equivalence import Results, run
from support.random_networks import Case, parse, random_case

DEEP = in_a_row("""input dim=4
a1 AffineComponent input-dim=12 output-dim=6 param-stddev=0.5 \
input=Append(Offset(input, -1), input, Offset(input, 1))
relu1 RectifiedLinearComponent dim=6
norm1 BatchNormComponent dim=6
a2 AffineComponent input-dim=6 output-dim=6 param-stddev=0.5
relu2 RectifiedLinearComponent dim=6
norm2 BatchNormComponent dim=6
a3 AffineComponent input-dim=6 output-dim=2 param-stddev=0.5""")


def deep_case() -> Case:
    n = np.arange(8)[:, None]
    request = ComputationRequest(
        [IoSpecification("input", make_indexes(n, np.arange(-1, 21)).reshape(-1, 3), True)],
        [IoSpecification("output", make_indexes(n, np.arange(20)).reshape(-1, 3), True)],
        need_model_derivative=True,
    )
    return Case("deep", 0, DEEP, parse(DEEP), request)


def at_levels(case: Case, *levels: int) -> list[Computation]:
    """The optimized program for each of these levels."""
    program = Compiler(case.nnet).compile([case.request], CompilerOptions())
    options = [OptimizeOptions(memory_compression_level=level) for level in levels]
    last = case.request.max_output_time
    return [optimize(program, PassContext(case.nnet, o, last), check=True) for o in options]


def compressions(program: Computation) -> list[CompressMatrix]:
    return [c for c in program.commands if isinstance(c, CompressMatrix)]


def identical(a: Results, b: Results) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def test_level_1_is_exact() -> None:
    compressed = 0
    for seed in range(16):
        kind = ("feed forward", "splices")[seed % 2]
        case = deep_case() if seed == 0 else training_case(seed, kind)
        plain, program = at_levels(case, 0, 1)
        assert not compressions(plain)
        for c in compressions(program):
            compressed += 1
            assert (c.range, c.format) == (0.0, CompressionType.UINT8)
        expected = run(case, plain)
        assert identical(expected, run(case, program)), str(case)
        assert identical(expected, run(case, program, lossy=True)), str(case)
    assert compressed >= 3


def test_level_2_is_close_on_a_device() -> None:
    # Values beyond 10 are cut off, so only for networks that have none it is always close.
    for seed in range(5):
        case = dataclasses.replace(deep_case(), seed=seed)
        plain, program = at_levels(case, 0, 2)
        expected, got = run(case, plain), run(case, program, lossy=True)
        assert not identical(expected, got)
        for name, value in expected.items():
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(got[name], value, atol=0.005 * scale, err_msg=name)


def test_level_2_is_exact_on_the_host() -> None:
    for seed in range(8):
        case = training_case(seed)
        plain, program = at_levels(case, 0, 2)
        assert identical(run(case, plain), run(case, program))


def test_what_is_compressed_comes_back_once() -> None:
    for program in at_levels(deep_case(), 1, 2):
        kinds = [type(c) for c in program.commands]
        assert kinds.count(CompressMatrix) == kinds.count(DecompressMatrix) > 0


def test_each_level_saves_memory() -> None:
    peaks = [max_memory_use(program) for program in at_levels(deep_case(), 0, 1, 2)]
    assert peaks[0] > peaks[1] > peaks[2]


def test_forward_programs_are_left_alone() -> None:
    case = deep_case()
    for io in (*case.request.inputs, *case.request.outputs):
        io.has_deriv = False
    request = dataclasses.replace(case.request, need_model_derivative=False)
    assert not compressions(*at_levels(dataclasses.replace(case, request=request), 2))


def test_level_2_of_many_kinds_passes_the_checker() -> None:
    for seed in range(24):
        at_levels(random_case(seed), 2)

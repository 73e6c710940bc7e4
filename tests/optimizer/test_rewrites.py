"""Programs rewritten as an earlier one was, against those that went through all passes."""

import numpy as np
import pytest

from nnet3tools.errors import RequestError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer import rewrites
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.optimizer.pass_context import Origins
from nnet3tools.program.computation import Computation
from nnet3tools.program.files import write_computation
from support.random_networks import LAYERS, parse, random_case
from support.streams import bytes_of

# Merges into parts of matrices that are themselves merged later; index lists; zeroed rows.
NETWORK = """
input-node name=input dim=4
component name=a type=AffineComponent input-dim=8 output-dim=6
component-node name=a component=a input=Append(Offset(input, -1), Offset(input, 2))
component name=relu type=RectifiedLinearComponent dim=6
component-node name=relu component=relu input=a
component name=b type=TdnnComponent input-dim=6 output-dim=6 time-offsets=-3,0,3
component-node name=b component=b input=relu
component name=drop type=NoOpComponent dim=6
component-node name=drop component=drop input=Sum(Scale(0.66, relu), b)
dim-range-node name=half input-node=drop dim-offset=2 dim=3
component name=c type=LinearComponent input-dim=9 output-dim=5
component-node name=c component=c input=Append(half, Offset(drop, 3))
output-node name=output input=Sum(c, Round(c, 2))
output-node name=second input=Offset(drop, -6)
"""


def request_of(nnet: Nnet, frames: int, sequences: int, step: int) -> ComputationRequest:
    """All outputs for so many frames, every `step`-th, with more context than is needed."""
    n = np.arange(sequences)[:, None]

    def spec(name: str, times: np.ndarray, has_deriv: bool) -> IoSpecification:
        return IoSpecification(name, make_indexes(n, times).reshape(-1, 3), has_deriv)

    context = np.arange(-24, frames + 24)
    names = nnet.node_names
    inputs = [
        spec(names[i], np.array([0]) if "ivector" in names[i] else context, False)
        for i in nnet.input_nodes()
    ]
    outputs = [spec(names[i], np.arange(0, frames, step), True) for i in nnet.output_nodes()]
    return ComputationRequest(inputs, outputs, need_model_derivative=True)


class Counter:
    """How many programs have been rewritten as one before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, rewritten = 0, rewrites._rewritten

        def counted(*args: object) -> Computation:
            self.count += 1
            return rewritten(*args)

        monkeypatch.setattr(rewrites, "_rewritten", counted)


def compile_alike(
    nnet: Nnet, lengths: list[int], step: int = 1, options: OptimizeOptions | None = None
) -> None:
    """Programs of these lengths by one compiler, and each by one of its own."""
    one = CachingOptimizingCompiler(nnet, options)
    for sequences in (1, 4):
        for frames in lengths:
            request = request_of(nnet, frames, sequences, step)
            alone = CachingOptimizingCompiler(nnet, options).compile(request)
            alike = bytes_of(write_computation, alone)
            assert bytes_of(write_computation, one.compile(request)) == alike, frames


@pytest.mark.parametrize("kind", sorted({*LAYERS, "several inputs and outputs"} - {"lstm", "gru"}))
def test_programs_are_those_of_a_compiler_of_their_own(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    for seed in range(4):
        nnet = random_case(seed, kind).nnet
        try:
            compile_alike(nnet, [7, 10, 11, 20], 1 + seed % 3)
        except RequestError:
            continue
    assert counter.count >= 6 or kind not in ("feed forward", "splices", "tdnn")


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("level", [0, 2])
def test_lengths_at_which_rows_lie_otherwise_go_through_the_passes(
    step: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    options = OptimizeOptions(memory_compression_level=level)
    compile_alike(parse(NETWORK), [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 30, 31, 60], step, options)
    assert 4 <= counter.count < 28


def test_options_that_switch_passes_off_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (
        OptimizeOptions(backprop_in_place=False, allocate_from_other=False),
        OptimizeOptions(optimize=False),
        OptimizeOptions(allow_left_merge=False, move_sizing_commands=False),
    ):
        compile_alike(parse(NETWORK), [20, 25, 30], 1, options)


def test_a_matrix_goes_where_the_one_that_it_is_part_of_goes() -> None:
    program = Computation()
    whole = [program.new_matrix(rows, 4) for rows in (3, 5, 9, 20)]
    part_of_2 = program.new_submatrix(whole[1], 1, 3)
    part_of_3 = program.new_submatrix(whole[2], 2, 5)
    part_of_4 = program.new_submatrix(whole[3], 7, 9)
    origins = Origins(program)
    origins.merge(np.array([part_of_2]), np.array([1]))  # matrix 1 into 2
    origins.merge(np.array([part_of_3]), np.array([2]))  # both into 3
    origins.merge(np.array([part_of_4]), np.array([3]))  # all of it into 4
    matrix, rows, columns = origins.final_places(program.submatrix_table())
    assert matrix.tolist() == [0, 4, 4, 4, 4]
    assert rows.tolist() == [0, 1 + 2 + 7, 2 + 7, 7, 0]
    assert columns.tolist() == [0] * 5

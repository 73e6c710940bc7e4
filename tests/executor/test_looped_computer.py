"""Looped computation of a stream against one computation of the whole utterance."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import DataError, RequestError
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import computer_one_by_one
from nnet3tools.graph.context import NnetContext, compute_simple_nnet_context
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.compile_looped import (
    compile_looped,
    looped_requests,
    set_ivector_period,
)
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.commands import GotoLabel
from nnet3tools.program.files import load_computation, save_computation
from support.configs import in_a_row
from support.io_specifications import io_range

TDNN = in_a_row("""input dim=3
a AffineComponent input-dim=9 output-dim=4 param-stddev=0.5 \
input=Append(Offset(input, -2), input, Offset(input, 1))
relu RectifiedLinearComponent dim=4
b AffineComponent input-dim=8 output-dim=2 param-stddev=0.5 \
input=Append(Offset(relu, -3), Offset(relu, 3))""")
LSTM = """
input-node name=input dim=3
component name=w type=AffineComponent input-dim=11 output-dim=16 param-stddev=0.5
component-node name=w component=w \
input=Append(Offset(input, -1), input, Offset(input, 2), IfDefined(Offset(trunc_m, -1)))
component name=lstm type=LstmNonlinearityComponent cell-dim=4
component-node name=lstm component=lstm input=Append(w, IfDefined(Offset(trunc_c, -1)))
dim-range-node name=c input-node=lstm dim-offset=0 dim=4
dim-range-node name=m input-node=lstm dim-offset=4 dim=4
component name=trunc type=BackpropTruncationComponent dim=8 scale=0.9
component-node name=trunc component=trunc input=Append(c, m)
dim-range-node name=trunc_c input-node=trunc dim-offset=0 dim=4
dim-range-node name=trunc_m input-node=trunc dim-offset=4 dim=2
component name=out type=AffineComponent input-dim=4 output-dim=3 param-stddev=0.5
component-node name=out component=out input=m
output-node name=output input=out
"""
RECURRENT_OUTPUT = in_a_row("""input dim=2
a AffineComponent input-dim=4 output-dim=2 param-stddev=0.5 \
input=Append(input, IfDefined(Offset(b, -3)))
b TanhComponent dim=2""")
TDNN_COMPONENT = """
input-node name=input dim=3
component name=a type=TdnnComponent input-dim=3 output-dim=4 time-offsets=-1,0,1 param-stddev=0.5
component-node name=a component=a input=input
component name=b type=TdnnComponent input-dim=4 output-dim=2 time-offsets=-3,0,3 param-stddev=0.5
component-node name=b component=b input=a
output-node name=output input=Sum(b, Offset(b, -1))
"""
IVECTOR = """
input-node name=input dim=2
input-node name=ivector dim=3
component name=a type=AffineComponent input-dim=9 output-dim=4 param-stddev=0.5
component-node name=a component=a \
input=Append(Offset(input, -1), input, Offset(input, 2), Scale(0.5, ReplaceIndex(ivector, t, 0)))
output-node name=output input=a
"""
NETWORKS = {
    "tdnn": TDNN,
    "lstm": LSTM,
    "recurrence through the output": RECURRENT_OUTPUT,
    "tdnn component": TDNN_COMPONENT,
}


def make(text: str) -> Nnet:
    tensor.random.seed(3)
    return Nnet.from_config(parse_config_lines(text, "test"))


def whole(nnet: Nnet, features: np.ndarray, factor: int = 1) -> np.ndarray:
    """All outputs of an utterance by one unoptimized program."""
    context = compute_simple_nnet_context(nnet)
    num_frames = len(features)
    request = ComputationRequest(
        [io_range("input", -context.left, num_frames + context.right)],
        [io_range("output", 0, num_frames)],
    )
    request.outputs[0].indexes = request.outputs[0].indexes[::factor].copy()
    compiler = CachingOptimizingCompiler(
        nnet, OptimizeOptions(optimize=False), CompilerOptions(use_shortcut=False)
    )
    computer = NnetComputer(ComputeOptions(), compiler.compile(request), nnet)
    rows = np.clip(np.arange(-context.left, num_frames + context.right), 0, num_frames - 1)
    computer.accept_input("input", features[rows])
    computer.run()
    return computer.get_output("output").copy()


def frames(num: int, dim: int) -> np.ndarray:
    return np.random.default_rng(num).standard_normal((num, dim)).astype(np.float32)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("frames_per_chunk", [3, 5, 8])
@pytest.mark.parametrize("num_frames", [1, 8, 61])
def test_as_one_computation_of_the_whole_utterance(name, frames_per_chunk, num_frames):
    nnet = make(NETWORKS[name])
    options = SimpleComputationOptions(frames_per_chunk=frames_per_chunk)
    features = frames(num_frames, nnet.input_dim("input"))
    computer = LoopedComputer(nnet, options)
    expected = whole(nnet, features)
    np.testing.assert_allclose(computer.compute(features), expected, atol=1e-5)
    other = frames(20, nnet.input_dim("input"))
    np.testing.assert_allclose(computer.compute(other), whole(nnet, other), atol=1e-5)


def test_as_chunk_by_chunk_without_recurrence():
    nnet = make(TDNN)
    features = frames(50, 3)
    chunked = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=10))
    looped = LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=4))
    np.testing.assert_allclose(looped.compute(features), chunked.compute(features), atol=1e-5)


def test_subsampled_output_and_scale():
    nnet = make(LSTM)
    options = SimpleComputationOptions(
        frames_per_chunk=7, frame_subsampling_factor=3, acoustic_scale=2.0
    )
    features = frames(32, 3)
    looped = LoopedComputer(nnet, options).compute(features)
    assert looped.shape == (11, 3)
    np.testing.assert_allclose(looped, 2.0 * whole(nnet, features, 3), atol=1e-5)


def test_scaling_the_output_does_not_touch_the_state():
    nnet = make(RECURRENT_OUTPUT)
    options = SimpleComputationOptions(frames_per_chunk=3, acoustic_scale=-3.0)
    features = frames(30, 2)
    looped = LoopedComputer(nnet, options, np.array([0.5, 0.25])).compute(features)
    expected = -3.0 * (whole(nnet, features) - np.log(np.array([0.5, 0.25], np.float32)))
    np.testing.assert_allclose(looped, expected, atol=1e-5)


def test_priors_and_extra_left_context():
    nnet = make(TDNN)
    options = SimpleComputationOptions(frames_per_chunk=6, extra_left_context_initial=4)
    looped = LoopedComputer(nnet, options)
    features = frames(20, 3)
    np.testing.assert_allclose(looped.compute(features), whole(nnet, features), atol=1e-5)


def test_memory_does_not_grow_with_the_utterance():
    nnet = make(LSTM)
    computer = LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=5))
    before = computer._computer.program.plan.num_bytes
    assert len(computer.compute(frames(1000, 3))) == 1000
    assert computer._computer.program.plan.num_bytes == before
    assert len(computer.computation.commands) < 400


def test_one_ivector_for_all_times():
    nnet = make(IVECTOR)
    ivector = np.array([1.0, -1.0, 2.0], np.float32)
    features = frames(33, 2)
    looped = LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=4))
    chunked = computer_one_by_one(nnet, SimpleComputationOptions(frames_per_chunk=10))
    expected = chunked.compute(features, Ivectors(ivector))
    np.testing.assert_allclose(looped.compute(features, Ivectors(ivector)), expected, atol=1e-5)


def test_online_ivectors_are_the_newest_that_the_stream_has():
    nnet = make(IVECTOR)
    features, online = np.zeros((40, 2), np.float32), frames(8, 3)
    looped = LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=10))
    output = looped.compute(features, Ivectors(online, period=5))
    weights = nnet.components[0].linear_params[:, 6:]
    bias = nnet.components[0].bias_params
    # Chunk k sees input up to frame 10 * (k + 1) + 2; its first frames still look at the i-vector
    # that came with the chunk before where Round() of their time was in that chunk's input.
    expected = [0.5 * weights @ online[min((10 * k + 12) // 5, 7)] + bias for k in range(4)]
    np.testing.assert_allclose(output[8], expected[0], atol=1e-5)
    np.testing.assert_allclose(output[15], expected[0], atol=1e-5)
    np.testing.assert_allclose(output[25], expected[1], atol=1e-5)
    np.testing.assert_allclose(output[35], expected[2], atol=1e-5)


def test_set_ivector_period_rewrites_the_ivector_only():
    nnet = make(
        IVECTOR.replace("Offset(input, 2)", "ReplaceIndex(input, t, 0)").replace(
            "input=a", "input=ReplaceIndex(a, t, 0)"
        )
    )
    set_ivector_period(nnet, 6)
    lines = "\n".join(nnet.config_lines())
    assert "Round(Scale(0.5, ivector), 6)" in lines
    assert "ReplaceIndex(input, t, 0)" in lines
    assert "ReplaceIndex(a, t, 0)" in lines


def test_a_network_that_looks_far_back_does_not_loop_in_few_chunks(monkeypatch):
    monkeypatch.setattr("nnet3tools.optimizer.compile_looped._NUM_CHUNKS", (5,))
    nnet = make(TDNN.replace("Offset(relu, -3)", "Offset(relu, -30)"))
    with pytest.raises(RequestError, match="no state came again"):
        LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=3))


def test_context_of_many_chunks_is_not_taken_for_a_constant():
    nnet = make(TDNN.replace("Offset(relu, -3)", "Offset(relu, -30)"))
    features = frames(80, 3)
    looped = LoopedComputer(nnet, SimpleComputationOptions(frames_per_chunk=3))
    np.testing.assert_allclose(looped.compute(features), whole(nnet, features), atol=1e-5)


def test_what_all_times_look_at_stays_for_ever():
    nnet = make(TDNN.replace("Offset(relu, -3), Offset(relu, 3)", "relu, ReplaceIndex(relu, t, 0)"))
    requests = looped_requests(nnet, 4, 1, 4, NnetContext(2, 1, 1))
    program = compile_looped(nnet, OptimizeOptions(), requests, check=True)
    computer = NnetComputer(ComputeOptions(), program, nnet)
    features = frames(43, 3)
    outputs = []
    for begin, end in zip([0, *range(7, 43, 4)], range(7, 44, 4), strict=True):
        computer.accept_input("input", features[begin:end])
        computer.run()
        outputs.append(computer.get_output("output").copy())
    relu = nnet.components[0], nnet.components[2]
    spliced = np.concatenate([features[0:-3], features[2:-1], features[3:]], axis=1)
    hidden = np.maximum(spliced @ relu[0].linear_params.T + relu[0].bias_params, 0)
    both = np.concatenate([hidden, np.repeat(hidden[:1], len(hidden), axis=0)], axis=1)
    expected = both @ relu[1].linear_params.T + relu[1].bias_params
    np.testing.assert_allclose(np.concatenate(outputs), expected, atol=1e-5)


def test_wrong_chunk_size_is_refused():
    nnet = make(TDNN.replace("Offset(relu, 3)", "Round(relu, 3)"))
    with pytest.raises(RequestError, match="multiple"):
        looped_requests(nnet, 4, 1, 4, compute_simple_nnet_context(nnet))


def test_wrong_features_are_refused():
    computer = LoopedComputer(make(TDNN), SimpleComputationOptions(frames_per_chunk=5))
    with pytest.raises(DataError, match="dimension"):
        computer.compute(frames(10, 4))


@pytest.mark.parametrize("name", NETWORKS)
def test_looped_programs_of_several_sequences_pass_the_checker_between_passes(name, tmp_path):
    nnet = make(NETWORKS[name])
    requests = looped_requests(nnet, 6, 1, 6, compute_simple_nnet_context(nnet), num_sequences=2)
    computation = compile_looped(nnet, OptimizeOptions(), requests, check=True)
    assert isinstance(computation.commands[-1], GotoLabel)
    path = str(tmp_path / "looped.comp")
    save_computation(path, computation, nnet)
    assert load_computation(path, nnet).commands == computation.commands

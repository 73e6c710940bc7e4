"""What optimizing costs, counted in calls: flat in the minibatch, linear in the steps of time."""

import sys
from types import FrameType

import numpy as np
import pytest

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from support.configs import in_a_row
from support.random_networks import parse

TDNN = in_a_row("""input dim=2
a TdnnComponent input-dim=2 output-dim=4 time-offsets=-1,0,1
relu RectifiedLinearComponent dim=4
norm BatchNormComponent dim=4
b AffineComponent input-dim=8 output-dim=4 input=Append(Offset(norm, -3), Offset(norm, 3))
bypass NoOpComponent dim=4 input=Sum(Scale(0.66, norm), b)""")
LSTM = """
input-node name=input dim=2
component name=w type=AffineComponent input-dim=5 output-dim=12
component-node name=w component=w input=Append(input, IfDefined(Offset(m, -1)))
component name=lstm type=LstmNonlinearityComponent cell-dim=3
component-node name=lstm component=lstm input=Append(w, IfDefined(Offset(c, -1)))
dim-range-node name=c input-node=lstm dim-offset=0 dim=3
dim-range-node name=m input-node=lstm dim-offset=3 dim=3
output-node name=output input=m
"""


def training_request(sequences: int, frames: int) -> ComputationRequest:
    n = np.arange(sequences)[:, None]

    def spec(name: str, begin: int, end: int) -> IoSpecification:
        rows = make_indexes(n, np.arange(begin, end)).reshape(-1, 3)
        return IoSpecification(name, rows, name == "output")

    return ComputationRequest(
        [spec("input", -8, frames + 8)], [spec("output", 0, frames)], need_model_derivative=True
    )


def count_calls(nnet: Nnet, request: ComputationRequest, use_shortcut: bool) -> int:
    """Calls, of Python and of C functions, that compiling and optimizing takes."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    compiler = CachingOptimizingCompiler(nnet, None, CompilerOptions(use_shortcut=use_shortcut))
    sys.setprofile(profile)
    try:
        compiler.compile(request)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("text", [TDNN, LSTM], ids=["tdnn", "lstm"])
@pytest.mark.parametrize("use_shortcut", [True, False])
def test_flat_in_the_minibatch_size(text: str, use_shortcut: bool) -> None:
    nnet = parse(text)
    count_calls(nnet, training_request(4, 6), use_shortcut)  # what is cached once for all
    few = count_calls(nnet, training_request(4, 6), use_shortcut)
    many = count_calls(nnet, training_request(512, 6), use_shortcut)
    assert few > 1000
    assert many <= 1.1 * few


def test_flat_in_the_frames_without_recurrence() -> None:
    nnet = parse(TDNN)
    few = count_calls(nnet, training_request(4, 20), True)
    assert count_calls(nnet, training_request(4, 2000), True) <= 1.1 * few


@pytest.mark.parametrize("use_shortcut", [True, False])
def test_linear_in_the_steps_of_a_recurrence(use_shortcut: bool) -> None:
    nnet = parse(LSTM)
    frames = (6, 12, 24, 48)
    calls = [count_calls(nnet, training_request(4, t), use_shortcut) for t in frames]
    first, second, third = np.diff(calls) / np.diff(frames)
    # Calls a step; a quadratic pass would double them each time.
    assert second <= 1.25 * first
    assert third <= 1.25 * second

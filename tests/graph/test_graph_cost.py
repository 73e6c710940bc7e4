"""Graph building and compilation work on whole arrays: their cost in Python is flat in the rows."""

import sys
from types import FrameType

import numpy as np
import pytest

from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from nnet3tools.nnet.nnet import Nnet
from support.plain_graph import compile_computation, parse

FEED_FORWARD = """
input-node name=input dim=2
input-node name=ivector dim=3
component name=a type=AffineComponent input-dim=9 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 2), \
ReplaceIndex(ivector, t, 0))
component name=b type=NoOpComponent dim=4
component-node name=b component=b input=Sum(a, IfDefined(Offset(a, -3)))
dim-range-node name=c input-node=b dim-offset=1 dim=2
component name=d type=AffineComponent input-dim=4 output-dim=3
component-node name=d component=d input=Append(Failover(Offset(c, 3), c), Round(c, 2))
output-node name=output input=d
output-node name=switched input=Switch(c, Offset(c, 1))
"""

RECURRENT = """
input-node name=input dim=2
component name=a type=AffineComponent input-dim=4 output-dim=3
component-node name=a component=a input=Append(input, IfDefined(Offset(r, -1)))
dim-range-node name=r input-node=a dim-offset=0 dim=2
output-node name=output input=a
"""


SMALL = 100
"""Growing an array by doubling takes a few more calls for more rows."""


def request_of(nnet: Nnet, sequences: int, frames: int) -> ComputationRequest:
    """A training request of so many sequences and frames."""
    n = np.arange(sequences)

    def spec(name: str, begin: int, end: int, has_deriv: bool) -> IoSpecification:
        return IoSpecification(name, make_indexes(n, np.arange(begin, end)[:, None]), has_deriv)

    inputs = [spec("input", -8, frames + 8, True)]
    if nnet.node_index("ivector") >= 0:
        inputs.append(spec("ivector", 0, 1, False))
    names = [nnet.node_names[node] for node in nnet.output_nodes()]
    return ComputationRequest(inputs, [spec(name, 0, frames, True) for name in names], True)


def count_calls(nnet: Nnet, request: ComputationRequest) -> int:
    """Calls made in graph/ and compiler/ while compiling: Python functions, and C functions."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            name = frame.f_code.co_filename
            count += "nnet3tools/graph/" in name or "nnet3tools/compiler/" in name

    sys.setprofile(profile)
    try:
        compile_computation(nnet, request)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("text", [FEED_FORWARD, RECURRENT])
def test_a_thousand_times_more_sequences_cost_no_more_calls(text: str) -> None:
    nnet = parse(text)
    few = count_calls(nnet, request_of(nnet, 2, 6))
    many = count_calls(nnet, request_of(nnet, 2000, 6))
    assert few > 1000
    assert abs(many - few) <= SMALL


def test_a_thousand_times_more_frames_cost_no_more_calls_without_recurrence() -> None:
    # The ivector is left out: all frames share its row, which takes a command a frame backward.
    text = FEED_FORWARD.replace(", ReplaceIndex(ivector, t, 0)", "").replace("dim=9", "dim=6")
    text = text.replace("input-node name=ivector dim=3\n", "")
    nnet = parse(text)
    few = count_calls(nnet, request_of(nnet, 2, 20))
    many = count_calls(nnet, request_of(nnet, 2, 20000))
    assert abs(many - few) <= SMALL


def test_calls_are_linear_in_the_steps_of_a_recurrence() -> None:
    nnet = parse(RECURRENT)
    calls = [count_calls(nnet, request_of(nnet, 2, frames)) for frames in (20, 40, 80)]
    assert calls[2] - calls[1] <= 2.2 * (calls[1] - calls[0])

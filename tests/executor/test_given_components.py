"""Requests may give values of component nodes, as online recurrent networks do with states."""

import numpy as np
import pytest

from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from support.io_specifications import io_range
from support.random_networks import parse

CONFIG = """
input-node name=input dim=3
component name=w type=AffineComponent input-dim=7 output-dim=4
component-node name=w component=w input=Append(input, IfDefined(Offset(r, -1)))
component name=r type=TanhComponent dim=4
component-node name=r component=r input=w
component name=v type=AffineComponent input-dim=4 output-dim=2
component-node name=v component=v input=r
output-node name=output input=v
output-node name=state input=r
"""
INPUT = np.random.default_rng(3).normal(size=(12, 3)).astype(np.float32)

Times = dict[str, range]


def request_of(given: Times, wanted: Times, backward: bool = False) -> ComputationRequest:
    io = [
        [io_range(name, t.start, t.stop, backward) for name, t in specs.items()]
        for specs in (given, wanted)
    ]
    return ComputationRequest(*io)


def run(
    nnet: Nnet,
    request: ComputationRequest,
    values: dict[str, np.ndarray],
    options: OptimizeOptions | None = None,
) -> dict[str, np.ndarray]:
    """Outputs, and derivatives of what was given where they were asked for."""
    program = CachingOptimizingCompiler(nnet, options).compile(request)
    computer = NnetComputer(ComputeOptions(), program, nnet)
    for io in request.inputs:
        computer.accept_input(io.name, values[io.name])
    computer.run()
    results = {io.name: computer.get_output(io.name).copy() for io in request.outputs}
    if request.needs_derivatives:
        for io in request.outputs:
            computer.accept_input(io.name, values[io.name])
        computer.run()
        results |= {io.name: computer.get_output(io.name).copy() for io in request.inputs}
    return results


@pytest.mark.parametrize("optimize", [True, False])
def test_chunks_that_are_given_the_state_equal_the_whole_run(optimize: bool) -> None:
    nnet, options = parse(CONFIG), OptimizeOptions(optimize=optimize)
    both = dict.fromkeys(("output", "state"), range(12))
    whole = run(nnet, request_of({"input": range(12)}, both), {"input": INPUT}, options)
    state = np.empty((0, 4), np.float32)
    for begin in range(0, 12, 4):
        here, known = range(begin, begin + 4), range(begin - len(state), begin)
        given = {"input": here, "r": known} if begin else {"input": here}
        request = request_of(given, {"output": here, "state": range(begin + 3, begin + 4)})
        chunk = run(nnet, request, {"input": INPUT[begin : begin + 4], "r": state}, options)
        np.testing.assert_allclose(chunk["output"], whole["output"][begin : begin + 4], rtol=1e-5)
        state = chunk["state"]


def test_derivatives_of_a_given_state() -> None:
    nnet, rng = parse(CONFIG), np.random.default_rng(4)
    request = request_of({"input": range(4), "r": range(-1, 0)}, {"output": range(4)}, True)
    values = {"input": INPUT[:4], "r": rng.normal(size=(1, 4)).astype(np.float32)}
    values["output"] = rng.normal(size=(4, 2)).astype(np.float32)
    derivs = run(nnet, request, values)
    for i in range(4):
        moved = []
        for step in (1e-2, -1e-2):
            state = values["r"].copy()
            state[0, i] += step
            output = run(nnet, request, values | {"r": state})["output"]
            moved.append(float((output * values["output"]).sum()))
        assert derivs["r"][0, i] == pytest.approx((moved[0] - moved[1]) / 2e-2, abs=2e-3)

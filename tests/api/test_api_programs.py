"""Programs from Python: compiled, looked at, run; against nnet3-compile and finite differences."""

from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools import ComputationRequest, IoSpecification
from nnet3tools.io.files import open_output
from support.api_networks import frames, network
from support.programs import run


def steady_network() -> nnet3tools.Nnet:
    """The network without dropout."""
    nnet = network()
    nnet.edit("set-dropout-proportion name=* proportion=0")
    return nnet


def request(derivatives: bool = True) -> ComputationRequest:
    """Five rows of output."""
    inputs = [IoSpecification.from_range("input", -1, 6, has_deriv=derivatives)]
    outputs = [IoSpecification.from_range("output", 0, 5, has_deriv=derivatives)]
    return ComputationRequest(inputs, outputs, need_model_derivative=derivatives)


def test_the_file_is_that_of_nnet3_compile() -> None:
    nnet = network()
    nnet.write("0.raw")
    with open_output("request", binary=False) as writer:
        request().write(writer)
    assert run("nnet3-compile", "0.raw", "request", "0.comp") == 0
    for given in (request(), Path("request"), Path("request").read_text()):
        nnet3tools.compile(nnet, given).write("1.comp")
        assert Path("1.comp").read_bytes() == Path("0.comp").read_bytes()
    again = nnet3tools.Program.read("0.comp", nnet)
    assert str(again) == str(nnet3tools.compile(nnet, request()))
    assert len(again.commands) > 10
    assert again.max_memory_bytes > 500
    assert "<html" in again.html()


def test_derivatives_are_those_of_finite_differences() -> None:
    nnet, x, deriv = steady_network(), frames(7), frames(5, 4)
    program = nnet3tools.compile(nnet, request())
    found = program.run({"input": x}, {"output": deriv}).model_derivative
    assert found is not None
    gradient = found.components[found.component_index("o")].bias_params  # type: ignore[attr-defined]
    bias = nnet.component("o").bias_params
    for i in range(4):
        values = []
        for step in (1e-2, -1e-2):
            bias[i] += step
            values.append(float((program.run({"input": x}).outputs["output"] * deriv).sum()))
            bias[i] -= step
        assert (values[0] - values[1]) / 2e-2 == pytest.approx(gradient[i], abs=2e-2)


def test_a_computer_runs_step_by_step() -> None:
    program = nnet3tools.compile(steady_network(), request(derivatives=False))
    computer = nnet3tools.NnetComputer(program)
    outputs = []
    for _ in range(2):
        computer.accept_input("input", frames(7).tolist())
        computer.run()
        outputs.append(computer.get_output("output"))
        computer.reset()
    want = program.run({"input": frames(7)}).outputs["output"]
    for output in outputs:
        np.testing.assert_allclose(output, want, atol=1e-6)


def test_mistakes_are_user_errors() -> None:
    nnet = network()
    program = nnet3tools.compile(nnet, request())
    with pytest.raises(nnet3tools.DataError, match="nnet_to_update"):
        nnet3tools.NnetComputer(program)
    with pytest.raises(nnet3tools.DataError, match="'input'"):
        program.run({"input": frames(6)})
    with pytest.raises(nnet3tools.DataError, match="matrix"):
        program.run({"input": np.zeros(3)})
    with pytest.raises(nnet3tools.UserError, match="request"):
        nnet3tools.compile(nnet, "no request")
    outputs = [IoSpecification.from_range("output", 0, 50)]
    with pytest.raises(nnet3tools.RequestError, match="output"):
        nnet3tools.compile(nnet, ComputationRequest(request().inputs, outputs))


def test_rows_given_as_a_list() -> None:
    rows = IoSpecification("input", [(0, t, 0) for t in range(3)])
    assert rows == IoSpecification.from_range("input", 0, 3)

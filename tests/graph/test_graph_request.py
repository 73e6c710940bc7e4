"""Requests: files, equality, and what a user can get wrong in them."""

import io

import numpy as np
import pytest

from nnet3tools.errors import DataError, RequestError
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.indexes import make_indexes
from support.configs import in_a_row
from support.io_specifications import io_range
from support.plain_graph import parse
from support.streams import bytes_of

NNET = in_a_row("""input dim=1
a NoOpComponent dim=1""")


def a_request() -> ComputationRequest:
    rows = make_indexes(np.arange(2)[:, None], np.arange(-2, 3), 1)
    return ComputationRequest(
        [IoSpecification("input", rows, True), IoSpecification("ivector", rows[:1])],
        [IoSpecification("output", rows[3:5], True)],
        need_model_derivative=True,
    )


@pytest.mark.parametrize("binary", [False, True])
def test_files_bring_the_request_back(binary: bool) -> None:
    data = bytes_of(a_request().write, binary=binary)
    again = ComputationRequest.read(Reader(io.BytesIO(data), "file", binary))
    assert again == a_request()
    assert bytes_of(again.write, binary=binary) == data


def test_text_form_is_kaldis() -> None:
    request = ComputationRequest([io_range("input", 0, 2)], [io_range("output", 1, 2)])
    assert bytes_of(request.write, binary=False).decode() == (
        "<ComputationRequest> \n<NumInputs> 1 \n<Inputs> <IoSpecification> \ninput <NumIndexes> 2 "
        "<Indexes> <I1V> 2 <I1> 0 0 0 <I1> 0 1 0 <HasDeriv> F \n</IoSpecification> \n\n"
        "<NumOutputs> 1 \n<Outputs> <IoSpecification> \noutput <NumIndexes> 1 <Indexes> <I1V> 1 "
        "<I1> 0 1 0 <HasDeriv> F \n</IoSpecification> \n\n"
        "<NeedModelDerivative> F <StoreComponentStats> F </ComputationRequest> \n"
    )


@pytest.mark.parametrize("binary", [False, True])
def test_a_truncated_file_is_a_data_error(binary: bool) -> None:
    data = bytes_of(a_request().write, binary=binary).rstrip()
    for end in range(0, len(data) - 1, 7):
        with pytest.raises(DataError):
            ComputationRequest.read(Reader(io.BytesIO(data[:end]), "file", binary))


def test_a_wrong_number_of_indexes_is_a_data_error() -> None:
    data = bytes_of(a_request().write, binary=False)
    data = data.replace(b"input <NumIndexes> 10", b"input <NumIndexes> 11")
    with pytest.raises(DataError, match="expected 11 indexes for 'input'"):
        ComputationRequest.read(Reader(io.BytesIO(data), "file", False))


def test_requests_that_differ_in_anything_are_different_keys() -> None:
    requests = [a_request() for _ in range(6)]
    requests[1].need_model_derivative = False
    requests[2].outputs[0].has_deriv = False
    requests[3].inputs[0].indexes = requests[3].inputs[0].indexes[::-1].copy()
    requests[4].outputs[0].name = "other"
    requests[5].store_component_stats = True
    assert len(set(requests)) == 6
    assert len({a_request(), a_request()}) == 1


def rows(count: int) -> np.ndarray:
    return make_indexes(0, np.arange(count))


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ({"inputs": 3}, {"output": 2}, "no input 'inputs'"),
        ({"input": 3}, {"outputs": 2}, "no output 'outputs'"),
        ({"input": 3}, {"a": 2}, "'a' cannot be an output"),
        ({"output": 3}, {"output": 2}, "'output' cannot be an input"),
        ({"input": 3}, {"output": 0}, "asks for no output"),
        ({"input": 0}, {"output": 2}, "gives no input"),
        ({"input": 3}, {}, "asks for no output"),
    ],
)
def test_requests_that_do_not_fit_the_network(
    inputs: dict[str, int], outputs: dict[str, int], message: str
) -> None:
    request = ComputationRequest(
        [IoSpecification(name, rows(count)) for name, count in inputs.items()],
        [IoSpecification(name, rows(count)) for name, count in outputs.items()],
    )
    with pytest.raises(RequestError, match=message):
        request.validate(parse(NNET))


def test_an_index_listed_twice_is_named() -> None:
    twice = np.array([[0, 0, 0], [0, 7, 0], [1, 7, 0], [0, 7, 0]], np.int32)
    spec = IoSpecification("input", twice)
    request = ComputationRequest([spec], [IoSpecification("output", rows(1))])
    with pytest.raises(RequestError, match=r"\(n=0, t=7, x=0\) more than once \(rows 1 and 3\)"):
        request.validate(parse(NNET))


def test_a_row_without_a_time_is_named() -> None:
    """Kaldi's kNoTime marks padding inside programs; as a frame it would be computed."""
    spec = IoSpecification("output", np.array([[0, 0, 0], [0, -(1 << 31), 0]], np.int32))
    request = ComputationRequest([IoSpecification("input", rows(1))], [spec])
    with pytest.raises(RequestError, match=r"'output' has t=-2147483648, .* in row 1"):
        request.validate(parse(NNET))


def test_an_input_listed_twice_is_named() -> None:
    specs = [IoSpecification("input", rows(1)), IoSpecification("input", rows(1))]
    request = ComputationRequest(specs, [IoSpecification("output", rows(1))])
    with pytest.raises(RequestError, match="'input' is listed twice"):
        request.validate(parse(NNET))


def test_derivatives_need_a_derivative_of_some_output() -> None:
    request = ComputationRequest(
        [IoSpecification("input", rows(1))], [IoSpecification("output", rows(1))], True
    )
    with pytest.raises(RequestError, match="gives no derivative of any output"):
        request.validate(parse(NNET))


def test_max_output_time() -> None:
    assert a_request().max_output_time == 2
    with pytest.raises(RequestError):
        _ = ComputationRequest([], []).max_output_time

"""Whole random networks, compiled, optimized and run, against one row at a time in float64.

Values are compared row by row; derivatives of inputs and parameters with the numeric derivative of
the row-by-row evaluation along a random direction each.
"""

import dataclasses
import random

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import RequestError
from nnet3tools.executor.computer import ComputeOptions, NnetComputer
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.arithmetic import scale_nnet, set_as_gradient
from nnet3tools.nnet.components.base import RandomComponent
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.optimizer.options import OptimizeOptions
from support.component_zoo import ZOO
from support.random_networks import KINDS, parse, random_case
from support.row_by_row import RowByRow
from support.zoo_networks import zoo_network, zoo_requests

STEP = 1e-5
Values = dict[str, np.ndarray]


def fixed(nnet: Nnet, rng: np.random.Generator) -> Nnet:
    """The network with components that depend neither on chance nor on other rows."""
    for component in nnet.components:
        if isinstance(component, RandomComponent):
            component.test_mode = True
        if isinstance(component, BatchNormComponent):
            mean, variance = rng.normal(size=(2, component.block_dim))
            component.count = 10.0
            component.stats_sum[:] = 10 * mean
            component.stats_sumsq[:] = 10 * (mean**2 + variance**2 + 0.2)
            component.set_test_mode(True)
    return nnet


def run_program(
    nnet: Nnet, request: ComputationRequest, inputs: Values, derivs: Values
) -> tuple[Values, Values, Nnet]:
    """Outputs, derivatives of inputs, gradient of the parameters, from the optimized program."""
    compiler = CachingOptimizingCompiler(nnet, OptimizeOptions())
    gradient = nnet.copy()
    scale_nnet(gradient, 0.0)
    set_as_gradient(gradient)
    computer = NnetComputer(ComputeOptions(), compiler.compile(request), nnet, gradient)
    for name, value in inputs.items():
        computer.accept_input(name, value.astype(np.float32))
    computer.run()
    outputs = {io.name: computer.get_output(io.name).copy() for io in request.outputs}
    for name, value in derivs.items():
        computer.accept_input(name, value.astype(np.float32))
    computer.run()
    return (
        outputs,
        {io.name: computer.get_output(io.name).copy() for io in request.inputs},
        gradient,
    )


def tuples(indexes: np.ndarray) -> list[tuple[int, int, int]]:
    return [(int(n), int(t), int(x)) for n, t, x in indexes]


def rows(io: IoSpecification, values: np.ndarray) -> dict:
    return dict(zip(tuples(io.indexes), values.astype(np.float64), strict=True))


def check(config: str, nnet: Nnet, request: ComputationRequest, seed: int) -> None:
    """All of the promises of this file for one network and request."""
    rng = np.random.default_rng(seed)
    fixed(nnet, rng)
    for io in (*request.inputs, *request.outputs):
        io.has_deriv = True
    request.need_model_derivative = True
    dims = {name: nnet.dim(n) for n, name in enumerate(nnet.node_names)}
    draw = {io.name: rng.normal(size=(len(io.indexes), dims[io.name])) for io in request.inputs}
    derivs = {io.name: rng.normal(size=(len(io.indexes), dims[io.name])) for io in request.outputs}
    outputs, input_derivs, gradient = run_program(nnet, request, draw, derivs)

    plain = RowByRow(config, nnet, {io.name: rows(io, draw[io.name]) for io in request.inputs})

    def loss() -> float:
        plain.forget()
        total = 0.0
        for io in request.outputs:
            for index, weights in zip(tuples(io.indexes), derivs[io.name], strict=True):
                total += float(plain.output(io.name, index) @ weights)
        return total

    for io in request.outputs:
        expected = np.array([plain.output(io.name, i) for i in tuples(io.indexes)])
        np.testing.assert_allclose(outputs[io.name], expected, rtol=1e-3, atol=1e-4)

    def compare(what: str, derivative: np.ndarray, direction: np.ndarray, move) -> None:
        move(direction * STEP)
        above = loss()
        move(direction * -2 * STEP)
        below = loss()
        move(direction * STEP)
        numeric = (above - below) / (2 * STEP)
        found = float((derivative * direction).sum())
        scale = float(np.abs(derivative * direction).sum()) + 1.0
        assert abs(numeric - found) < 1e-3 * scale, (what, numeric, found)

    for io in request.inputs:

        def move_input(step: np.ndarray, io: IoSpecification = io) -> None:
            given = plain.inputs[io.name]
            for index, change in zip(tuples(io.indexes), step, strict=True):
                given[index] = given[index] + change

        direction = rng.normal(size=draw[io.name].shape)
        compare(io.name, input_derivs[io.name], direction, move_input)
    for name, component in gradient.updatable_components():
        mine = plain.components[name].parameters()  # type: ignore[attr-defined]
        for parameter, derivative in component.parameters().items():

            def move_parameter(step: np.ndarray, value: np.ndarray = mine[parameter]) -> None:
                value += step

            direction = rng.normal(size=derivative.shape)
            compare(f"{name}.{parameter}", derivative, direction, move_parameter)


def without_truncation(config: str) -> str:
    """The config with the gradient's clipping and zeroing out of reach."""
    config = config.replace("clipping-threshold=0.3", "clipping-threshold=1e9")
    return config.replace("clipping-threshold=1 zeroing-threshold=15", "zeroing-threshold=1e9")


def check_random_case(kind: str, seed: int) -> None:
    case = random_case(seed, kind)
    config = without_truncation(case.config)
    request = dataclasses.replace(case.request, store_component_stats=False)
    check(config, parse(config, seed + 1), request, seed)


def check_zoo(kinds: list[str], seed: int) -> None:
    """Some descriptors between components ask a StatisticsExtraction for rows of two periods.

    No request will do then, and other descriptors are drawn.
    """
    for attempt in range(5):
        config, nnet = zoo_network(seed + 1000 * attempt, kinds)
        for request in zoo_requests(training=False):
            try:
                return check(config, nnet, request, seed)
            except RequestError as error:
                reason = error
    raise reason


@pytest.mark.parametrize("kind", KINDS)
def test_random_networks(kind: str) -> None:
    check_random_case(kind, 1)


@pytest.mark.parametrize("kind", ZOO)
def test_every_component_between_two_others(kind: str) -> None:
    seed = list(ZOO).index(kind)
    rng = random.Random(seed)
    check_zoo([rng.choice(list(ZOO)), kind], seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("kind", KINDS)
def test_more_random_networks(kind: str, seed: int) -> None:
    check_random_case(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_more_mixtures_of_components(seed: int) -> None:
    rng = random.Random(seed)
    tensor.random.seed(seed)
    check_zoo([rng.choice(list(ZOO)) for _ in range(rng.randint(1, 4))], seed)

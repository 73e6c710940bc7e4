"""Objectives given by formulas, and training of a network of formulas."""

import io

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ConfigError
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.diagnostics import NnetComputeProb
from nnet3tools.training.diagnostics_options import ComputeProbOptions
from nnet3tools.training.objective import compute_objective
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.streams import bytes_of
from support.training_helpers import CONFIG, minibatch, network, one_hot

QUADRATIC = "-0.5 * sqr(target - output)"
FORMULAS = {
    "component name=b1 type=BatchNormComponent dim=7": (
        "component name=b1 type=ExpressionComponent dim=7 "
        'expression="(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)"'
    ),
    "component name=ls type=LogSoftmaxComponent dim=5": (
        'component name=ls type=ExpressionComponent dim=5 expression="log_softmax(x)"'
    ),
}


def network_of(text: str) -> Nnet:
    tensor.random.seed(0)
    return Nnet.from_config(parse_config_lines(text))


def objective(nnet: Nnet) -> float:
    """The objective on one minibatch."""
    tensor.random.seed(0)
    prob = NnetComputeProb(ComputeProbOptions(), nnet)
    prob.compute(minibatch())
    return prob.totals["output"].objective


@pytest.mark.parametrize("need_deriv", [True, False])
def test_formulas_give_the_built_in_objectives(need_deriv):
    rng = np.random.default_rng(0)
    output = rng.normal(size=(6, 5)).astype(np.float32)
    target = one_hot([0, 1, 4, 2, 2, 3], 5, 0.5)
    for kind, formula in (("linear", "target * output"), ("quadratic", QUADRATIC)):
        derivs = [np.full((6, 5), np.nan, np.float32) if need_deriv else None for _ in range(2)]
        _, expected = compute_objective(kind, target, output, "output", derivs[0])
        weight, total = compute_objective(
            f"expression={formula}", target, output, "output", derivs[1]
        )
        assert weight == 6.0
        assert total == pytest.approx(expected, rel=1e-5)
        if need_deriv:
            np.testing.assert_allclose(derivs[1], derivs[0], 1e-6, 1e-6)


def test_the_objective_survives_the_model_file():
    text = CONFIG.format(affine="", objective=f'expression expression="{QUADRATIC}"')
    nnet = network_of(text)
    line = nnet.config_lines()[-1]
    assert line.endswith(f'objective=expression expression="{QUADRATIC}"')
    for binary in (True, False):
        data = bytes_of(nnet.write, binary=binary)
        again = Nnet.read(Reader(io.BytesIO(data), "test", binary))
        assert again.config_lines() == nnet.config_lines()
        assert objective(again) == pytest.approx(objective(nnet))


def test_a_network_with_formulas_trains():
    text = CONFIG.format(
        affine="", objective='expression expression="p = exp(output); -0.5 * sqr(target - p)"'
    )
    text = text.replace(
        "component name=r1 type=RectifiedLinearComponent dim=7",
        "component name=r1 type=ExpressionComponent dim=7 params=alpha:7:init=0.25 "
        "learning-rate=0.02 max-change=0.5 l2-regularize=0.001 "
        'expression="max(x, 0) + alpha * min(x, 0)"',
    )
    for old, new in FORMULAS.items():
        text = text.replace(old, new)
    nnet = network_of(text)
    before = nnet.copy()
    start = objective(nnet)
    trainer = NnetTrainer(NnetTrainerOptions(), nnet)
    for _ in range(30):
        trainer.train(minibatch())
    assert objective(nnet) > 0.9 * start > start  # negative: less is left
    index = nnet.component_names.index("r1")
    assert np.abs(nnet.components[index].values - before.components[index].values).max() > 1e-4


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("sqr(target - output", "expected '\\)', found the end"),
        ("sqr(target - outptu)", "unknown name .outptu. .nearest known: output. at column 14"),
        ("sqr(target)", "no gradient"),
        ("output + [1, 2]", "cannot|not an expression"),
        ("dot(output, target)", "do not fit together: output input"),
        ("a = b; b = a; a * output", "cycle: a -> b -> a"),
    ],
)
def test_bad_objectives(formula, message):
    with pytest.raises(ConfigError, match=message):
        network_of(CONFIG.format(affine="", objective=f'expression expression="{formula}"'))


def test_an_objective_without_a_formula():
    with pytest.raises(ConfigError, match="missing required key 'expression'"):
        network(objective="expression")
    with pytest.raises(ConfigError, match="unused values 'expression"):
        network(objective='linear expression="output"')

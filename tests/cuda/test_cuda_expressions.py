"""Formulas on the emulated device: values and derivatives, and networks trained with them."""

from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.expression.row_function import RowFunction
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.emulated_cuda import fetch, mirror, needs_compiler, to_device
from support.pages import blocks_of
from support.training_helpers import minibatch

pytestmark = needs_compiler

PARTS, PARAMS = {"x": 4, "y": 4}, {"p": (4,), "w": (4, 4)}
QUICK = [
    "x * sigmoid(y) * p",
    "(x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)",
    "affine(softmax(x), w, p) + dot(y, w, trans_b=true)",
]
MORE = [
    "batch_norm(x) + y",
    "log_softmax(x, mask=y > 0)",
    "layer_norm(x, p) + rms_norm(y)",
    "concatenate(x, y) * 2 + repeat(x, 2, axis=1)",
    "cumsum(x, axis=1) + cumsum(y, axis=0, reverse=true)",
    "x * prod(y, axis=1)",
    "x / logsumexp(y, axis=1) + max(x, axis=1) + min(y, axis=0)",
    "cols(x, [2, 0, 1, 3]) + gather(y, 0, [[0, 1, 2, 0]])",
    "scatter(x, 0, [[0, 1, 2, 0]], narrow(y, 0, 0, 1))",
    "sort(x, axis=1) + topk(y, 1)",
    "std(x, axis=1) + highway(x, y, x)",
    "slice(x, 1, 0, 4, 2) * slice(y, 1, 1, 4, 2)",
    "shift(x, [1, 0]) + clip_gradient(y, 0.5)",
    "weighted_average(x, exp(y), 1) + checkpoint(tanh(x)) * y",
    "x - cross_entropy(x, argmax(y)) + unlikelihood(y, argmax(x))",
    "choose(x, y, argmax(x))",
    "where(x > 0 && y > 0, x, y) + (x >= y)",
    "mean(x) + sum(y, axis=1) * x",
    "reshape(transpose(reshape(x, [-1, 2, 2]), [1, 0, 2]) * 2, [-1, 4])",
]


def run(function, put):
    """Value, twice, and derivatives on random operands."""
    rng = np.random.default_rng(0)
    shapes = {n: (6, d) for n, d in PARTS.items()} | PARAMS
    operands = {n: put(rng.normal(size=s).astype(np.float32)) for n, s in shapes.items()}
    out, inferred = (put(np.zeros((6, function.output_dim), np.float32)) for _ in range(2))
    memo = function.forward(operands, out)
    function.infer(operands, inferred)
    derivs = {n: put(np.ones(s, np.float32)) for n, s in shapes.items()}
    params = {n: derivs.pop(n) for n in PARAMS}
    out_deriv = put(rng.normal(size=(6, function.output_dim)).astype(np.float32))
    function.backward(operands, out, out_deriv, memo, derivs, params, 0.5)
    return [out, inferred, *derivs.values(), *params.values()]


@pytest.mark.parametrize("text", [*QUICK, *(pytest.param(t, marks=pytest.mark.slow) for t in MORE)])
def test_formulas_agree_with_the_host(text, device):
    function = RowFunction(text, PARTS, PARAMS)
    expected = run(function, lambda array: array)
    for found, array in zip(run(function, mirror), expected, strict=True):
        np.testing.assert_allclose(fetch(found), array, 1e-5, 1e-5)


CONFIG = """
input-node name=input dim=3
component name=w type=AffineComponent input-dim=9 output-dim=6 learning-rate=0.1
component name=f type=ExpressionComponent dim=6 params=g:6:init=1.5
    expression="g * (x - mean(x, axis=0)) / sqrt(var(x, axis=0) + 0.001)"
component name=h type=ExpressionComponent dim=6 expression="tanh(x)"
component name=a type=AffineComponent input-dim=6 output-dim=5 learning-rate=0.05
component name=s type=ExpressionComponent dim=5 expression="log_softmax(x)"
component-node name=w component=w input=Append(input, IfDefined(Offset(h, -1)))
component-node name=f component=f input=w
component-node name=h component=h input=f
component-node name=a component=a input=h
component-node name=s component=s input=a
output-node name=output input=s objective=expression expression="target * output"
"""


def train(like, **options):
    tensor.random.seed(1)
    text = CONFIG.replace("1.5\n   ", "1.5")
    nnet = Nnet.from_config(parse_config_lines(text))
    trainer = NnetTrainer(NnetTrainerOptions(**options), nnet, like)
    for i in range(4):  # statistics of few rows in a loop: rounding errors grow fast
        trainer.train(minibatch(seed=i % 2))
    move_nnet(nnet)
    return vectorize(nnet)


def test_a_network_with_formulas_trains_as_on_the_host(device):
    like = to_device(np.zeros(0, np.float32))
    expected, got = train(None), train(like)
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=2e-4)
    assert device.launched.count("graph") > 0


def test_replayed_graphs_change_nothing(device):
    like = to_device(np.zeros(0, np.float32))
    plain = NnetTrainerOptions().computation.__class__(cuda_graph=False)
    np.testing.assert_array_equal(train(like), train(like, computation=plain))


def test_the_code_of_the_page_trains_on_the_device(device, capsys):
    page = Path(__file__).parents[2] / "docs" / "expression.md"
    (code,) = (b.text for b in blocks_of(page) if "import cupy" in b.text)
    tensor.random.seed(1)
    names = {}
    exec(code, names)
    assert names["g"].params["hidden_W"].value.__class__ is not np.ndarray
    assert "[0." in capsys.readouterr().out

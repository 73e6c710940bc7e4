"""Optimizers: PyTorch's results after 100 updates, files that resume bit for bit, refusals."""

import math

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer
from nnet3tools.expression.schedules import Cosine, InverseSquareRoot, WarmUp
from nnet3tools.tensor.recorder import Recorder
from nnet3tools.tensor.workspace import Workspace

BEGIN = np.array([0.5, -1.0, 2.0])


def problem(kind=np.float64):
    """A graph whose loss is the sum of (a w - b)^2, and a function that feeds step t's a and b."""
    graph = ex.Graph()
    w = graph.param("w", BEGIN.astype(kind))
    a, b = (graph.input(n, (3,), w.type) for n in "ab")
    loss = ex.sum_(ex.sqr(a * w - b), None)

    def step(t):
        i = np.arange(3)
        arrays = {"a": np.sin(t + i).astype(kind), "b": np.cos(2.0 * t + i).astype(kind)}
        graph.forward(loss, **arrays)
        graph.backward()

    return graph, step


CASES = {
    "sgd": (lambda g: SGD(g, 0.05), [0.0579805424, 0.0136368453, 0.0244505989]),
    "momentum": (
        lambda g: SGD(g, 0.02, momentum=0.9), [-0.0029664038, -0.0157457593, -0.0062544669]
    ),
    "nesterov": (
        lambda g: SGD(g, 0.02, momentum=0.9, nesterov=True),
        [0.01856091, -0.0047669128, -0.0037731134],
    ),
    "adagrad": (lambda g: Adagrad(g, 0.1), [0.0958740786, -0.2734364634, 0.8902906518]),
    "adam": (lambda g: Adam(g, 0.02), [0.0500624717, -0.1826889181, 0.7633710613]),
    "adam with betas": (
        lambda g: Adam(g, 0.02, beta1=0.8, beta2=0.98, eps=1e-6),
        [0.0650668757, -0.201623014, 0.7680437485],
    ),
    "adamw": (
        lambda g: AdamW(g, 0.02, weight_decay=0.1), [0.0378035643, -0.1387347395, 0.5887706027]
    ),
    "clip_norm": (lambda g: SGD(g, 0.1, clip_norm=0.3), [0.204045711, -0.2623217153, 0.6552280129]),
    "clip_element": (
        lambda g: SGD(g, 0.1, clip_element=0.1), [0.316997759, -0.6451014668, 1.2645337843]
    ),
    "cosine": (
        lambda g: Adam(g, 0.02, schedule=Cosine(80, last=0.1)),
        [0.1986064559, -0.5217685243, 1.3651428876],
    ),
    "warm_up": (
        lambda g: SGD(g, 0.2, schedule=WarmUp(10) * InverseSquareRoot(20)),
        [0.1040913464, 0.0397567927, 0.0270523048],
    ),
    "accumulate": (
        lambda g: Adam(g, 0.02, accumulate=4), [0.1496819357, -0.560404817, 1.5306161936]
    ),
}  # fmt: skip
"""Optimizer and the parameter that PyTorch 2.13 has after 100 steps (cosine: 80) in float64."""

FLOAT32 = {"adamw": [0.0378036723, -0.1387351453, 0.588773489]}
"""The parameter that PyTorch has in float32 where that differs by more than 1e-6."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_hundred_steps_equal_those_of_pytorch(name, kind):
    make, expected = CASES[name]
    expected = FLOAT32.get(name, expected) if kind is np.float32 else expected
    graph, step = problem(kind)
    optimizer = make(graph)
    for t in range(80 if name == "cosine" else 100):
        step(t)
        assert optimizer.update() == (name != "accumulate" or t % 4 == 3)
    # PyTorch adds 1e-6 to the norm by which it divides
    tolerance = 1e-6 if kind is np.float32 or name == "clip_norm" else 2e-10
    np.testing.assert_allclose(graph.params["w"].value, expected, 0, tolerance)


def test_smoothing_averages_parameters_as_marian_does():
    graph, step = problem()
    optimizer = SGD(graph, 0.05, smoothing=0.2)
    average = BEGIN.copy()
    for t in range(60):
        step(t)
        optimizer.update()
        part = max(0.2, 1 - (t + 2) / (t + 11))
        average = (1 - part) * average + part * graph.params["w"].value
    kept = graph.params["w"].value.copy()
    with optimizer.smoothed():
        np.testing.assert_allclose(graph.params["w"].value, average, 1e-12)
    np.testing.assert_array_equal(graph.params["w"].value, kept)
    with pytest.raises(ex.ExpressionError, match="SGD was made without smoothing"):
        with SGD(graph, 0.1).smoothed():
            pass


OPTIONS = {"schedule": WarmUp(9) * Cosine(40), "clip_norm": 0.7, "smoothing": 0.01}


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("kind", [SGD, Adagrad, Adam, AdamW])
def test_training_resumes_bit_for_bit(kind, accumulate, tmp_path):
    def train(first, last, graph, step):
        optimizer = kind(graph, 0.02, accumulate=accumulate, **OPTIONS)
        if first:
            graph.load(f"{tmp_path}/model")
            optimizer.load(f"{tmp_path}/state")
        for t in range(first, last):
            step(t)
            optimizer.update()
        graph.save(f"{tmp_path}/model")
        optimizer.save(f"{tmp_path}/state")
        return (tmp_path / "model").read_bytes(), (tmp_path / "state").read_bytes()

    whole = train(0, 30, *problem(np.float32))
    train(0, 13, *problem(np.float32))  # between two updates, if gradients are accumulated
    assert train(13, 30, *problem(np.float32)) == whole


def test_gradients_of_an_earlier_loss_are_not_used_again():
    graph = ex.Graph()
    v, w = (graph.param(n, np.ones(2, np.float32)) for n in "vw")
    optimizer = SGD(graph, 0.5)
    for root in (v, w):
        graph.forward(ex.sum_(root * root, None))
        graph.backward()
        assert list(graph.gradients()) == [root.name]
        optimizer.update()
    np.testing.assert_array_equal(v.value, [0, 0])
    assert graph.clip_gradients(100) == pytest.approx(math.sqrt(8))


def state_of(make, tmp_path, arrays=(("w", BEGIN),), **options) -> str:
    graph = ex.Graph()
    for name, value in arrays:
        graph.param(name, np.array(value))
    make(graph, 0.1, **options).save(f"{tmp_path}/state")
    return f"{tmp_path}/state"


@pytest.mark.parametrize(
    ("make", "arrays", "options", "message"),
    [
        (SGD, [("w", BEGIN)], {}, "expected the state of Adam, found SGD"),
        (AdamW, [("w", BEGIN)], {}, "expected the state of Adam, found AdamW"),
        (Adam, [("v", BEGIN)], {}, r"graph or optimizer has no mean of parameter 'v'"),
        (Adam, [], {}, r"the file has no mean of parameter 'w'"),
        (Adam, [("w", np.zeros(4))], {}, r"'w' is float64 \(4,\), expected float64 \(3,\)"),
        (Adam, [("w", np.zeros(3, np.float32))], {}, r"'w' is float32 \(3,\), expected float64"),
        (Adam, [("w", BEGIN)], {"smoothing": 0.1}, r"optimizer has no average of parameter 'w'"),
        (Adam, [("w", BEGIN)], {"accumulate": 2}, r"optimizer has no gradient of parameter 'w'"),
    ],
)
def test_another_state_is_refused(make, arrays, options, message, tmp_path):
    path = state_of(make, tmp_path, arrays, **options)
    graph, step = problem()
    optimizer = Adam(graph, 0.1)
    step(0)
    optimizer.update()
    before = optimizer.state["w"]["mean"].copy()
    with pytest.raises(UserError, match=message) as caught:
        optimizer.load(path)
    assert "\n" not in str(caught.value)
    np.testing.assert_array_equal(optimizer.state["w"]["mean"], before)


def test_a_model_is_no_state_and_a_window_of_gradients_keeps_its_length(tmp_path):
    graph, step = problem()
    graph.save(f"{tmp_path}/model")
    with pytest.raises(UserError, match="expected the state of SGD, found none"):
        SGD(graph, 0.1).load(f"{tmp_path}/model")
    np.save(f"{tmp_path}/array.npy", np.zeros(3))
    for name, reason in (("nothing", "No such file"), ("array.npy", "it is not an .npz file")):
        with pytest.raises(UserError, match=f"{name}: no arrays can be read: .*{reason}"):
            SGD(graph, 0.1).load(f"{tmp_path}/{name}")
    optimizer = SGD(graph, 0.1, accumulate=3)
    step(0)
    optimizer.update()
    optimizer.save(f"{tmp_path}/state")
    with pytest.raises(UserError, match="accumulate is 3, expected 2"):
        SGD(graph, 0.1, accumulate=2).load(f"{tmp_path}/state")


@pytest.mark.parametrize("kind", [WarmUp, InverseSquareRoot, Cosine])
@pytest.mark.parametrize("wrong", [0, -3, 1.5, True])
def test_schedules_that_divide_by_zero_are_refused(kind, wrong):
    with pytest.raises(ex.ExpressionError, match=f"{kind.__name__}: the number of updates must"):
        kind(wrong)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -1.0])
def test_factors_that_are_no_numbers_are_refused(wrong):
    for make, name in ((WarmUp, "first"), (Cosine, "last"), (Cosine, "begin")):
        with pytest.raises(ex.ExpressionError, match=f"{make.__name__}: {name} must be in"):
            make(3, **{name: wrong})
    with pytest.raises(TypeError, match="'WarmUp' and 'int'"):
        WarmUp(3) * 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: Adam(g, 0.1, beta2=1.0), r"Adam: beta2 must be in \[0, 1\), found 1.0"),
        (lambda g: Adam(g, 0.1, eps=0.0), r"Adam: eps must be in \(0, inf\), found 0.0"),
        (lambda g: Adagrad(g, 0.1, eps=-1.0), "Adagrad: eps must be"),
        (lambda g: SGD(g, math.nan), "SGD: learning_rate must be"),
        (lambda g: SGD(g, 0.1, momentum=1.5), "SGD: momentum must be"),
        (lambda g: SGD(g, 0.1, accumulate=0), r"SGD: accumulate must be in \[1, inf\), found 0"),
        (lambda g: SGD(g, 0.1, accumulate=2.5), "SGD: accumulate must be an integer, found 2.5"),
        (lambda g: SGD(g, 0.1, schedule=0.5), "SGD: schedule must be a Schedule, found 0.5"),
        (lambda g: AdamW(g, 0.1, weight_decay=-0.1), "AdamW: weight_decay must be"),
        (lambda g: SGD(g, 0.1, clip_norm=-1.0), "SGD: clip_norm must be"),
    ],
)
def test_options_out_of_range_are_refused(make, message):
    with pytest.raises(ex.ExpressionError, match=message):
        make(ex.Graph())


def test_schedules_have_their_values():
    assert [WarmUp(4)(t) for t in (1, 2, 4, 9)] == [0.25, 0.5, 1, 1]
    assert WarmUp(4, first=0.5)(1) == 0.625
    assert [InverseSquareRoot(4)(t) for t in (1, 4, 16)] == [1, 1, 0.5]
    assert [Cosine(2, last=0.5)(t) for t in (1, 2, 3, 9)] == pytest.approx([1, 0.75, 0.5, 0.5])
    both = WarmUp(3) * Cosine(2, begin=3)
    assert [both(t) for t in (1, 2, 3, 4, 5, 6)] == pytest.approx([1 / 3, 2 / 3, 1, 1, 0.5, 0])


def test_updates_are_formulas_that_recordings_can_repeat():
    graph, step = problem()
    optimizer: Optimizer = AdamW(graph, 0.1, clip_element=1.0, smoothing=0.1)
    step(0)
    optimizer.update()
    with Recorder(workspace=Workspace()) as recorder:
        optimizer.update()
    assert [type(call.operator) for call in recorder.calls] == [tensor.Element] * 3

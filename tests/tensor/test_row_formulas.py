"""Formulas that reduce rows: against NumPy, over types, shapes and layouts; in place; refusals."""

import numpy as np
import pytest
from test_tensor_operators import layouts

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.plain import threads

SHAPES = [(5, 7), (1, 4), (3, 1), (0, 4), (4, 0), (700, 130), (2, 70000)]
PLAIN = {"row_sum": np.sum, "row_mean": np.mean, "row_max": np.max, "row_min": np.min}


def data(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("name", PLAIN)
def test_every_reduction_over_every_type(name, dtype, shape):
    x = (3 * data(*shape)).astype(dtype)
    op = tensor.element(f"top = {name}(x); out = (x - top) * 0.5; one = top", "out x one")
    tolerance = {"float16": 2e-3, "float32": 2e-5, "int32": 2e-5}.get(dtype, 1e-10)
    expected = PLAIN[name](x.astype(np.float64), axis=1, keepdims=True) if x.size else None
    for a in layouts(x):
        out, one = np.empty(shape, np.float64), np.full((shape[0], 1), 9.0)
        op(out, a, one)
        if expected is not None:
            size = 1 + np.abs(expected)
            np.testing.assert_allclose(one / size, expected / size, atol=tolerance)
            np.testing.assert_allclose(
                out / size, (x.astype(np.float64) - expected) * 0.5 / size, atol=tolerance
            )


def test_products_squares_and_powers_are_summed_whole():
    x, y, row = data(60, 50), data(60, 50, seed=1), data(50, seed=2)
    column, out = data(60, 1, seed=3), np.empty((60, 1), np.float32)
    for formula, expected in (
        ("row_sum(x * y)", x * y),
        ("row_sum(sqr(x))", x * x),
        ("row_sum(x * row)", x * row),
        ("row_sum(x * column)", x * column),
        ("row_sum(exp(x))", np.exp(x)),
        ("row_sum(x * y) + row_max(x * y)", x * y + (x * y).max(1, keepdims=True) / 50),
        ("row_sum(abs(x) + 0.5)", np.abs(x) + 0.5),
    ):
        op = tensor.element(f"out = {formula}", "out x y row column")
        op(out, x, y, row, column)
        total = expected.astype(np.float64).sum(1, keepdims=True)
        np.testing.assert_allclose(out, total, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(3, 4, 6), (9,), (2, 3, 2, 5)])
def test_any_number_of_axes(shape):
    x, out = data(*shape), np.empty(shape, np.float32)
    tensor.element("out = x / row_sum(abs(x))", "out x")(out, x)
    np.testing.assert_allclose(out, x / np.abs(x).sum(-1, keepdims=True), rtol=1e-5)


def test_results_may_overlap_operands():
    x = data(40, 30)
    op = tensor.element("out = x - row_mean(x) * y", "out x y")
    expected = x - x.mean(1, keepdims=True) * x
    for out, a, b in ((x.copy(),) * 3, (np.empty_like(x), x, x)):
        op(out, a, b)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    wide = np.concatenate([x[:, :1], x], axis=1)
    op(wide[:, :-1], wide[:, 1:], wide[:, 1:])
    np.testing.assert_allclose(wide[:, :-1], expected, rtol=1e-5, atol=1e-6)


def test_threads_change_nothing(monkeypatch):
    x, found = data(3000, 400), []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_num_threads", count)
        out = np.empty_like(x)
        tensor.element("p = exp(x - row_max(x)); out = p / row_sum(p)", "out x")(out, x)
        found.append(out)
    assert np.array_equal(*found)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("out = x * row_sum(column)", "has none"),
        ("out = x * row_sum(2)", "of a plain number"),
        ("column = x - row_max(x)", "one column"),
        ("out = x; row = row_sum(x)", "full shape"),
    ],
)
def test_what_has_no_rows_is_refused(formula, words):
    operands = np.ones((3, 4)), np.ones((3, 4)), np.ones((3, 1)), np.ones(4)
    with pytest.raises(ProgramError, match=words):
        tensor.element(formula, "out x column row")(*operands)


def test_reductions_of_rows_have_no_symbolic_derivative():
    with pytest.raises(ProgramError, match="row_sum has no derivative"):
        F.derivative(F.parse("row_sum(_1)"), F.Placeholder(1))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_derivatives_of_softmax_are_slopes(name):
    forward, backward = getattr(tensor, name), getattr(tensor, f"{name}_backprop")
    x, e, direction = (data(5, 6, seed=s, dtype=np.float64) for s in range(3))
    y, slope, values = np.empty_like(x), np.empty_like(x), []
    for step in (1e-6, -1e-6):
        forward(y, x + step * direction)
        values.append(float((y * e).sum()))
    forward(y, x)
    backward(slope, y, e)
    numeric = (values[0] - values[1]) / 2e-6
    assert float((slope * direction).sum()) == pytest.approx(numeric, rel=1e-6)
    added = x.copy()
    backward(added, y, e, add=True)
    np.testing.assert_allclose(added, x + slope, rtol=1e-12)

"""GRU cells against the cell equations, over types, strides and sizes."""

import numpy as np
import pytest
from test_tensor_operators import layouts

from nnet3tools import tensor
from nnet3tools.tensor.gru import gru_columns
from support.row_operators import reference

WEIGHTS = [(5, 5), (6, 2), (1, 1), (4,), (1,)]
ROWS = [0, 1, 7, 700]


def operands(weights, rows, dtype=np.float64, seed=0):
    """Weights, input, derivative at the output, repair."""
    rng = np.random.default_rng(seed)
    dim = weights[0]
    extra = 0 if len(weights) == 1 or weights[1] == dim else weights[1]
    width = 3 * dim + (weights[1] + extra if len(weights) == 2 else 0)
    shapes = (weights, (rows, width), (rows, 2 * dim), (dim,))
    return [rng.normal(size=s).astype(dtype) for s in shapes]


def cell(w, x):
    """[h, c] by splitting the input into its parts."""
    dim = len(w)
    if w.ndim == 1:
        z, argument, before = np.split(x, 3, axis=1)
        h = np.tanh(argument + w * before)
    else:
        recurrent = w.shape[1]
        sizes = [dim, recurrent, dim, dim] + [recurrent] * (recurrent < dim)
        parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
        z, reset, argument, before = parts[:4]
        h = np.tanh(argument + (reset * parts[-1]) @ w.T)
    return np.hstack([h, (1 - z) * h + z * before])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("rows", ROWS)
def test_cell(dtype, weights, rows):
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    w, x, e, _ = operands(weights, rows, dtype)
    expected = cell(np.asarray(w, np.float64), np.asarray(x, np.float64))
    for of in layouts(x):
        for out in layouts(np.full_like(e, np.nan)):
            tensor.gru_nonlinearity(out, of, w)
            np.testing.assert_allclose(out, expected, tolerance, tolerance)
    reference(tensor.gru_nonlinearity)(out, x, w)
    np.testing.assert_allclose(out, expected, tolerance, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("rows", ROWS)
def test_derivatives_agree_with_the_reference(dtype, weights, rows):
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    w, x, e, row = operands(weights, rows, dtype)
    out = cell(np.asarray(w, np.float64), np.asarray(x, np.float64)).astype(dtype)
    for repair in (None, row):
        got, expected = (np.full((rows, len(w)), np.nan, dtype) for _ in range(2))
        reference(tensor.gru_nonlinearity_backprop)(x, w, out, e, expected, None, repair)
        tensor.gru_nonlinearity_backprop(x, w, out, e, got, None, repair)
        np.testing.assert_allclose(got, expected, tolerance, tolerance)
        for of, to in zip(layouts(x), layouts(np.ones_like(x)), strict=True):
            added = np.ones_like(x)
            to[...] = 1  # two layouts of one row are one array
            tensor.gru_nonlinearity_backprop(of, w, out, e, got, to, repair)
            reference(tensor.gru_nonlinearity_backprop)(x, w, out, e, expected, added, repair)
            np.testing.assert_allclose(got, expected, tolerance, tolerance)
            np.testing.assert_allclose(to, added, tolerance, tolerance)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_derivatives_are_slopes(weights):
    w, x, e, _ = operands(weights, 6)
    out, at_argument, in_deriv = cell(w, x), np.empty((6, len(w))), np.zeros_like(x)
    tensor.gru_nonlinearity_backprop(x, w, out, e, at_argument, in_deriv)
    columns = gru_columns(w)
    if w.ndim == 1:
        w_deriv = (at_argument * columns.cell_of(x)).sum(axis=0)
    else:
        w_deriv = at_argument.T @ (columns.reset_of(x) * columns.state_of(x))
    for place, deriv in ((x, in_deriv), (w, w_deriv)):
        direction, kept, values = (
            np.random.default_rng(4).normal(size=place.shape),
            place.copy(),
            [],
        )
        for step in (1e-6, -1e-6):
            place[...] = kept + step * direction
            made = np.empty_like(out)
            tensor.gru_nonlinearity(made, x, w)
            values.append(float((made * e).sum()))
        place[...] = kept
        slope = (values[0] - values[1]) / 2e-6
        assert float((deriv * direction).sum()) == pytest.approx(slope, rel=1e-7)

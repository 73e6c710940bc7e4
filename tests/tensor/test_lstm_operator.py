"""The LSTM cell against its equations, and its derivatives against differences."""

import numpy as np
import pytest
from test_tensor_operators import layouts

from nnet3tools import tensor
from support.row_operators import reference

SIZES = [(0, 4), (1, 1), (7, 3), (1, 700), (900, 50)]


def operands(rows, dim, dropout, dtype=np.float64):
    """Input, parameters, derivative at the output, repair."""
    rng = np.random.default_rng(0)
    shapes = ((rows, 5 * dim + 3 * dropout), (3, dim), (rows, 2 * dim), (5, dim))
    return [rng.normal(size=s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_cell_and_derivatives_follow_the_equations(size, dropout, dtype):
    x, w, e, repair = operands(*size, dropout, dtype)
    tolerance = 1e-11 if dtype == np.float64 else 2e-5
    expected = np.empty_like(e)
    reference(tensor.lstm_nonlinearity)(expected, x, w)
    for of, out in zip(layouts(x), layouts(np.zeros_like(e)), strict=True):
        tensor.lstm_nonlinearity(out, of, w)
        np.testing.assert_allclose(out, expected, tolerance, tolerance)
        made = [np.ones_like(of), np.ones_like(w), np.ones((5, size[1])), np.ones((5, size[1]))]
        for wanted in ((1, 0, 0, 0), (0, 1, 1, 1), (1, 1, 1, 1)):
            got, exact = (
                [d.copy() if w else None for d, w in zip(made, wanted, strict=True)]
                for _ in range(2)
            )
            tensor.lstm_nonlinearity_backprop(of, w, e, repair, *got)
            reference(tensor.lstm_nonlinearity_backprop)(x, w, e, repair, *exact)
            for a, b in zip(got, exact, strict=True):
                if a is not None:
                    scale = 1 + np.abs(b).max(initial=0.0)
                    np.testing.assert_allclose(a, b, 10 * tolerance, tolerance * scale)


@pytest.mark.parametrize("dropout", [False, True])
def test_derivatives_are_slopes(dropout):
    x, w, e, _ = operands(6, 4, dropout)
    in_deriv, w_deriv = np.empty_like(x), np.empty_like(w)
    tensor.lstm_nonlinearity_backprop(x, w, e, np.zeros((5, 4)), in_deriv, w_deriv)
    for place, deriv in ((x, in_deriv), (w, w_deriv)):
        direction, kept = np.random.default_rng(4).normal(size=place.shape), place.copy()
        if place is x:
            direction[:, 20:] = 0  # nothing is trained through dropout scales
        values = []
        for step in (1e-6, -1e-6):
            place[...] = kept + step * direction
            out = np.empty_like(e)
            tensor.lstm_nonlinearity(out, x, w)
            values.append(float((out * e).sum()))
        place[...] = kept
        slope = (values[0] - values[1]) / 2e-6
        assert float((deriv * direction).sum()) == pytest.approx(slope, rel=1e-7)

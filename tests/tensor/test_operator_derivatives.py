"""Derivatives of operators on rows are the slopes of their values."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.cells import gru_parts


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def assert_slopes(run, out_deriv, places, derivs):
    """The derivatives by `places` of the sum of out_deriv times what `run` writes, by differences.

    `run(out)` reads the arrays `places`.
    """
    for place, deriv in zip(places, derivs, strict=True):
        direction, kept, values = normal(*place.shape, seed=4), place.copy(), []
        for step in (1e-6, -1e-6):
            place[...] = kept + step * direction
            out = np.empty_like(out_deriv)
            run(out)
            values.append(float((out * out_deriv).sum()))
        place[...] = kept
        slope = (values[0] - values[1]) / 2e-6
        assert float((deriv * direction).sum()) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("centred", [True, False])
def test_layer_norm(centred):
    places = x, scale, _ = 3 + normal(6, 5), normal(5, seed=2), normal(5, seed=3)
    e, derivs = normal(6, 5, seed=1), [np.zeros_like(a) for a in places]
    tensor.layer_norm_backprop(x, e, scale, 0.2, *derivs, centred=centred)
    assert_slopes(lambda out: tensor.layer_norm(out, *places, 0.2, centred), e, places, derivs)


def test_row_normalisation():
    x, e, deriv = normal(5, 6), normal(5, 7, seed=1), np.zeros((5, 6))
    tensor.diff_normalize_per_row(deriv, x, e, 0.7, True)
    assert_slopes(lambda out: tensor.normalize_per_row(out, x, 0.7, True), e, [x], [deriv])


def test_batch_norm():
    x, e, deriv, stats = normal(9, 4), normal(9, 4, seed=1), np.empty((9, 4)), np.empty((3, 4))
    value = np.empty_like(x)
    tensor.batch_norm(value, stats, x, 0.01, 0.7)
    tensor.batch_norm_backprop(deriv, value, e, stats[2].copy(), 0.7)
    assert_slopes(lambda out: tensor.batch_norm(out, stats, x, 0.01, 0.7), e, [x], [deriv])


@pytest.mark.parametrize("dropout", [0, 3])
def test_lstm(dropout):
    whole, w, e = normal(6, 20 + dropout), normal(3, 4, seed=1), normal(6, 8, seed=2)
    in_deriv, w_deriv = np.empty_like(whole), np.empty_like(w)
    tensor.lstm_nonlinearity_backprop(whole, w, e, np.zeros((5, 4)), in_deriv, w_deriv)
    places, derivs = [whole[:, :20], w], [in_deriv[:, :20], w_deriv]  # scales are not trained
    assert_slopes(lambda out: tensor.lstm_nonlinearity(out, whole, w), e, places, derivs)
    assert not in_deriv[:, 20:].any()


@pytest.mark.parametrize(
    ("weights", "width"), [((5, 5), 20), ((6, 2), 22), ((1, 1), 4), ((4,), 12)]
)
def test_gru(weights, width):
    w, x, e = normal(*weights), normal(6, width, seed=1), normal(6, 2 * weights[0], seed=2)
    out, at_argument, in_deriv = np.empty_like(e), np.empty((6, len(w))), np.zeros_like(x)
    tensor.gru_nonlinearity(out, x, w)
    tensor.gru_nonlinearity_backprop(x, w, out, e, at_argument, in_deriv)
    parts = gru_parts(x, w)
    if w.ndim == 1:
        w_deriv = (at_argument * parts.cell).sum(axis=0)
    else:
        w_deriv = at_argument.T @ (parts.reset * parts.state)
    assert_slopes(lambda out: tensor.gru_nonlinearity(out, x, w), e, [x, w], [in_deriv, w_deriv])

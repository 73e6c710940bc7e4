"""Batch normalisation as an operator, forward and backward."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.plain import threads
from support.row_operators import reference


def strided(array):
    """The same numbers as columns of a wider matrix."""
    wide = np.full((array.shape[0], array.shape[1] + 5), 99, array.dtype)
    view = wide[:, 2 : 2 + array.shape[1]]
    view[...] = array
    return view


def forward(x, operator, epsilon=0.01, target_rms=0.7, out=None):
    out = np.empty_like(x) if out is None else out
    stats = np.empty((3, x.shape[1]), x.dtype)
    operator(out, stats, x, epsilon, target_rms)
    return out, stats


SHAPES = [(1, 1), (1, 7), (127, 3), (128, 40), (129, 40), (1000, 33), (300, 1500), (5, 70000)]


@pytest.mark.parametrize("layout", [np.ascontiguousarray, strided])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [*SHAPES, (0, 4), (3, 0)])
def test_batch_norm_follows_its_equations(shape, dtype, layout):
    rng = np.random.default_rng(0)
    x, e = (layout((rng.normal(size=shape) + 2).astype(dtype)) for _ in range(2))
    tolerance = (
        {"rtol": 2e-5, "atol": 2e-5} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-12}
    )
    out, stats = forward(x, tensor.batch_norm)
    expected, expected_stats = forward(x, reference(tensor.batch_norm))
    np.testing.assert_allclose(out, expected, **tolerance)
    np.testing.assert_allclose(stats, expected_stats, **tolerance)
    got, expected = np.empty_like(x), np.empty_like(x)
    tensor.batch_norm_backprop(got, out, e, stats[2], 0.7)
    reference(tensor.batch_norm_backprop)(expected, out, e, stats[2], 0.7)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5)


def test_batch_norm_in_place():
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, 300, 40)).astype(np.float32)
    out, stats = forward(x, tensor.batch_norm)
    same = x.copy()
    forward(same, tensor.batch_norm, out=same)
    assert np.array_equal(same, out)
    expected = np.empty_like(x)
    tensor.batch_norm_backprop(expected, out, e, stats[2], 0.7)
    for operands in ((out.copy(), e), (out, e.copy())):
        in_deriv = operands[0] if operands[0] is not out else operands[1]
        tensor.batch_norm_backprop(in_deriv, *operands, stats[2], 0.7)
        assert np.array_equal(in_deriv, expected)


def test_derivative_of_batch_norm_is_that_of_finite_differences():
    rng = np.random.default_rng(0)
    x, e = rng.normal(size=(2, 9, 4))
    out, stats = forward(x, tensor.batch_norm)
    slope = np.empty_like(x)
    tensor.batch_norm_backprop(slope, out, e, stats[2], 0.7)
    step = 1e-6
    for at in np.ndindex(x.shape):
        values = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            values.append((forward(moved, tensor.batch_norm)[0] * e).sum())
        assert slope[at] == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-7)


def test_large_means_do_not_swallow_small_deviations():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(5000, 20)) * 0.1 + np.linspace(-1000, 1000, 20)).astype(np.float32)
    x[:, 3] = 0.0
    x[:, 4] = 123.0
    exact = np.float64(x)
    out, stats = forward(x, tensor.batch_norm, epsilon=1e-4)
    np.testing.assert_allclose(stats[0], exact.mean(axis=0), rtol=1e-6)
    scale = 0.7 / np.sqrt(exact.var(axis=0) + 1e-4)
    np.testing.assert_allclose(stats[2], scale, rtol=1e-4)
    # what is left is the rounding of the mean
    np.testing.assert_allclose(out, (exact - exact.mean(axis=0)) * scale, atol=5e-4)


def test_numbers_that_are_not_finite_stay_in_their_column():
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    x[7, 1] = np.nan
    out, _ = forward(x, tensor.batch_norm)
    assert np.isfinite(out[:, [0, 2]]).all()
    assert np.isnan(out[:, 1]).all()


def test_batch_norm_does_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(0)
    x, e = (rng.normal(size=(2, 3000, 512)) + 1).astype(np.float32)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_num_threads", count)
        out, stats = forward(x, tensor.batch_norm)
        slope = np.empty_like(x)
        tensor.batch_norm_backprop(slope, out, e, stats[2], 0.7)
        found.append((out, stats, slope))
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)

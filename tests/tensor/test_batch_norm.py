"""Batch normalisation as an operator, forward and backward."""

import numpy as np

from nnet3tools import tensor
from nnet3tools.tensor.plain import threads


def forward(x, operator, epsilon=0.01, target_rms=0.7, out=None):
    out = np.empty_like(x) if out is None else out
    stats = np.empty((3, x.shape[1]), x.dtype)
    operator(out, stats, x, epsilon, target_rms)
    return out, stats


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

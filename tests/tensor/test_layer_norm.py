"""Layer norm and RMS norm of rows with a large mean, and by two threads."""

import numpy as np
import pytest

from nnet3tools import tensor


def data(*shape, seed=0, dtype=np.float64):
    return (3 + np.random.default_rng(seed).normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("centred", [True, False])
def test_a_large_mean_does_not_cancel(centred):
    """One pass over sums of squares would lose all of the variance."""
    x = (1000 + data(4, 300)).astype(np.float32)
    out = np.empty_like(x)
    tensor.layer_norm(out, x, centred=centred)
    exact = np.float64(x)
    value = exact - exact.mean(1, keepdims=True) if centred else exact
    expected = value / np.sqrt((value**2).mean(1, keepdims=True))
    np.testing.assert_allclose(out, expected, 1e-3, 1e-3)


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    from nnet3tools.tensor.plain import threads

    x, e = data(3000, 200, dtype=np.float32), data(3000, 200, seed=1, dtype=np.float32)
    found = []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_num_threads", count)
        derivs = [np.zeros(n, np.float32) for n in (x.shape, 200, 200)]
        run = tensor.layer_norm_backprop.bind(x, e, None, 1e-3, *derivs)
        run()
        run()
        found.append(derivs)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)

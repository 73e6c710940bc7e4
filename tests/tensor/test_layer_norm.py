"""Layer norm and RMS norm against plain formulas in float64, over types, strides and sizes."""

import itertools

import numpy as np
import pytest
from test_tensor_operators import layouts

from nnet3tools import tensor
from support.row_operators import reference

SHAPES = [(5, 7), (1, 4), (3, 1), (0, 4), (4, 0), (700, 130), (1, 40000)]


def data(*shape, seed=0, dtype=np.float64):
    return (3 + np.random.default_rng(seed).normal(size=shape)).astype(dtype)


def plain(centred, x, scale, offset, eps):
    """The value, from NumPy's own mean and variance."""
    x = np.float64(x)
    if centred:
        n = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps)
    else:
        n = x / np.sqrt((x**2).mean(1, keepdims=True) + eps)
    return n * (1 if scale is None else scale) + (0 if offset is None else offset)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_value(centred, dtype, shape):
    tolerance = 1e-10 if dtype == np.float64 else 2e-4
    scale, offset = data(shape[1], seed=1, dtype=dtype), data(shape[1], seed=2, dtype=dtype)
    rows = list(itertools.product((None, scale), (None, offset)))
    for (a, b), eps in zip(rows, (1e-9, 0.1, 1e-3, 1e-5), strict=True):
        for x in layouts(data(*shape, dtype=dtype)):
            expected = plain(centred, x, a, b, eps) if x.size else x
            for out in layouts(np.full(shape, np.nan, dtype)):
                tensor.layer_norm(out, x, a, b, eps, centred)
                np.testing.assert_allclose(out, expected, tolerance, tolerance)
            if x.size:
                reference(tensor.layer_norm)(out, x, a, b, eps, centred)
                np.testing.assert_allclose(out, expected, tolerance, tolerance)
            tensor.layer_norm(x, x, a, b, eps, centred)
            np.testing.assert_allclose(x, expected, tolerance, tolerance)


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_derivatives_agree_with_the_reference_and_are_added(centred, dtype, shape):
    tolerance = 1e-9 if dtype == np.float64 else 1e-3
    operator, options = tensor.layer_norm_backprop, {"centred": centred}
    scale = data(shape[1], seed=1, dtype=dtype)
    for x, wanted in itertools.product(
        layouts(data(*shape, dtype=dtype)), itertools.product((False, True), repeat=3)
    ):
        e = data(*shape, seed=2, dtype=dtype)
        for factor in (None, scale):
            made = [np.ones(n, dtype) for n in (shape, shape[1], shape[1])]
            got = [d.copy() if w else None for d, w in zip(made, wanted, strict=True)]
            expected = [d.copy() if w else None for d, w in zip(made, wanted, strict=True)]
            operator(x, e, factor, 1e-3, *got, **options)
            if x.size:
                reference(operator)(x, e, factor, 1e-3, *expected, **options)
            if wanted[0] and x.size:
                added, set_ = got[0], np.full_like(got[0], np.nan)
                operator(x, e, factor, 1e-3, set_, add=False, **options)
                size = 1 + np.abs(added).max()
                np.testing.assert_allclose(set_, added - 1, tolerance, tolerance * size)
                reference(operator)(x, e, factor, 1e-3, set_, add=False, **options)
                np.testing.assert_allclose(set_, added - 1, tolerance, tolerance * size)
            for a, b in zip(got, expected, strict=True):
                if a is not None:
                    size = 1 + np.abs(b).max(initial=0.0)
                    np.testing.assert_allclose(a, b, tolerance, tolerance * size)


@pytest.mark.parametrize("centred", [True, False])
def test_derivatives_are_slopes(centred):
    x, e, scale, offset = data(6, 5), data(6, 5, seed=1), data(5, seed=2), data(5, seed=3)
    operands = {"x": x, "scale": scale, "offset": offset}
    derivs = {n: np.zeros_like(a) for n, a in operands.items()}
    tensor.layer_norm_backprop(x, e, scale, 0.2, *derivs.values(), centred=centred)
    for n, a in operands.items():
        direction, values = data(*a.shape, seed=4), []
        for step in (1e-6, -1e-6):
            out = np.empty((6, 5))
            values_now = {**operands, n: a + step * direction}.values()
            tensor.layer_norm(out, *values_now, 0.2, centred)
            values.append(float((out * e).sum()))
        slope = (values[0] - values[1]) / 2e-6
        assert float((derivs[n] * direction).sum()) == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("centred", [True, False])
def test_a_large_mean_does_not_cancel(centred):
    """One pass over sums of squares would lose all of the variance."""
    x = (1000 + data(4, 300)).astype(np.float32)
    out = np.empty_like(x)
    tensor.layer_norm(out, x, centred=centred)
    np.testing.assert_allclose(out, plain(centred, x, None, None, 1e-9), 1e-3, 1e-3)


def test_sums_do_not_depend_on_the_number_of_threads():
    from nnet3tools.tensor.plain import threads

    x, e = data(3000, 200, dtype=np.float32), data(3000, 200, seed=1, dtype=np.float32)
    found, before = [], threads.num_threads()
    for count in (1, 2):
        threads.set_num_threads(count)
        derivs = [np.zeros(n, np.float32) for n in (x.shape, 200, 200)]
        run = tensor.layer_norm_backprop.bind(x, e, None, 1e-3, *derivs)
        run()
        run()
        found.append(derivs)
    threads.set_num_threads(before)
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)

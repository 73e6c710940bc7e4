"""Aggregate against float64 formulas, over reductions, axes, types, strides and sizes."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from support.tensor_reference import evaluate

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")


def plain(reduce, values, axis):
    if reduce == "logsumexp":
        top = values.max(axis=axis, keepdims=True)
        total = np.log(np.exp(values - top).sum(axis=axis, keepdims=True)) + top
        return total.reshape(values.sum(axis=axis).shape)
    return getattr(np, reduce)(values, axis=axis)


def strided(array):
    wide = np.zeros((array.shape[0], array.shape[1] + 3), array.dtype)
    wide[:, 1:-2] = array
    return wide[:, 1:-2]


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("shape", [(7, 5), (1, 5), (7, 1), (500, 300), (3, 40000)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions(reduce, axis, shape, dtype):
    rng = np.random.default_rng(0)
    spread = 0.01 if reduce == "prod" else 1.0
    x = (spread * rng.normal(size=shape) + (1 if reduce == "prod" else 0)).astype(dtype)
    row = rng.normal(size=shape[1]).astype(dtype) * spread
    formula = "_1 + _2 * _3"
    expected = plain(reduce, evaluate(F.parse(formula), [x, row, 0.5]), axis)
    op = tensor.aggregate(formula, reduce, axis=axis)
    tolerance = {
        "rtol": 1e-4 if reduce == "prod" else 2e-5,
        "atol": 2e-4 * np.sqrt(x.size / 100 + 1),
    }
    if axis is None:
        np.testing.assert_allclose(op(strided(x), row, 0.5), expected, **tolerance)
        return
    for given in (x, strided(x), x.T.copy().T):
        for out_dtype in ("float32", "float64"):
            out = np.full(expected.shape, np.nan, out_dtype)
            op(out, given, row, 0.5)
            np.testing.assert_allclose(out, expected, **tolerance)
            out[...] = 1.0
            kept = np.expand_dims(out, axis)
            op(kept, given, row, 0.5, alpha=2.0, beta=0.5)
            np.testing.assert_allclose(out, 2.0 * expected + 0.5, **tolerance)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_stacks_reduce_over_any_axis(axis):
    x = np.random.default_rng(0).normal(size=(40, 30, 50)).astype(np.float32)
    expected = (x.astype(float) ** 2).sum(axis=axis)
    out = np.empty(expected.shape, np.float32)
    tensor.aggregate("sqr(_1)", "sum", axis=axis)(out, x)
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_float32_sums_of_many_numbers_stay_accurate():
    x = np.full((1 << 20, 4), 0.1, np.float32)
    out = np.empty(4, np.float32)
    tensor.aggregate("_1", "sum", axis=0)(out, x)
    np.testing.assert_allclose(out, 104857.6, rtol=1e-6)
    assert tensor.aggregate("_1", "mean", axis=None)(x) == pytest.approx(0.1, rel=1e-6)


def test_bool_and_integers_are_counted_exactly():
    x = np.arange(-500, 500, dtype=np.int32)
    assert tensor.aggregate("_1 > 0", "sum", axis=None)(x) == 499.0
    assert tensor.aggregate("_1 * 1000000", "sum", axis=None)(x[:100]) < -(2**31)
    assert tensor.aggregate("_1", "max", axis=None)(x) == 499.0
    flags = np.array([[True, False], [True, True]])
    out = np.empty(2, np.float32)
    tensor.aggregate("_1", "sum", axis=0)(out, flags)
    assert out.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(("reduce", "expected"), [("sum", 0.0), ("prod", 1.0)])
def test_reduction_of_nothing(reduce, expected):
    out = np.full(3, 9.0, np.float32)
    tensor.aggregate("_1", reduce, axis=0)(out, np.zeros((0, 3), np.float32))
    assert (out == expected).all()
    assert tensor.aggregate("_1", reduce, axis=None)(np.zeros((0, 3), np.float32)) == expected


def test_maximum_of_nothing_is_refused():
    with pytest.raises(ProgramError, match="nothing"):
        tensor.aggregate("_1", "max", axis=0)(np.zeros(3), np.zeros((0, 3)))


def test_logsumexp_of_infinities():
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [1000.0, 1000.0]], np.float32)
    out = np.empty(3, np.float32)
    tensor.aggregate("_1", "logsumexp", axis=1)(out, x)
    np.testing.assert_allclose(out, [-np.inf, np.inf, 1000 + np.log(2)])


def test_beta_zero_does_not_read_the_output():
    out = np.full(2, np.nan, np.float32)
    tensor.aggregate("_1", "sum", axis=0)(out, np.ones((3, 2), np.float32), beta=0.0)
    assert out.tolist() == [3.0, 3.0]


def test_bound_aggregates_of_one_plan_do_not_disturb_each_other():
    op = tensor.aggregate("_1", "sum", axis=0)
    a, b = np.ones((4, 2), np.float32), np.full((4, 2), 5.0, np.float32)
    out_a, out_b = np.zeros(2, np.float32), np.zeros(2, np.float32)
    run_a, run_b = op.bind(out_a, a), op.bind(out_b, b)
    run_a()
    run_b()
    assert (out_a[0], out_b[0]) == (4.0, 20.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: tensor.aggregate("_1", "median", axis=0), "unknown reduction 'median'"),
        (lambda x: tensor.aggregate("_1 + _3", axis=0)(x[0].copy(), x, x), "was given 2"),
        (lambda x: tensor.aggregate("_1", axis=2)(x, x), "axis 2"),
        (lambda x: tensor.aggregate("_1", axis=0)(np.zeros(7, np.float32), x), "does not fit"),
        (lambda x: tensor.aggregate("_1 + _2", axis=0)(x[0], x, x.T), "broadcast"),
    ],
)
def test_what_does_not_fit(call, words):
    with pytest.raises(ProgramError, match=words):
        call(np.zeros((3, 4), np.float32))

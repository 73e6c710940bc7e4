"""Operators that only Marian has, compared with plain formulas and finite differences."""

import itertools

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools.expression.formula import Formula
from support.expression_checks import check, normal, run
from support.marian_operators import sig, sparse

X, CUBE = normal(4, 3), normal(2, 3, 4, seed=7)


def accumulate(x, axis, reverse, exclusive):
    x = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    sums = np.logaddexp.accumulate(x, 0)
    if exclusive:
        sums = np.concatenate([np.full_like(sums[:1], -np.inf), sums[:-1]])
    return np.moveaxis(sums[:: -1 if reverse else 1], 0, axis)


@pytest.mark.parametrize(("reverse", "exclusive"), [*itertools.product([False, True], repeat=2)])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_logcumsumexp(axis, reverse, exclusive):
    for x in (X, CUBE, normal(7, 1), normal(1, 9)):
        value, _ = run(lambda a: ex.logcumsumexp(a, axis, reverse, exclusive), [x])
        np.testing.assert_allclose(value, accumulate(x, axis, reverse, exclusive), 1e-12)
        if not exclusive:
            check(
                lambda a: ex.logcumsumexp(a, axis, reverse),
                lambda a: accumulate(a, axis, reverse, False),
                x,
            )
    inner = np.s_[1:] if not reverse else np.s_[:-1]
    check(
        lambda a: ex.slice_(
            ex.logcumsumexp(a, 1, reverse, True), 1, 0 if reverse else 1, -1 if reverse else None
        ),
        lambda a: accumulate(a, 1, reverse, True)[:, inner],
        CUBE[0],
    )


def test_logcumsumexp_of_large_numbers():
    x = np.array([[1000.0, -1000.0, 1001.0, -np.inf, 999.0], [-np.inf, -np.inf, 3.0, -5000.0, 1.0]])
    for kind in (np.float32, np.float64):
        value, (grad,) = run(lambda a: ex.logcumsumexp(a), [x.astype(kind)], np.ones_like(x, kind))
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(value, np.logaddexp.accumulate(x, 1), 1e-6)
        assert np.isfinite(grad[0, :3]).all()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sparsemax(axis):
    for x in (X, CUBE, X * 5, X + 1e3):
        check(lambda a: ex.sparsemax(a, axis), lambda a: sparse(a, axis), x, tolerance=1e-5)
        value, _ = run(lambda a: ex.sparsemax(a, axis), [x])
        np.testing.assert_allclose(value.sum(axis), 1.0)
    assert (run(ex.sparsemax, [X * 5])[0] == 0).any()
    half, _ = run(ex.sparsemax, [X.astype(np.float16)])
    np.testing.assert_allclose(half, sparse(X, -1), 0, 3e-3)


def pool(x, function, size, pads, strides, value):
    wide = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in pads)), constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(wide, size, (2, 3))
    return function(windows[:, :, :: strides[0], :: strides[1]], (-2, -1))


@pytest.mark.parametrize(
    ("size", "pads", "strides"),
    [((2, 2), (0, 0), (2, 2)), ((3, 2), (1, 0), (2, 1)), ((2, 3), (1, 2), (1, 3))],
)
def test_pooling(size, pads, strides):
    x = normal(2, 3, 5, 7)
    check(
        lambda a: ex.max_pooling(a, *size, pads, strides),
        lambda a: pool(a, np.max, size, pads, strides, -np.inf),
        x,
    )
    check(
        lambda a: ex.avg_pooling(a, *size, pads, strides),
        lambda a: pool(a, np.mean, size, pads, strides, 0.0),
        x,
    )


def test_pooling_refuses_windows_that_do_not_fit():
    g = ex.Graph()
    x = g.input("x", (2, 3))
    for size, pads, strides in (
        ((3, 1), (0, 0), None),
        ((1, 1), (1, 0), None),
        ((1, 1), (0, 0), (0, 1)),
    ):
        with pytest.raises(ex.ExpressionError, match="pooling"):
            ex.max_pooling(x, *size, pads, strides)
    for width in (0, -1):
        with pytest.raises(ex.ExpressionError, match="pooling_with_masking"):
            ex.pooling_with_masking(x, x, width)


@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3, 9])
def test_pooling_with_masking(width, is_even):
    x, mask = normal(2, 3, 7), (normal(1, 1, 7, seed=5) > -0.5).astype(float)

    def formula(a, m):
        masked = (a * m)[..., : 7 - is_even]
        starts = range(0, masked.shape[-1], width)
        return np.stack([masked[..., i : i + width].max(-1) for i in starts], -1)

    value, _ = run(lambda a, m: ex.pooling_with_masking(a, m, width, is_even), [x, mask])
    np.testing.assert_allclose(value, formula(x, mask))
    check(
        lambda a: ex.pooling_with_masking(a, mask + 0 * a, width, is_even),
        lambda a: formula(a, mask),
        x + np.arange(7),  # no ties
    )


@pytest.mark.parametrize(
    ("lead_a", "lead_b"),
    [((2, 1), (1, 3)), ((5,), (2, 5)), ((2, 3), (3,)), ((1,), ()), ((4, 1), (1,))],
)
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, True)])
def test_batched_products_broadcast(lead_a, lead_b, trans_a, trans_b):
    a, b = normal(*lead_a, 2, 3), normal(*lead_b, 3, 4, seed=2)
    a = np.swapaxes(a, -1, -2).copy() if trans_a else a
    b = np.swapaxes(b, -1, -2).copy() if trans_b else b
    check(
        lambda a, b: ex.bdot(a, b, trans_a, trans_b, 0.5),
        lambda a, b: 0.5
        * (np.swapaxes(a, -1, -2) if trans_a else a)
        @ (np.swapaxes(b, -1, -2) if trans_b else b),
        a,
        b,
    )


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
@pytest.mark.parametrize("lead", [(2,), (2, 3)])
def test_products_of_more_than_two_axes(trans_a, trans_b, lead):
    a = normal(*lead, *((3, 5) if trans_a else (5, 3)))
    b = normal(*((4, 3) if trans_b else (3, 4)), seed=2)[None]

    def product(a, b):
        return (np.swapaxes(a, -1, -2) if trans_a else a) @ (
            np.swapaxes(b, -1, -2) if trans_b else b
        ).reshape(3, 4)

    check(lambda a, b: ex.dot(a, b, trans_a, trans_b), product, a, b)
    check(
        lambda a, b, c: ex.affine(a, b, c, trans_a, trans_b),
        lambda a, b, c: product(a, b) + c,
        a,
        b,
        normal(1, 4, seed=3),
    )


def test_gather_broadcasts_its_indexes():
    at = np.array([[[2], [0]]], np.int32)  # 1 x 2 x 1, of 2 x 3 x 4 along axis 1
    check(
        lambda a, i: ex.gather(a, 1, i),
        lambda a, i: np.take_along_axis(a, np.broadcast_to(i, (2, 2, 4)), 1),
        CUBE,
        at,
    )


def test_sparse_products_take_unsigned_indexes():
    g = ex.Graph()
    b = g.input("b", (4, 2), ex.Type.FLOAT64)
    at, starts = (g.constant(np.array(v, np.uint32)) for v in ([1, 3, 0], [0, 2, 3]))
    y = ex.csr_dot((2, 4), g.constant(np.array([1.0, 2.0, 3.0])), at, starts, b)
    data = normal(4, 2)
    g.forward(y, b=data)
    np.testing.assert_allclose(y.value, [[0, 1, 0, 2], [3, 0, 0, 0]] @ data)


def test_defaults_and_many_operands():
    check(ex.tanh, lambda a, b, c: np.tanh(a + b + c), X, normal(1, 3), normal(4, 1))
    check(lambda x: ex.average(x, 1), lambda x: x.mean(1, keepdims=True), X)
    g = ex.Graph()
    x = g.input("x", (4, 3))
    for text, node in {
        "prelu(x)": ex.prelu(x), "sqrt(x, 0.1)": ex.sqrt(x, 0.1), "tanh(x, x)": ex.tanh(x, x),
        "sparsemax(x)": ex.sparsemax(x), "logcumsumexp(x, axis=0)": ex.logcumsumexp(x, 0),
    }.items():  # fmt: skip
        assert Formula(text).build(g, {"x": x}) is node or "sparse" in text
    assert ex.sqrt(x, 0) is ex.sqrt(x)


def test_affine_with_relu_and_dropout():
    w, b = normal(3, 5, seed=2), normal(1, 5, seed=3)
    check(ex.affine_relu_dropout, lambda x, w, b: np.maximum(x @ w + b, 0), X, w, b)
    full = np.maximum(X @ w + b, 0)
    value, (grad, _, _) = run(
        lambda x, w, b: ex.affine_relu_dropout(x, w, b, 0.4), [X, w, b], np.ones((4, 5))
    )
    dropped = value == 0
    np.testing.assert_allclose(value[~dropped], full[~dropped] / 0.6)
    assert (dropped & (full > 0)).any()
    np.testing.assert_allclose(grad, (value > 0) @ w.T / 0.6)
    value, _ = run(lambda x, w, b: ex.affine_relu_dropout(x, w, b, 0.4), [X, w, b], inference=True)
    np.testing.assert_allclose(value, full)


STATE, MASK = normal(4, 2, seed=8), np.array([[1.0], [0.0], [1.0], [1.0]])


@pytest.mark.parametrize("final", [False, True])
def test_gru(final):
    def formula(state, x, s, b, m):
        (xr, xz, xh), (sr, sz, sh), (br, bz, bh) = (np.split(v, 3, -1) for v in (x, s, b))
        r, z = sig(xr + sr + br), sig(xz + sz + bz)
        h = np.tanh(xh + (sh + bh) * r if final else xh + sh * r + bh)
        return m * ((1 - z) * h + z * state) + (1 - m) * state

    check(
        lambda *a: ex.gru(*a, final=final),
        formula, STATE, normal(4, 6), normal(4, 6, seed=2), normal(1, 6, seed=3), MASK,
    )  # fmt: skip


def test_lstm():
    def cell(c, x, s, b, m):
        f, i, g, _ = np.split(x + s + b, 4, -1)
        return m * (sig(f) * c + sig(i) * np.tanh(g)) + (1 - m) * c

    parts = STATE, normal(4, 8), normal(4, 8, seed=2), normal(1, 8, seed=3)
    check(ex.lstm_cell, cell, *parts, MASK)
    g = ex.Graph()
    with pytest.raises(ex.ExpressionError, match="lstm_cell: the operands do not fit"):
        ex.lstm_cell(*(g.input(n, (2, 3)) for n in "abcd"))


def test_ssru():
    def step(c, x, f):
        return sig(f) * c + (1 - sig(f)) * x

    parts = STATE, normal(4, 2), normal(4, 2, seed=2)
    check(lambda *a: ex.ssru(*a)[1], step, *parts)
    check(lambda *a: ex.ssru(*a)[0], lambda *a: np.maximum(step(*a), 0), *parts)
    check(lambda *a: ex.ssru(*a)[1], lambda c, x, f, m: m * step(c, x, f), *parts, MASK)

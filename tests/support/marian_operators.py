"""Marian's operators by its own names: how ours are called, and the same as a NumPy formula."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnet3tools import expression as ex
from support.expression_checks import normal


class Trial(NamedTuple):
    """Ours, the formula, and the operands."""

    build: Callable[..., Any]
    formula: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]


X, Y, Z = normal(4, 3), normal(4, 3, seed=2), normal(4, 3, seed=3)
P = np.abs(X) + 0.1
CUBE, W, B = normal(2, 3, 4, seed=7), normal(3, 5, seed=8), normal(1, 5, seed=9)
AT = np.array([[2, 0, 1], [0, 0, 2]], np.int32)
LABELS = np.array([2, 0, 1, 1], np.int32)
MASK = np.array([[1.0, 1.0, 0.0]])
GATES = normal(4, 12, seed=4)
erf = np.vectorize(math.erf)


def sig(x):
    return 1 / (1 + np.exp(-x))


def smax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def entropy(x, labels):
    return -np.log(smax(x))[np.arange(len(x)), labels][:, None]


def sparse(x, axis=-1):
    def line(z):
        ordered = np.sort(z)[::-1]
        k = np.arange(1, len(z) + 1)
        size = k[1 + k * ordered > np.cumsum(ordered)].max()
        return np.maximum(z - (ordered[:size].sum() - 1) / size, 0)

    return np.apply_along_axis(line, axis, x)


def normed(x, g, b, mean=True):
    x = x - x.mean(-1, keepdims=True) if mean else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-9) * g + b


def gru(state, x, s, b):
    (xr, xz, xh), (sr, sz, sh), (br, bz, bh) = (np.split(v, 3, -1) for v in (x, s, b))
    r, z = sig(xr + sr + br), sig(xz + sz + bz)
    return (1 - z) * np.tanh(xh + sh * r + bh) + z * state


def lstm_cell(c, x, s, b):
    f, i, g, _ = np.split(x + s + b, 4, -1)
    return sig(f) * c + sig(i) * np.tanh(g)


def scattered(x, source):
    out = x.copy()
    out[[2, 0, 1], [0, 1, 2]] = source[0]
    return out


def sparse_matrix(node):
    g = node.graph
    values = g.constant(np.array([1.0, 2.0, 3.0]), node.type)
    return (2, 4), values, g.constant([1, 3, 0]), g.constant([0, 2, 3])


DENSE = np.array([[0.0, 1, 0, 2], [3, 0, 0, 0]])


def compared(kind):
    return lambda a, b: ex.where(kind(a, b), a, b * 2)


def times(a):
    """A node's gradient is looked at through a product."""
    return a * a


TRIALS = {
    "debug": Trial(ex.debug, lambda x: x, (X,)),
    "checkpoint": Trial(lambda x: ex.checkpoint(ex.exp(x)), np.exp, (X,)),
    "callback": Trial(lambda x: times(ex.callback(x, lambda v: None)), np.square, (X,)),
    "plus": Trial(lambda a, b, c: a + b + c, lambda a, b, c: a + b + c, (X, Y, Z)),
    "sigmoid": Trial(ex.sigmoid, sig, (X,)),
    "swish": Trial(ex.swish, lambda x: x * sig(x), (X,)),
    "gelu": Trial(ex.gelu, lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), (X,)),
    "tanh": Trial(ex.tanh, lambda a, b: np.tanh(a + b), (X, Y)),
    "relu": Trial(ex.relu, lambda x: np.maximum(x, 0), (X,)),
    "leakyrelu": Trial(ex.leaky_relu, lambda x: np.where(x > 0, x, 0.01 * x), (X,)),
    "prelu": Trial(ex.prelu, lambda x: np.where(x > 0, x, 0.01 * x), (X,)),
    "log": Trial(ex.log, np.log, (P,)),
    "exp": Trial(ex.exp, np.exp, (X,)),
    "sin": Trial(ex.sin, np.sin, (X,)),
    "cos": Trial(ex.cos, np.cos, (X,)),
    "tan": Trial(ex.tan, np.tan, (X * 0.4,)),
    "operator-": Trial(lambda a, b: -a - b - 1, lambda a, b: -a - b - 1, (X, Y)),
    "operator+": Trial(lambda a, b: a + b + 1, lambda a, b: a + b + 1, (X, Y)),
    "operator*": Trial(lambda a, b: a * b * 2, lambda a, b: a * b * 2, (X, Y)),
    "operator/": Trial(lambda a, b: a / b / 2, lambda a, b: a / b / 2, (X, P)),
    "sqrt": Trial(lambda x: ex.sqrt(x, 0.1), lambda x: np.sqrt(x + 0.1), (P,)),
    "square": Trial(ex.sqr, np.square, (X,)),
    "abs": Trial(ex.abs_, np.abs, (X,)),
    "pow": Trial(ex.pow_, np.power, (P, Y)),
    "logaddexp": Trial(ex.logaddexp, np.logaddexp, (X, Y)),
    "maximum": Trial(ex.maximum, np.maximum, (X, Y)),
    "minimum": Trial(ex.minimum, np.minimum, (X, Y)),
    "topk": Trial(lambda x: ex.topk(x, 2, 1)[0], lambda x: -np.sort(-x, 1)[:, :2], (X,)),
    "argmax": Trial(lambda x: ex.argmax(x, 1)[0], lambda x: x.max(1, keepdims=True), (X,)),
    "argmin": Trial(lambda x: ex.argmin(x, 1)[0], lambda x: x.min(1, keepdims=True), (X,)),
    "sort": Trial(lambda x: ex.sort(x, 1, False)[0], lambda x: np.sort(x, 1), (X,)),
    "cumsum": Trial(lambda x: ex.cumsum(x, 0), lambda x: np.cumsum(x, 0), (X,)),
    "logcumsumexp": Trial(ex.logcumsumexp, lambda x: np.logaddexp.accumulate(x, 1), (X,)),
    "lt": Trial(compared(ex.lt), lambda a, b: np.where(a < b, a, b * 2), (X, Y)),
    "eq": Trial(compared(ex.eq), lambda a, b: np.where(a == b, a, b * 2), (X, Y)),
    "gt": Trial(compared(ex.gt), lambda a, b: np.where(a > b, a, b * 2), (X, Y)),
    "ge": Trial(compared(ex.ge), lambda a, b: np.where(a >= b, a, b * 2), (X, Y)),
    "ne": Trial(compared(ex.ne), lambda a, b: np.where(a != b, a, b * 2), (X, Y)),
    "le": Trial(compared(ex.le), lambda a, b: np.where(a <= b, a, b * 2), (X, Y)),
    "dot": Trial(lambda a, b: ex.dot(a, b, False, True), lambda a, b: a @ b.T, (X, Y)),
    "bdot": Trial(ex.bdot, np.matmul, (CUBE, normal(2, 4, 2))),
    "bdot_legacy": Trial(ex.bdot, np.matmul, (CUBE, normal(4, 2))),
    "affine": Trial(ex.affine, lambda x, w, b: x @ w + b, (X, W, B)),
    "affineWithReluDropout": Trial(
        ex.affine_relu_dropout, lambda x, w, b: np.maximum(x @ w + b, 0), (X, W, B)
    ),
    "csr_dot": Trial(
        lambda b: ex.csr_dot(*sparse_matrix(b), b), lambda b: DENSE @ b, (X,)
    ),
    "dot_csr": Trial(
        lambda b: ex.dot_csr(b, *sparse_matrix(b)), lambda b: b @ DENSE, (normal(3, 2),)
    ),
    "transpose": Trial(
        lambda x: ex.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), (CUBE,)
    ),
    "swapAxes": Trial(lambda x: ex.swap_axes(x, 0, 2), lambda x: np.swapaxes(x, 0, 2), (CUBE,)),
    "cast": Trial(lambda x: ex.cast(x > 0, x.type) * x, lambda x: (x > 0) * x, (X,)),
    "concatenate": Trial(
        lambda a, b: ex.concatenate([a, b], 1), lambda a, b: np.concatenate([a, b], 1), (X, Y)
    ),
    "repeat": Trial(lambda x: ex.repeat(x, 2, 1), lambda x: np.tile(x, (1, 2)), (X,)),
    "reshape": Trial(lambda x: times(ex.reshape(x, (3, 4))), lambda x: x.reshape(3, 4) ** 2, (X,)),
    "clip": Trial(lambda x: ex.clip(x, 0.7), lambda x: np.clip(x, -0.7, 0.7), (X,)),
    "clipGradient": Trial(lambda x: times(ex.clip_gradient(x, 1e4)), np.square, (X,)),
    "atleast_1d": Trial(lambda x: times(ex.atleast_nd(x, 1)), np.square, (X,)),
    "atleast_2d": Trial(lambda x: times(ex.atleast_nd(x, 2)), np.square, (X,)),
    "atleast_3d": Trial(lambda x: times(ex.atleast_nd(x, 3)), lambda x: x[None] ** 2, (X,)),
    "atleast_4d": Trial(lambda x: times(ex.atleast_nd(x, 4)), lambda x: x[None, None] ** 2, (X,)),
    "atleast_nd": Trial(
        lambda x: times(ex.atleast_nd(x, 5)), lambda x: x[None, None, None] ** 2, (X,)
    ),
    "constant_like": Trial(
        lambda x: x * ex.constant_like(x, range(12)),
        lambda x: x * np.arange(12).reshape(4, 3), (X,),
    ),
    "flatten": Trial(lambda x: times(ex.flatten(x)), lambda x: x.ravel() ** 2, (CUBE,)),
    "flatten_2d": Trial(lambda x: times(ex.flatten_2d(x)), lambda x: x.reshape(6, 4) ** 2, (CUBE,)),
    "stopGradient": Trial(
        lambda x: ex.stop_gradient(ex.sgn(x)) * x, np.abs, (X,)
    ),
    "choose": Trial(lambda a, b: ex.choose([a, b], 1) * a, np.multiply, (X, Y)),
    "gather": Trial(
        lambda x, i: ex.gather(x, 0, i), lambda x, i: np.take_along_axis(x, i, 0), (X, AT)
    ),
    "scatter": Trial(
        lambda x, s: ex.scatter(x, 0, [[2, 0, 1]], s), scattered, (X, normal(1, 3, seed=5))
    ),
    "index_select": Trial(
        lambda x: ex.index_select(x, 1, [2, 0, 2]), lambda x: x[:, [2, 0, 2]], (X,)
    ),
    "rows": Trial(lambda x: ex.rows(x, [3, 0, 3]), lambda x: x[[3, 0, 3]], (X,)),
    "cols": Trial(lambda x: ex.cols(x, [2, 2]), lambda x: x[:, [2, 2]], (X,)),
    "slice": Trial(lambda x: times(ex.slice_(x, 0, 0, 4, 2)), lambda x: x[0:4:2] ** 2, (X,)),
    "narrow": Trial(lambda x: times(ex.narrow(x, 1, 1, 2)), lambda x: x[:, 1:] ** 2, (X,)),
    "sum": Trial(ex.sum_, lambda x: x.sum(0, keepdims=True), (X,)),
    "mean": Trial(ex.mean, lambda x: x.mean(0, keepdims=True), (X,)),
    "std": Trial(lambda x: ex.std(x, 1), lambda x: x.std(1, keepdims=True), (X,)),
    "var": Trial(lambda x: ex.var(x, 1), lambda x: x.var(1, keepdims=True), (X,)),
    "max": Trial(lambda x: ex.max_(x, 1), lambda x: x.max(1, keepdims=True), (X,)),
    "min": Trial(lambda x: ex.min_(x, 1), lambda x: x.min(1, keepdims=True), (X,)),
    "prod": Trial(lambda x: ex.prod(x, 1), lambda x: x.prod(1, keepdims=True), (X,)),
    "logsumexp": Trial(
        lambda x: ex.logsumexp(x, 1), lambda x: np.log(np.exp(x).sum(1, keepdims=True)), (X,)
    ),
    "softmax": Trial(
        lambda x: ex.softmax(x, mask=x.graph.constant(MASK, x.type)),
        lambda x: smax(np.where(MASK, x, -np.inf)), (X,),
    ),
    "logsoftmax": Trial(ex.log_softmax, lambda x: np.log(smax(x)), (X,)),
    "sparsemax": Trial(ex.sparsemax, sparse, (X,)),
    "cross_entropy": Trial(ex.cross_entropy, entropy, (X, LABELS)),
    "unlikelihood": Trial(
        ex.unlikelihood, lambda x, y: -np.log(1 - np.exp(-entropy(x, y))), (X, LABELS)
    ),
    "scalar_product": Trial(
        lambda a, b: ex.scalar_product(a, b, 1), lambda a, b: (a * b).sum(1, keepdims=True), (X, Y)
    ),
    "weighted_average": Trial(
        lambda a, w: ex.weighted_average(a, w, 1),
        lambda a, w: (a * w).sum(1, keepdims=True) / w.sum(1, keepdims=True), (X, P),
    ),
    "layerNorm": Trial(ex.layer_norm, normed, (X, normal(1, 3), normal(1, 3, seed=2))),
    "rmsNorm": Trial(
        ex.rms_norm, lambda x, g, b: normed(x, g, b, False), (X, normal(1, 3), normal(1, 3, seed=2))
    ),
    "highway": Trial(ex.highway, lambda y, x, t: sig(t) * y + (1 - sig(t)) * x, (X, Y, Z)),
    "dropout": Trial(ex.dropout, np.multiply, (X, Y)),
    "dropoutReluInplace": Trial(
        lambda x, m: ex.dropout(ex.relu(x), m), lambda x, m: np.maximum(x, 0) * m, (X, Y)
    ),
    "shift": Trial(
        lambda x: ex.shift(x, (0, 1)), lambda x: np.pad(x, ((0, 0), (1, 0)))[:, :-1], (X,)
    ),
    "avg_pooling": Trial(
        lambda x: ex.avg_pooling(x, 2, 1), lambda x: x.reshape(2, 2, 3).mean(1), (X,)
    ),
    "max_pooling": Trial(
        lambda x: ex.max_pooling(x, 2, 1), lambda x: x.reshape(2, 2, 3).max(1), (X,)
    ),
    "pooling_with_masking": Trial(
        lambda x: ex.pooling_with_masking(x, x.graph.ones((1, 3), x.type), 2),
        lambda x: np.stack([x[:, :2].max(1), x[:, 2]], 1), (X,),
    ),
    "gruOps": Trial(ex.gru, gru, (X, normal(4, 9), normal(4, 9, seed=2), normal(1, 9, seed=3))),
    "lstmOpsC": Trial(
        ex.lstm_cell, lstm_cell, (X, GATES, normal(4, 12, seed=5), normal(1, 12, seed=6))
    ),
    "lstmOpsO": Trial(
        ex.lstm_output,
        lambda c, x, s, b: sig((x + s + b)[:, 9:]) * np.tanh(c),
        (X, GATES, normal(4, 12, seed=5), normal(1, 12, seed=6)),
    ),
    "attOps": Trial(
        ex.attention, lambda v, c, s: (np.tanh(c + s) * v).sum(-1, keepdims=True),
        (normal(1, 4), CUBE, normal(2, 1, 4, seed=3)),
    ),
    "lambda": Trial(
        lambda x: ex.lambda_([x], x.shape, x.type, _double, _double_back), lambda x: 2 * x, (X,)
    ),
}  # fmt: skip
"""Marian's name -> how ours is tried."""

HOST_ONLY = {"lambda", "debug", "callback"}
"""With functions of the caller's, written for NumPy."""


def _double(out, inputs):
    np.multiply(inputs[0], 2, out=out)


def _double_back(grads, adj, value, inputs):
    grads[0] += 2 * adj

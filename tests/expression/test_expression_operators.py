"""Every operator: value against a plain float64 formula, derivatives against finite differences."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from support.expression_checks import check, normal
from support.marian_operators import TRIALS, erf, smax


def lse(x, axis):
    return np.log(np.exp(x).sum(axis, keepdims=True))


X, Y, Z = normal(4, 3), normal(4, 3, seed=2), normal(4, 3, seed=3)
P = np.abs(X) + 0.1
ROW, COL, VEC = normal(1, 3, seed=4), normal(4, 1, seed=5), normal(3, seed=6)
CUBE = normal(2, 3, 4, seed=7)

OWN_UNARY = {
    "neg": (ex.neg, np.negative, X),
    "sgn": (ex.sgn, np.sign, X),
    "sqrt": (ex.sqrt, np.sqrt, P),
    "tanh": (ex.tanh, np.tanh, X),
    "erf": (ex.erf, erf, X),
    "round": (ex.round_, np.rint, X),
    "floor": (ex.floor, np.floor, X),
    "ceil": (ex.ceil, np.ceil, X),
    "softplus": (ex.softplus, lambda x: np.log1p(np.exp(x)), X),
    "clip2": (lambda x: ex.clip(x, -0.5, 0.9), lambda x: np.clip(x, -0.5, 0.9), X),
    "pow_number": (lambda x: x**3, lambda x: x**3, X),
    "number_pow": (lambda x: 2.0**x, lambda x: 2.0**x, X),
    "reverse_div": (lambda x: 2.0 / x, lambda x: 2.0 / x, X),
    "reverse_sub": (lambda x: 2 - x, lambda x: 2 - x, X),
}


TRIED = {"leaky_relu": "leakyrelu", "sqr": "square"} | {
    name: name for name in "abs exp log sin cos tan sigmoid relu gelu swish clip".split()
}
UNARY = OWN_UNARY | {
    name: (TRIALS[trial].build, TRIALS[trial].formula, TRIALS[trial].arrays[0])
    for name, trial in TRIED.items()
}
"""All unary operators. test_marian_table.py checks the trials."""


@pytest.mark.parametrize("name", OWN_UNARY)
def test_unary(name):
    build, formula, x = UNARY[name]
    check(build, formula, x)


BINARY = {
    "add": (lambda a, b: a + b, np.add),
    "sub": (lambda a, b: a - b, np.subtract),
    "mul": (lambda a, b: a * b, np.multiply),
    "div": (lambda a, b: a / b, np.divide),
    "max": (ex.maximum, np.maximum),
    "min": (ex.minimum, np.minimum),
    "logaddexp": (ex.logaddexp, np.logaddexp),
    "pow": (lambda a, b: ex.abs_(a) ** b, lambda a, b: np.abs(a) ** b),
    "prelu": (ex.prelu, lambda a, b: np.where(a > 0, a, a * b)),
}
PAIRS = {
    "same": (X, Y), "row": (X, ROW), "column": (COL, X), "vector": (VEC, X), "both": (ROW, COL),
    "scalar": (X, normal(1, 1, seed=13)), "cube": (CUBE, normal(1, 3, 1)), "one": (normal(1), CUBE),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("pair", PAIRS)
def test_binary_broadcast(name, pair):
    check(*BINARY[name], *PAIRS[pair])


def test_logic():
    check(
        lambda a, b: ((a > 0) & (b > 0) | ~(a < b)) * a,
        lambda a, b: ((a > 0) & (b > 0) | ~(a < b)) * a,
        X,
        Y,
    )


def test_clip_to_nodes():
    check(ex.clip, np.clip, X, -np.abs(Y), np.abs(Z))


REDUCTIONS = {
    "sum": (ex.sum_, np.sum),
    "mean": (ex.mean, np.mean),
    "var": (ex.var, np.var),
    "std": (ex.std, np.std),
    "max": (ex.max_, np.max),
    "min": (ex.min_, np.min),
    "prod": (ex.prod, np.prod),
    "logsumexp": (ex.logsumexp, lambda x, axis, keepdims: lse(x, axis)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_reductions(name, axis):
    build, formula = REDUCTIONS[name]
    for x in (X, CUBE):
        check(lambda a: build(a, axis), lambda a: formula(a, axis=axis, keepdims=True), x)


@pytest.mark.parametrize(
    "zeros", [[], [(0, 1)], [(0, 1), (2, 1)], [(0, 0), (1, 1), (2, 1), (3, 1)]]
)
@pytest.mark.parametrize("axis", [0, 1, None])
def test_product_of_zeros(axis, zeros):
    x = X.copy()
    for place in zeros:
        x[place] = 0.0

    def plain(a):
        return a.prod().reshape(1) if axis is None else a.prod(axis, keepdims=True)

    check(lambda a: ex.prod(a, axis), plain, x)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_of_everything(name):
    build, formula = REDUCTIONS[name]
    check(
        lambda a: build(a, None),
        lambda a: formula(a.ravel(), axis=0, keepdims=True),
        X,
    )


def test_scalar_product_broadcasts():
    check(
        lambda a, b: ex.scalar_product(a, b, 0), lambda a, b: (a * b).sum(0, keepdims=True), X, COL
    )


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("x", [X, CUBE], ids=["matrix", "cube"])
def test_softmax(axis, x):
    check(lambda a: ex.softmax(a, axis=axis), lambda a: smax(a, axis), x)
    check(lambda a: ex.log_softmax(a, axis=axis), lambda a: np.log(smax(a, axis)), x)


def test_softmax_beside_other_uses_of_its_operand():
    """The first operation must set the operand's gradient, and later ones add to it."""
    for kinds in ((ex.softmax, ex.log_softmax), (ex.log_softmax, ex.softmax)):
        check(
            lambda a, k=kinds: k[0](a) * k[1](a) + a,
            lambda a: smax(a) * np.log(smax(a)) + a,
            X,
        )


def test_softmax_of_vector_and_mask():
    check(ex.softmax, smax, VEC)
    mask = np.array([[1, 0, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0]], np.int32)
    check(
        lambda a, m: ex.softmax(a, mask=m),
        lambda a, m: np.exp(a) * m / (np.exp(a) * m).sum(1, keepdims=True),
        X,
        mask,
    )


@pytest.mark.parametrize("trans_a", [False, True])
@pytest.mark.parametrize("trans_b", [False, True])
def test_products(trans_a, trans_b):
    a = normal(5, 4, seed=8) if trans_a else normal(4, 5, seed=8)
    b = normal(3, 5, seed=9) if trans_b else normal(5, 3, seed=9)

    def plain(a, b):
        return 0.5 * np.matmul(
            a.swapaxes(-1, -2) if trans_a else a, b.swapaxes(-1, -2) if trans_b else b
        )

    check(lambda x, y: ex.dot(x, y, trans_a, trans_b, 0.5), plain, a, b)
    check(
        lambda x, y, z: ex.affine(x, y, z, trans_a, trans_b, 0.5),
        lambda x, y, z: plain(x, y) + z,
        a,
        b,
        VEC,
    )


def test_dot_of_stack():
    check(lambda a, b: a @ b, np.matmul, CUBE, normal(4, 5))


MOVES = {
    "reshape": (lambda x: ex.reshape(x, (4, -1)), lambda x: x.reshape(4, 6)),
    "flatten": (ex.flatten, np.ravel),
    "flatten_2d": (ex.flatten_2d, lambda x: x.reshape(6, 4)),
    "atleast": (lambda x: ex.atleast_nd(x, 4), lambda x: x[None]),
    "transpose": (ex.transpose, lambda x: x.swapaxes(1, 2)),
    "permute": (lambda x: ex.transpose(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    "swap": (lambda x: ex.swap_axes(x, 0, 2), lambda x: x.swapaxes(0, 2)),
    "slice": (lambda x: ex.slice_(x, 1, 1, 3), lambda x: x[:, 1:3]),
    "step": (lambda x: ex.slice_(x, 2, 0, None, 2), lambda x: x[:, :, ::2]),
    "backward": (lambda x: ex.slice_(x, 2, None, None, -1), lambda x: x[:, :, ::-1]),
    "narrow": (lambda x: ex.narrow(x, -1, 1, 2), lambda x: x[..., 1:3]),
    "twice": (
        lambda x: ex.concatenate([ex.narrow(x, 1, 0, 2), x, ex.narrow(x, 1, 1, 2)], 1),
        lambda x: np.concatenate([x[:, :2], x, x[:, 1:]], 1),
    ),
    "stack": (lambda x: ex.stack([x, x * 2], 1), lambda x: np.stack([x, x * 2], 1)),
    "repeat": (lambda x: ex.repeat(x, 3, 1), lambda x: np.tile(x, (1, 3, 1))),
    "shift": (
        lambda x: ex.shift(x, (0, 1, -2), 0.5),
        lambda x: np.concatenate(
            [
                np.full((2, 1, 4), 0.5),
                np.concatenate([x[:, :-1, 2:], np.full((2, 2, 2), 0.5)], 2),
            ],
            1,
        ),
    ),
    "reshaped_slice": (
        lambda x: ex.reshape(ex.narrow(x, 2, 1, 2), (3, 4)) * 2,
        lambda x: x[:, :, 1:3].reshape(3, 4) * 2,
    ),
    "index_select": (lambda x: ex.index_select(x, 1, [2, 0, 2, 1]), lambda x: x[:, [2, 0, 2, 1]]),
    "cumsum": (lambda x: ex.cumsum(x, 1), lambda x: x.cumsum(1)),
    "cumsum_reverse": (
        lambda x: ex.cumsum(x, -1, reverse=True),
        lambda x: x[..., ::-1].cumsum(-1)[..., ::-1],
    ),
    "cumsum_exclusive": (
        lambda x: ex.cumsum(x, -1, exclusive=True),
        lambda x: x.cumsum(-1) - x,
    ),
    "sort": (lambda x: ex.sort(x, 1)[0], lambda x: -np.sort(-x, 1)),
    "topk": (lambda x: ex.topk(x, 2, -1, False)[0], lambda x: np.sort(x, -1)[..., :2]),
    "argmax": (lambda x: ex.argmax(x, 1)[0], lambda x: x.max(1, keepdims=True)),
    "layer_norm": (
        lambda x: ex.layer_norm(x, eps=0.0),
        lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
    ),
    "rms_norm": (
        lambda x: ex.rms_norm(x, eps=0.0),
        lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True)),
    ),
    "checkpoint": (lambda x: ex.exp(ex.checkpoint(ex.sin(x))), lambda x: np.exp(np.sin(x))),
    "callback": (lambda x: ex.callback(x, lambda value: None) * 2, lambda x: x * 2),
    "choose": (lambda x: ex.choose([x, x * 3], 1), lambda x: x * 3),
    "choose_at_run": (lambda x: ex.choose([x, x * 3], lambda: 1), lambda x: x * 3),
    "dropout_fixed": (lambda x: ex.dropout(x, 0.0), lambda x: x * 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves(name):
    build, formula = MOVES[name]
    check(lambda x: build(x) * 1.5, lambda x: formula(x) * 1.5, CUBE)


def test_gather_and_scatter():
    at = np.array([[0, 2], [1, 1], [2, 0], [0, 0]], np.int32)
    check(lambda x, i: ex.gather(x, 1, i), lambda x, i: np.take_along_axis(x, i, 1), X, at)
    once = np.array([[0, 2], [1, 0], [2, 0], [0, 1]], np.int32)

    def scatter(x, i, source):
        out = x.copy()
        np.put_along_axis(out, i, source, 1)
        return out

    check(lambda x, i, s: ex.scatter(x, 1, i, s), scatter, X, once, normal(4, 2))


def plain_norm(kind, x, eps):
    if kind == "layer_norm":
        x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("form", ["rows", "gamma", "beta", "numbers", "columns", "full", "cube"])
def test_norm_parameters(kind, form):
    """Parameters that are rows belong to the norm's node; others get their own nodes."""
    norm = getattr(ex, kind)
    gamma, beta = normal(3, seed=11), normal(1, 3, seed=12)
    given = {
        "rows": (X, gamma, beta), "numbers": (X, normal(1), normal(1, 1, seed=2)),
        "columns": (X, gamma, COL), "full": (X, Y, beta), "cube": (CUBE, normal(4), normal(1, 4)),
    }  # fmt: skip
    if form == "gamma":
        check(
            lambda x, g: norm(x, g, None, 0.1), lambda x, g: plain_norm(kind, x, 0.1) * g, X, gamma
        )
    elif form == "beta":
        check(
            lambda x, b: norm(x, None, b, 0.1), lambda x, b: plain_norm(kind, x, 0.1) + b, X, beta
        )
    else:
        check(
            lambda x, g, b: norm(x, g, b, 1e-5),
            lambda x, g, b: plain_norm(kind, x, 1e-5) * g + b,
            *given[form],
        )


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_norm_of_one_operand_in_several_places_and_of_fixed_operands(kind):
    norm, row = getattr(ex, kind), normal(1, 3)
    check(lambda x: norm(x, x, x, 0.1), lambda x: plain_norm(kind, x, 0.1) * x + x, row)
    graph = ex.Graph()
    x, offset = graph.input("x", (4, 3), ex.Type.FLOAT64), graph.constant(row)
    scale = graph.param("scale", normal(3))
    value = norm(x, scale, offset, 0.1)
    for _ in range(2):  # in the second run the gradient is not zero before
        graph.forward(value, x=X)
        graph.backward()
    np.testing.assert_allclose(scale.grad, plain_norm(kind, X, 0.1).sum(0), 1e-12)


def test_norm_in_half_precision_does_not_overflow():
    x = (300 * X).astype(np.float16)
    graph = ex.Graph()
    value = ex.layer_norm(graph.input("x", x.shape, ex.Type.FLOAT16), eps=1e-5)
    assert value.type is ex.Type.FLOAT16
    graph.forward(value, x=x)
    expected = plain_norm("layer_norm", x.astype(np.float64), 1e-5)
    np.testing.assert_allclose(value.value, expected, 2e-3, 2e-3)


def test_batch_norm():
    def plain(x, g, b):
        centred = x - x.mean(0)
        return centred / np.sqrt((centred**2).mean(0) + 0.01) * g + b

    gamma, beta = normal(3, seed=11), normal(3, seed=12)
    check(lambda x, g, b: ex.batch_norm(x, g, b, 0.01), plain, X, gamma, beta)
    # with another use of the operand, and with a view as the operand
    check(
        lambda x, g, b: ex.tanh(x) * ex.batch_norm(x, g, b, 0.01)
        + ex.concatenate([ex.batch_norm(ex.narrow(x, 1, 0, 2)), ex.narrow(x, 1, 2, 1)], 1),
        lambda x, g, b: np.tanh(x) * plain(x, g, b)
        + np.concatenate(
            [(x - x.mean(0))[:, :2] / np.sqrt(x.var(0)[:2] + 1e-3), x[:, 2:]], 1
        ),
        X, gamma, beta,
    )  # fmt: skip


def test_cross_entropy_with_smoothed_labels():
    def plain(x, i):
        logp = np.log(smax(x))
        return -(0.9 * np.take_along_axis(logp, i[:, None], 1) + 0.1 * logp.mean(1, keepdims=True))

    check(lambda x, i: ex.cross_entropy(x, i, 0.1), plain, X, np.array([0, 2, 1, 1], np.int32))


@pytest.mark.parametrize("trans", [False, True])
def test_sparse_products(trans):
    dense = np.array([[0, 2.0, 0, 1], [0, 0, 0, 0], [3, 0, -1, 0.0]])
    rows, cols = np.nonzero(dense)
    offsets = np.searchsorted(rows, np.arange(4)).astype(np.int32)

    def parts(x):
        g = x.graph
        return (
            ex.cast(g.constant(dense[rows, cols]), x.type),
            g.constant(cols.astype(np.int32)),
            g.constant(offsets),
        )

    s = dense.T if trans else dense
    b = normal(s.shape[1], 5)
    check(lambda x: ex.csr_dot((3, 4), *parts(x), x, trans), lambda x: s @ x, b)
    a = normal(5, s.shape[0])
    check(lambda x: ex.dot_csr(x, (3, 4), *parts(x), trans), lambda x: x @ s, a)

    # with trainable values
    def filled(v):
        full = np.zeros((3, 4))
        full[rows, cols] = v
        return full.T if trans else full

    def sparse(v):
        return v, v.graph.constant(cols.astype(np.int32)), v.graph.constant(offsets)

    values = dense[rows, cols]
    check(
        lambda v, x: ex.csr_dot((3, 4), *sparse(v), x, trans), lambda v, x: filled(v) @ x, values, b
    )
    check(
        lambda v, x: ex.dot_csr(x, (3, 4), *sparse(v), trans), lambda v, x: x @ filled(v), values, a
    )


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("type", [ex.Type.INT32, ex.Type.UINT32])
def test_sparse_products_with_places_that_are_fed(trans, type):
    g = ex.Graph()
    values, cols = g.param("values", normal(4)), g.input("cols", (4,), type)
    starts, x = g.input("starts", (4,), type), g.param("x", normal(3 if trans else 4, 5))
    y = ex.csr_dot((3, 4), values, cols, starts + 0, x, trans)
    for at, begins in (([1, 3, 0, 2], [0, 2, 2, 4]), ([3, 0, 1, 3], [0, 1, 3, 4])):
        s = np.zeros((3, 4))
        s[np.repeat(range(3), np.diff(begins)), at] = values.value
        s = s.T if trans else s
        g.forward(y, cols=np.array(at, type.value), starts=np.array(begins, type.value))
        np.testing.assert_allclose(y.value, s @ x.value, rtol=1e-5)
        g.backward({y: np.ones(y.shape, np.float32)})
        np.testing.assert_allclose(x.grad, s.T @ np.ones(y.shape), rtol=1e-5)
        full = np.ones(y.shape) @ x.value.T
        full = full.T if trans else full
        expected = full[np.repeat(range(3), np.diff(begins)), at]
        np.testing.assert_allclose(values.grad, expected, rtol=1e-5)


@pytest.mark.parametrize(("at", "begins"), [([4, 0], [0, 1, 2, 2]), ([1, 0], [0, 2, 1, 2])])
def test_sparse_places_that_do_not_fit_are_noticed_at_each_run(at, begins):
    g = ex.Graph()
    cols, starts = g.input("cols", (2,), ex.Type.INT32), g.input("starts", (4,), ex.Type.INT32)
    y = ex.dot_csr(g.ones((2, 3)), (3, 4), g.ones((2,)), cols, starts)
    good = {"cols": np.int32([3, 0]), "starts": np.int32([0, 1, 2, 2])}
    g.forward(y, **good)
    with pytest.raises(ex.ExpressionError, match="dot_csr: indexes or offsets do not fit"):
        g.forward(y, cols=np.int32(at), starts=np.int32(begins))


def test_lambda_with_a_derivative():
    def forward(out, inputs):
        np.multiply(inputs[0], inputs[1], out=out)

    def backward(grads, adj, value, inputs):
        for grad, other in zip(grads, inputs[::-1], strict=True):
            if grad is not None:
                grad += adj * other

    check(
        lambda a, b: ex.lambda_([a, b], a.shape, a.type, forward, backward) + b,
        lambda a, b: a * b + b,
        X,
        Y,
    )


def test_dropout_keeps_the_mean_and_its_gradient_is_the_mask():
    check(lambda x: ex.dropout(x, 0.5), None, X)
    g = ex.Graph()
    x = g.input("x", (200, 50))
    y = ex.dropout(x, 0.25, axes=(0,))
    g.forward(y, x=np.ones((200, 50), np.float32))
    assert set(np.unique(y.value)) == {np.float32(0), np.float32(1 / 0.75)}
    assert (y.value == y.value[:, :1]).all()
    assert abs(y.value.mean() - 1) < 0.15


def test_casts():
    check(lambda x: ex.cast(ex.cast(x, ex.Type.FLOAT64), x.type) * 2, lambda x: 2 * x, X)
    g = ex.Graph()
    x = g.input("x", (3,), ex.Type.FLOAT16)
    assert (x * 2.5).type is ex.Type.FLOAT16
    assert (x > 0).type is ex.Type.BOOL
    assert (ex.cast(x, ex.Type.INT32) / 2).type is ex.Type.FLOAT32

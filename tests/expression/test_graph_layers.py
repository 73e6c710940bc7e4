"""Layers: values against NumPy formulas, numeric derivatives, masks, equal seeds."""

import math

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools import tensor
from nnet3tools.expression import initial, layers
from nnet3tools.expression.layers import Cell, Transformer
from support.expression_checks import check, normal
from support.marian_operators import sig, smax

X, Y = normal(2, 3, 4), normal(2, 5, 4, seed=2)
KEEP = np.array([[[1.0], [1.0], [0.0]], [[1.0], [0.0], [1.0]]])
SMALL = Transformer(heads=2, dim_feed_forward=6, dropout=0.0, activation="swish")
BEFORE = Transformer(heads=2, dim_feed_forward=6, dropout=0.0, pre_norm=True, activation="swish")


def graph_of(build, arrays, params=None, kind=np.float64):
    """A graph with the layer of the arrays, and parameters of given or random values: (graph, root,
    parameters).
    """
    graph = ex.Graph()
    for name, value in (params or {}).items():
        graph.param(name, value.astype(kind))
    nodes = [
        graph.input(f"x{i}", a.shape, ex.Type(kind.__name__), True) for i, a in enumerate(arrays)
    ]
    return graph, build(*nodes)


def parameters(build, arrays):
    """Random values for the parameters of a layer."""
    graph, _ = graph_of(build, arrays, kind=np.float32)
    rng = np.random.default_rng(5)
    return {name: 0.5 * rng.normal(size=p.shape) for name, p in graph.params.items()}


def run(build, arrays, params, seed=None):
    graph, root = graph_of(build, arrays, params)
    graph.forward(root, **{f"x{i}": a for i, a in enumerate(arrays) if f"x{i}" in graph.inputs})
    value = np.array(root.value)
    if seed is None:
        return value
    graph.backward({root: seed})
    return [graph.inputs[f"x{i}"].grad for i in range(len(arrays))] + [
        graph.params[name].grad for name in params
    ]


def check_layer(build, formula, *arrays):
    """Check value, and derivatives by the operands and by each parameter."""
    params = parameters(build, arrays)
    value = run(build, arrays, params)
    if formula is not None:
        np.testing.assert_allclose(value, formula(params, *arrays), 1e-9, 1e-9)
    rng = np.random.default_rng(0)
    seed = rng.normal(size=value.shape)
    grads = run(build, arrays, params, seed)
    graph, root = graph_of(build, arrays, params)
    given = {f"x{i}": a.copy() for i, a in enumerate(arrays)}

    def objective():
        graph.forward(root, **given)
        return float(np.sum(root.value * seed))

    for array, grad in zip(
        [*given.values(), *(graph.params[n].value for n in params)], grads, strict=True
    ):
        for at in rng.permutation(array.size)[:8]:
            at = np.unravel_index(at, array.shape)
            kept = array[at]
            ends = []
            for step in (1e-6, -1e-6):
                array[at] = kept + step
                ends.append(objective())
            array[at] = kept
            numeric = (ends[0] - ends[1]) / 2e-6
            assert grad[at] == pytest.approx(numeric, 1e-5, 1e-6)


def dense(p, x, name):
    return x @ p[f"{name}_W"] + p[f"{name}_b"]


def norm(p, x, name):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    return y * p[f"{name}_scale"] + p[f"{name}_offset"]


def attention(p, x, y, name, mask):
    q, k, v = (dense(p, s, f"{name}_{n}") for s, n in ((x, "query"), (y, "key"), (y, "value")))
    parts = []
    for h in (slice(0, 2), slice(2, 4)):
        scores = q[..., h] @ k[..., h].swapaxes(1, 2) / math.sqrt(2)
        parts.append(smax(np.where(mask, scores, -1e30)) @ v[..., h])
    return dense(p, np.concatenate(parts, -1), f"{name}_output")


def feed_forward(p, x, name):
    hidden = dense(p, x, f"{name}_ffn1")
    return dense(p, hidden * sig(hidden), f"{name}_ffn2")


def causal(x):
    return np.tril(np.ones((x.shape[1], x.shape[1])))


def after(p, x, y):
    x = norm(p, x + attention(p, x, x, "l_self", causal(x)), "l_self_norm")
    x = norm(p, x + attention(p, x, y, "l_context", 1), "l_context_norm")
    return norm(p, x + feed_forward(p, x, "l"), "l_ffn_norm")


def before(p, x):
    z = norm(p, x, "l_self_norm")
    x = x + attention(p, z, z, "l_self", 1)
    return x + feed_forward(p, norm(p, x, "l_ffn_norm"), "l")


def recurrence(p, x, kind, mask, order):
    state, cell, outputs = np.zeros((2, 2)), np.zeros((2, 2)), {}
    for t in order:
        now, s, b = x[:, t] @ p["r_W"], state @ p["r_U"], p["r_b"]
        if kind is Cell.GRU:
            (xr, xz, xh), (sr, sz, sh), (br, bz, bh) = (np.split(v, 3, -1) for v in (now, s, b))
            z = sig(xz + sz + bz)
            new = (1 - z) * np.tanh(xh + sh * sig(xr + sr + br) + bh) + z * state
        else:
            f, i, g, o = np.split(now + s + b, 4, -1)
            cell = mask[:, t] * (sig(f) * cell + sig(i) * np.tanh(g)) + (1 - mask[:, t]) * cell
            new = sig(o) * np.tanh(cell)
        state = outputs[t] = mask[:, t] * new + (1 - mask[:, t]) * state
    return np.stack([outputs[t] for t in range(3)], 1)


CASES = {
    "dense": (lambda x: layers.dense(x, 5, "d"), lambda p, x: dense(p, x, "d"), X),
    "normalized": (lambda x: layers.normalized(x, "n"), lambda p, x: norm(p, x, "n"), X),
    "learned positions": (
        lambda x: layers.add_positions(x, "e", 7), lambda p, x: 2 * x + p["e_P"][:3], X,
    ),
    "attention": (
        lambda x, y: layers.multi_head_attention(x, y, 2, "a"),
        lambda p, x, y: attention(p, x, y, "a", 1), X, Y,
    ),
    "causal attention": (
        lambda x: layers.multi_head_attention(x, x, 2, "a", layers.causal_mask(x.graph, 3)),
        lambda p, x: attention(p, x, x, "a", causal(x)), X,
    ),
    "encoder": (lambda x: layers.transformer_layer(x, BEFORE, "l"), before, X),
    "decoder": (
        lambda x, y: layers.transformer_layer(
            x, SMALL, "l", layers.causal_mask(x.graph, 3), memory=y
        ), after, X, Y,
    ),
    **{
        f"{cell.value} {backwards}": (
            lambda x, cell=cell, backwards=backwards: layers.recurrent(
                x, 2, "r", cell, x.graph.constant(KEEP, x.type), backwards
            ),
            lambda p, x, cell=cell, backwards=backwards: recurrence(
                p, x, cell, KEEP, (2, 1, 0) if backwards else (0, 1, 2)
            ), X,
        )
        for cell in Cell for backwards in (False, True)
    },
}  # fmt: skip
"""Layer, formula of (parameters, operands), operands."""


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    check_layer(*CASES[name])


def test_embedding():
    at = np.array([[2, 0], [2, 1], [4, 2]], np.int32)
    graph = ex.Graph()
    table = graph.param("e_E", normal(5, 3))
    made = layers.embedding(graph.indices(at), 5, 3, "e")
    seed = normal(3, 2, 3, seed=4)
    graph.forward(made)
    np.testing.assert_array_equal(made.value, table.value[at])
    graph.backward({made: seed})
    expected = np.zeros((5, 3))
    np.add.at(expected, at, seed)
    np.testing.assert_allclose(table.grad, expected, 1e-12)


def test_positions_are_sines_and_cosines():
    """Marian's order: all sines, then all cosines, of dim / 2 wavelengths."""
    graph = ex.Graph()
    made = layers.add_positions(graph.constant(np.ones((1, 3, 6), np.float32)))
    graph.forward(made)
    angles = np.arange(3)[:, None] * np.array([1, 1e-2, 1e-4])
    expected = np.concatenate([np.sin(angles), np.cos(angles)], 1)
    np.testing.assert_allclose(made.value[0], expected + math.sqrt(6), 1e-6)
    assert layers.add_positions(graph.constant(np.ones((1, 2, 1), np.float32))).shape == (1, 2, 1)


def test_masked_times_and_later_times_change_nothing():
    graph = ex.Graph()
    x, y = graph.input("x", X.shape), graph.input("y", Y.shape)
    keep = graph.constant(np.array([1, 1, 0, 0, 0], bool))
    made = layers.transformer_layer(x, SMALL, "l", layers.causal_mask(graph, 3), y, keep)
    values = []
    for last in (0.0, 7.0):
        x_data, y_data = X.astype(np.float32), Y.astype(np.float32)
        x_data[:, 2:] += last
        y_data[:, 2:] += last
        graph.forward(made, x=x_data, y=y_data)
        values.append(made.value.copy())
    np.testing.assert_array_equal(values[0][:, :2], values[1][:, :2])
    assert not np.allclose(values[0][:, 2], values[1][:, 2])


def test_equal_seeds_make_equal_networks_and_equal_names_share_parameters():
    def build(seed):
        graph = ex.Graph()
        tensor.random.seed(seed)
        x = graph.input("x", X.shape)
        for _ in range(2):
            x = layers.transformer_layer(x, SMALL, "same")
        layers.recurrent(x, 2, "r")
        return {name: p.value for name, p in graph.params.items()}

    first, second, other = build(1), build(1), build(2)
    assert len(first) == 16 + 3
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])
    assert not np.array_equal(first["same_ffn1_W"], other["same_ffn1_W"])


def test_dropout_is_drawn_in_training_only():
    options = Transformer(heads=2, dim_feed_forward=6, dropout=0.5)
    for inference in (False, True):
        graph = ex.Graph(inference=inference)
        made = layers.transformer_layer(graph.input("x", X.shape), options, "l")
        values = []
        for seed in (1, 2):
            tensor.random.seed(seed)
            graph.forward(made, x=X.astype(np.float32))
            values.append(made.value.copy())
        assert np.array_equal(*values) == inference


def test_wrong_sizes_are_refused_by_name():
    graph = ex.Graph()
    x = graph.input("x", X.shape)
    with pytest.raises(ex.ExpressionError, match="att: 3 heads do not divide 4 columns"):
        layers.multi_head_attention(x, x, 3, "att")
    layers.dense(x, 5, "d")
    with pytest.raises(ex.ExpressionError, match=r"d_W param .* cannot be of shape \(4 x 6\)"):
        layers.dense(x, 6, "d")
    with pytest.raises(ex.ExpressionError, match="does not fit axis 0 of e_P"):
        layers.add_positions(x, "e", 2)


@pytest.mark.parametrize(
    ("values", "variance", "is_uniform"),
    [
        (initial.glorot_normal, 2 / 500, False),
        (initial.glorot_uniform, 2 / 500, True),
        (lambda s: initial.glorot_normal(s, fan_in=True), 1 / 200, False),
        (lambda s: initial.glorot_uniform(s, fan_out=True), 1 / 300, True),
        (lambda s: initial.glorot_uniform(s, True, True), 2 / 500, True),
        (initial.he_normal, 2 / 200, False),
        (initial.he_uniform, 2 / 200, True),
    ],
)
def test_initial_values_have_their_variance(values, variance, is_uniform):
    tensor.random.seed(3)
    made = values((200, 300))
    assert made.var() == pytest.approx(variance, 0.02)
    limit = math.sqrt(3 * variance)
    assert (np.abs(made).max() <= limit * 1.0001) == is_uniform
    with pytest.raises(ex.ExpressionError, match="need a matrix"):
        values((3,))
    assert initial.ones((2, 3)).sum() == 6
    assert not initial.zeros((2, 3)).any()


def cross_entropy(x, labels, smoothing):
    logs = np.log(smax(x))
    target = np.eye(x.shape[-1])[labels] * (1 - smoothing) + smoothing / x.shape[-1]
    return -(target * logs).sum(-1, keepdims=True)


def unlikelihood(x, labels):
    return -np.log(1 - np.take_along_axis(smax(x), labels[..., None], -1))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_losses_are_their_formulas(smoothing):
    labels, mask = np.array([[0, 3, 1], [2, 2, 0]], np.int32), KEEP * [[[0.5]], [[1.0]]]
    graph = ex.Graph()
    x = graph.input("x", X.shape, ex.Type.FLOAT64, trainable=True)
    for made, expected in (
        (
            ex.cross_entropy(x, graph.indices(labels), smoothing),
            cross_entropy(X, labels, smoothing),
        ),
        (ex.unlikelihood(x, graph.indices(labels)), unlikelihood(X, labels)),
    ):
        total = ex.masked_mean(made, graph.constant(mask))
        graph.forward(made, total, x=X)
        np.testing.assert_allclose(made.value, expected, 1e-12)
        np.testing.assert_allclose(total.value, [(expected * mask).sum() / mask.sum()], 1e-12)
        graph.backward({total: np.ones(1)})
        assert (np.abs(x.grad).sum(-1) > 0).tolist() == (KEEP[..., 0] > 0).tolist()
    truth = ex.masked_mean(made, graph.constant(KEEP > 0))
    graph.forward(truth, x=X)
    assert truth.value == pytest.approx((expected * KEEP).sum() / KEEP.sum())
    with pytest.raises(ex.ExpressionError, match=r"masked_mean: const float64 .* does not fit"):
        ex.masked_mean(ex.sum_(made, 1), graph.constant(mask))


def test_losses_have_numeric_derivatives():
    labels = np.array([[0, 3, 1], [2, 2, 0]], np.int32)
    check(
        lambda x, at: ex.cross_entropy(x, at, 0.2),
        lambda x, at: cross_entropy(x, at, 0.2),
        X,
        labels,
    )
    check(ex.unlikelihood, unlikelihood, X, labels)
    weights = np.abs(normal(2, 3, 1, seed=6))
    mean = lambda x, m: [(x * m).sum() / (4 * m.sum())]  # noqa: E731
    check(ex.masked_mean, mean, X, weights)

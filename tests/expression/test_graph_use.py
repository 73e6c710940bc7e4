"""Graphs in use: a sequence of batches, kept values, summed gradients, detection of nan, names."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression import initial
from support.expression_checks import normal

X = normal(4, 3)


def deep_layers(g, x, layers=6):
    """Layers that overwrite each other's memory; returns the last one and the first one."""
    first = y = ex.tanh(x * 1.1)
    for _ in range(layers):
        y = ex.sin(y * 1.1)
    return first, y


@pytest.mark.parametrize("inference", [False, True])
def test_overwritten_values_are_refused(inference):
    g = ex.Graph(inference=inference)
    x = g.input("x", (4, 3), ex.Type.FLOAT64, trainable=True)
    first, y = deep_layers(g, x)
    g.forward(y, x=X)
    np.testing.assert_allclose(y.value, y.value)
    if not inference:
        np.testing.assert_allclose(first.value, np.tanh(X * 1.1))
        g.backward()
        np.testing.assert_array_equal(y.value.shape, (4, 3))
        for use in (np.array, float, lambda v: v[0], lambda v: v + 1, lambda v: v.shape):
            with pytest.raises(ex.ExpressionError, match=r"gradient of tanh .* was overwritten"):
                use(first.grad)
    for use in (np.asarray, len, lambda v: v * 2, lambda v: np.ones(3) * v, lambda v: v.sum()):
        with pytest.raises(ex.ExpressionError, match=r"value of tanh .* was overwritten"):
            use(first.value)


@pytest.mark.parametrize("every", [0, 2])
def test_kept_values_and_gradients_stay(every):
    for inference in (False, True):
        g = ex.Graph(inference=inference)
        x = g.input("x", (4, 3), ex.Type.FLOAT64, trainable=True)
        first = ex.tanh(x)
        y, apart = first, ex.exp(x)
        for i in range(6):
            y = ex.sin(y * 1.1)
            if every and i % every == 0:
                y = ex.checkpoint(y)
        g.forward(y, x=X)
        g.keep(first, apart)
        g.forward(x=X)  # the roots are still those of the first call
        np.testing.assert_allclose(first.value, np.tanh(X))
        np.testing.assert_allclose(apart.value, np.exp(X))
        if not inference:
            g.backward()
            np.testing.assert_allclose(first.value, np.tanh(X))
            np.testing.assert_allclose(first.grad * (1 - np.tanh(X) ** 2), x.grad)


def test_values_without_a_root():
    g = ex.Graph()
    x = g.input("x", (4, 3), ex.Type.FLOAT64)
    y = ex.sin(x)
    g.keep(y)
    g.forward(x=X)
    np.testing.assert_allclose(y.value, np.sin(X))


def test_batches_of_other_sizes_on_one_graph():
    w0 = normal(3, 2)
    g = ex.Graph()
    w = g.param("w", w0.copy())
    stale = None
    for rows in (4, 1, 7):
        g.clear()
        x = g.input("x", (rows, 3), ex.Type.FLOAT64)
        assert g.param("w", w0) is w
        loss = ex.sum_(ex.sqr(x @ w), None)
        batch = normal(rows, 3, seed=rows)
        g.forward(loss, x=batch)
        g.backward()
        np.testing.assert_allclose(w.grad, 2 * batch.T @ (batch @ w0))
        if stale is not None:
            with pytest.raises(ex.ExpressionError, match="before the graph was cleared"):
                ex.exp(stale)
        stale = x
    assert len(g.nodes) == 6


def test_gradients_add_up_over_batches():
    g = ex.Graph()
    x, w = g.input("x", (4, 3), ex.Type.FLOAT64), g.param("w", normal(3, 2))
    loss = ex.sum_(ex.sin(x @ w), None)
    grads = []
    for seed in (1, 2, 3):
        g.forward(loss, x=normal(4, 3, seed=seed))
        g.backward()
        grads.append(w.grad.copy())
    for number, seed in enumerate((1, 2, 3)):
        g.forward(loss, x=normal(4, 3, seed=seed))
        g.backward(accumulate=number > 0)
    np.testing.assert_allclose(w.grad, sum(grads))


def test_nan_names_its_node():
    g = ex.Graph(throw_nan=True)
    x = g.input("x", (3,), ex.Type.FLOAT64, trainable=True)
    y = ex.log(x).named("the log") * 2
    g.forward(y, x=np.ones(3))
    with pytest.raises(ex.ExpressionError, match="nan in the value of the log"):
        g.forward(y, x=np.array([1.0, -1.0, 2.0]))
    z = ex.sqrt(x * 0.0) * 0.0
    g.forward(z, x=np.ones(3))
    with pytest.raises(ex.ExpressionError, match="nan in the gradient of mul"):
        g.backward()


def test_fixed_parameters_have_no_gradient():
    g = ex.Graph()
    w, table = g.param("w", normal(3)), g.param("t", np.array([2, 0], np.int32), trainable=False)
    fixed = g.param("f", normal(3, seed=2), trainable=False)
    loss = ex.sum_(ex.rows(w * fixed, table), None)
    g.forward(loss)
    g.backward()
    np.testing.assert_allclose(w.grad, fixed.value * [1, 0, 1])
    assert fixed.grad is table.grad is None


def test_constants_by_shape():
    g = ex.Graph()
    assert g.zeros((2, 3)) is g.constant(np.zeros((2, 3), np.float32))
    assert g.ones((2,), ex.Type.INT32) is g.constant([1, 1])
    assert g.indices([0, 2]) is g.constant(np.array([0, 2]))
    with pytest.raises(ex.ExpressionError, match="is no int32"):
        g.indices([0.5])


def test_a_shared_node_keeps_its_name():
    g = ex.Graph()
    x = g.input("x", (4, 3), ex.Type.FLOAT64, trainable=True)
    a = (x * 2).named("a")
    b = (x * 2).named("b")
    assert (a.name, b.name, x.named("x")) == ("a", "b", x)
    assert a.named("b") is b
    renamed = x.named("z")
    g.forward(ex.sum_(a * b * renamed, None), x=X)
    g.backward()
    np.testing.assert_allclose(x.grad, 12 * X * X)
    assert x.name == "x"


def test_parameters_are_saved_and_loaded(tmp_path):
    g = ex.Graph()
    w = g.param("w", normal(3, 2))
    g.param("t", np.arange(3, dtype=np.int32), trainable=False)
    path = str(tmp_path / "p.npz")
    g.save(path)
    expected = w.value.copy()
    w.value[...] = 0
    g.load(path)
    np.testing.assert_array_equal(w.value, expected)
    other = ex.Graph()
    other.load(path)
    np.testing.assert_array_equal(other.params["w"].value, expected)
    assert not other.params["t"].trainable
    other.param("more", normal(1))
    with pytest.raises(UserError, match="has no parameter 'more'"):
        other.load(path)
    wrong = ex.Graph()
    wrong.param("w", normal(2, 2))
    wrong.param("t", normal(3))
    with pytest.raises(UserError, match="'w' is float64"):
        wrong.load(path)
    for content in (b"", b"PK\x03\x04 broken", b"some text"):
        (tmp_path / "bad").write_bytes(content)
        with pytest.raises(UserError, match="bad: no arrays can be read"):
            ex.Graph().load(str(tmp_path / "bad"))


def test_gradients_are_clipped_by_norm():
    g = ex.Graph()
    w, v = g.param("w", normal(3, 2)), g.param("v", normal(4))
    g.forward(ex.sum_(ex.sqr(w), None) + ex.sum_(v, None))
    g.backward()
    norm = np.sqrt(np.sum(w.grad**2) + np.sum(v.grad**2))
    before = w.grad.copy()
    assert g.clip_gradients(100.0) == pytest.approx(norm)
    np.testing.assert_array_equal(w.grad, before)
    assert g.clip_gradients(0.5) == pytest.approx(norm)
    np.testing.assert_allclose(w.grad, before * 0.5 / norm)
    assert np.sqrt(np.sum(w.grad**2) + np.sum(v.grad**2)) == pytest.approx(0.5)


def test_initial_values():
    tensor.random.seed(1)
    for make, mean, variance in (
        (lambda s: initial.normal(s, 1.0, 2.0), 1.0, 4.0),
        (lambda s: initial.uniform(s, -1.0, 3.0), 1.0, 16 / 12),
        (initial.glorot_normal, 0.0, 2 / 500),
        (initial.glorot_uniform, 0.0, 2 / 500),
    ):
        x = make((200, 300))
        assert x.dtype == np.float32
        assert x.mean() == pytest.approx(mean, abs=0.03)
        assert x.var() == pytest.approx(variance, rel=0.03)
    np.testing.assert_array_equal(initial.eye(3, 2.0), 2 * np.eye(3))
    with pytest.raises(ex.ExpressionError, match="initial values need a matrix"):
        initial.glorot_normal((3,))


def test_constant_like():
    g = ex.Graph()
    x = g.input("x", (2, 2), ex.Type.INT32)
    assert ex.constant_like(x, [1, 2, 3, 4]) is g.constant([[1, 2], [3, 4]])
    assert ex.constant_like(x, 1) is g.ones((2, 2), ex.Type.INT32)
    with pytest.raises(ex.ExpressionError, match="3 values for x"):
        ex.constant_like(x, [1, 2, 3])

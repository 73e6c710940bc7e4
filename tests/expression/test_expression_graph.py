"""Graphs: sharing of nodes, simplification, memory, checkpoints, order of operations, errors."""

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.formula import Formula
from nnet3tools.expression.memory import Buffer, place
from nnet3tools.expression.schedule import Schedule, topological
from nnet3tools.tensor import formulas
from support.expression_checks import normal


def matrix(graph, name="x", shape=(4, 3)):
    return graph.input(name, shape, ex.Type.FLOAT64, trainable=True)


def test_equal_nodes_are_one():
    g = ex.Graph()
    x, y = matrix(g), matrix(g, "y")
    assert ex.sigmoid(x) is ex.sigmoid(x)
    assert x * y + 1 is x * y + 1
    assert x * 2 is not x * 2.0  # the type might differ
    assert ex.maximum(x, y) is not ex.maximum(y, x)  # the first of equal elements gets the gradient
    assert x - y is not y - x
    for build in (lambda a, b: a + b, lambda a, b: a * b, ex.eq, ex.ne, ex.and_, ex.or_):
        assert build(x, y) is build(y, x)
        assert build(x, 2) is build(2, x)
    assert 2 / x is not x / 2
    assert ex.sum_(x, 0) is not ex.sum_(x, 1)
    assert ex.sum_(x, -1) is ex.sum_(x, 1)
    assert ex.slice_(x, 1, 0, 2) is ex.narrow(x, 1, 0, 2)
    assert g.constant([1.0, 2.0]) is g.constant(np.array([1, 2], np.float32))
    assert g.constant([1.0, 2.0]) is not g.constant([1.0, 3.0])
    assert g.constant([1.0, 2.0]) is not g.constant([1, 2])
    assert ex.dropout(x, 0.5) is not ex.dropout(x, 0.5)
    count = len(g.nodes)
    _ = ex.sigmoid(x) * 3 + ex.sigmoid(x) * 3
    assert len(g.nodes) == count + 2


def test_trivial_cases_return_their_operand():
    g = ex.Graph()
    x, one = matrix(g), matrix(g, "one", (4, 1))
    trivial = [
        x + 0, 0 + x, x - 0, x * 1, 1.0 * x, x / 1, x**1, ex.neg(ex.neg(x)), ex.reshape(x, (4, 3)),
        ex.transpose(x, (0, 1)), ex.transpose(ex.transpose(x)), ex.cast(x, ex.Type.FLOAT64),
        ex.concatenate([x]), ex.repeat(x, 1), ex.slice_(x, 0, 0, 4), ex.dropout(x, 0.0),
        ex.clip(x, 0), ex.clip_gradient(x, 0), ex.shift(x, (0, 0)), ex.rows(x, [0, 1, 2, 3]),
        ex.choose([x, x * 2], 0), ex.checkpoint(x), ex.swap_axes(x, 1, 1),
    ]  # fmt: skip
    assert all(t is x for t in trivial)
    assert ex.sum_(one, 1) is one
    assert ex.mean(one, 1) is one
    assert ex.cumsum(one, 1) is one


def test_memory_is_reused_and_values_stay_right():
    def deep(**kind):
        g = ex.Graph(**kind)
        x = matrix(g, shape=(64, 64))
        y = x
        for _ in range(12):
            y = ex.tanh(y * 1.1 + 0.1)
        data = normal(64, 64)
        g.forward(y, x=data)
        return g, x, np.array(y.value)

    plain, _, expected = deep(reuse_memory=False)
    inference, _, value = deep(inference=True)
    np.testing.assert_array_equal(value, expected)
    assert plain._execution.num_bytes > 36 * 64 * 64 * 8
    assert inference._execution.num_bytes <= 2 * 64 * 64 * 8
    trained, x, value = deep()
    np.testing.assert_array_equal(value, expected)
    trained.backward()
    grad = np.array(x.grad)
    kept, x, _ = deep(reuse_memory=False)
    kept.backward()
    np.testing.assert_array_equal(grad, x.grad)
    assert trained._execution.num_bytes < 0.6 * kept._execution.num_bytes


def test_placed_buffers_do_not_overlap_while_both_live():
    rng = np.random.default_rng(0)
    for _ in range(20):
        firsts = rng.integers(0, 30, 40)
        buffers = [
            Buffer((int(n),), ex.Type.FLOAT32, int(f), int(f + d))
            for n, f, d in zip(
                rng.integers(1, 500, 40), firsts, rng.integers(0, 9, 40), strict=True
            )
        ]
        size = place(buffers)
        for i, a in enumerate(buffers):
            assert a.offset + a.num_bytes <= size
            for b in buffers[:i]:
                apart = a.offset + a.num_bytes <= b.offset or b.offset + b.num_bytes <= a.offset
                assert apart or a.last < b.first or b.last < a.first


@pytest.mark.parametrize("every", [1, 3, 5])
def test_checkpoints_are_recomputed_with_the_same_gradients(every):
    calls = []

    def build(g, with_checkpoints):
        x = matrix(g, shape=(128, 32))
        w = g.param("w", normal(32, 32, seed=3) * 0.3)
        y = x
        for i in range(15):
            y = ex.tanh(ex.dot(ex.sin(y), w) + ex.narrow(ex.repeat(y, 2, 1), 1, 16, 32))
            if with_checkpoints and i % every == every - 1:
                y = ex.checkpoint(y)
        return x, w, ex.sum_(y * y, None)

    found = []
    for with_checkpoints in (False, True):
        g = ex.Graph()
        x, w, loss = build(g, with_checkpoints)
        g.forward(loss, x=normal(128, 32))
        g.backward()
        found.append((loss.value[0], x.grad.copy(), w.grad.copy(), g._execution.num_bytes))
        calls.append(sum(s.kind == "again" for s in g._execution.schedule.backward))
    for a, b in zip(found[0][:3], found[1][:3], strict=True):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)
    assert calls[0] == 0
    if every > 1:
        assert calls[1] > 0
        assert found[1][3] < found[0][3]


def test_backward_skips_what_is_not_trained():
    g = ex.Graph()
    x = g.input("x", (2, 2))
    w = g.param("w", np.ones((2, 2), np.float32))
    y = ex.dot(ex.exp(x), w)
    schedule = Schedule([y], True)
    assert [s.node for s in schedule.backward] == [y]
    g.forward(y, x=np.zeros((2, 2), np.float32))
    g.backward()
    assert x.grad is None
    np.testing.assert_array_equal(w.grad, np.full((2, 2), 2.0))


def test_gradients_of_shared_nodes_and_views_add_up():
    g = ex.Graph()
    x = matrix(g)
    left, right = ex.narrow(x, 1, 0, 2), ex.narrow(x, 1, 1, 2)
    flat = ex.reshape(ex.exp(x), (3, 4))
    y = ex.sum_(left * right, None) + ex.sum_(flat * flat, None) + ex.sum_(left, None)
    data = normal(4, 3)
    g.forward(y, x=data)
    g.backward()
    expected = 2 * np.exp(2 * data)
    expected[:, :2] += data[:, 1:] + 1
    expected[:, 1:] += data[:, :2]
    np.testing.assert_allclose(x.grad, expected, 1e-12)
    with pytest.raises(ProgramError, match="must follow forward"):
        g.backward()  # its memory was used for gradients
    g.forward(x=data)
    g.backward()  # gradients start from zero
    np.testing.assert_allclose(x.grad, expected, 1e-12)


def test_several_roots_and_seeds():
    g = ex.Graph()
    x = matrix(g)
    y = ex.sin(x)
    z = y * 2
    data = normal(4, 3)
    g.forward(y, z, x=data)
    g.backward({y: np.ones((4, 3)), z: np.full((4, 3), 0.5)})
    np.testing.assert_allclose(x.grad, 2 * np.cos(data))


def test_stop_and_clip_gradient():
    g = ex.Graph()
    x = matrix(g)
    y = ex.clip_gradient(x, 0.5) * 3 + ex.stop_gradient(x) * x
    data = normal(4, 3)
    g.forward(y, x=data)
    np.testing.assert_allclose(y.value, 3 * data + data * data)
    g.backward()
    np.testing.assert_allclose(x.grad, 0.5 + data)


def test_callbacks_run_in_order_once_and_debug_logs(capsys):
    g = ex.Graph()
    x, seen = matrix(g), []
    y = ex.callback(x * 2, lambda v: seen.append(("double", v[0, 0])))
    z = ex.callback(y + 1, lambda v: seen.append(("plus", v[0, 0])))
    out = ex.checkpoint(ex.debug(z, "look here")) * 3
    g.forward(out, x=np.full((4, 3), 5.0))
    g.backward()
    assert seen == [("double", 10.0), ("plus", 11.0)]
    assert "look here" in capsys.readouterr().err


def test_choose_by_function_and_by_node():
    g = ex.Graph()
    x, which = matrix(g), [0]
    y = ex.choose([x, x * 2], lambda: which[0])
    g.forward(y, x=np.ones((4, 3)))
    assert y.value[0, 0] == 1
    which[0] = 1
    g.forward(y, x=np.ones((4, 3)))
    assert y.value[0, 0] == 2
    picked = ex.choose([x, x * 2, x * 3], g.constant(np.array([[0], [1], [2], [1]], np.int32)))
    g.forward(picked, x=np.ones((4, 3)))
    np.testing.assert_array_equal(picked.value[:, 0], [1, 2, 3, 2])


def test_indexes_of_the_order():
    g = ex.Graph()
    x = matrix(g)
    roots = [ex.argmax(x, 1)[1], ex.argmin(x, 0)[1], ex.sort(x, 1)[1], ex.topk(x, 2, 0, False)[1]]
    data = normal(4, 3)
    g.forward(*roots, x=data)
    np.testing.assert_array_equal(roots[0].value[:, 0], data.argmax(1))
    np.testing.assert_array_equal(roots[1].value[0], data.argmin(0))
    np.testing.assert_array_equal(roots[2].value, np.argsort(-data, 1))
    np.testing.assert_array_equal(roots[3].value, np.argsort(data, 0)[:2])


ERRORS = {
    "broadcast": (lambda g, x, w: x + w, "operands of add do not broadcast: x input float64 "),
    "dot": (lambda g, x, w: x @ w, "dot: the operands do not fit together: x input"),
    "types": (
        lambda g, x, w: ex.dot(x, g.constant(np.ones((3, 2), np.float32))),
        r"const float32 \(3 x 2\)",
    ),
    "axis": (lambda g, x, w: ex.sum_(x, 2), "no axis 2 in shape"),
    "reshape": (lambda g, x, w: ex.reshape(x, (5, -1)), "cannot reshape x input"),
    "concatenate": (lambda g, x, w: ex.concatenate([x, w], 0), "cannot concatenate along axis 0"),
    "stack": (lambda g, x, w: ex.stack([x, w]), "different shapes"),
    "rows": (lambda g, x, w: ex.rows(x, [4]), "do not fit axis 0"),
    "indexes": (lambda g, x, w: ex.rows(x, x), "indexes must be int32"),
    "narrow": (lambda g, x, w: ex.narrow(x, 1, 2, 2), "does not fit axis 1"),
    "transpose": (lambda g, x, w: ex.transpose(x, (0, 0)), "no order of the axes"),
    "topk": (lambda g, x, w: ex.topk(x, 4, 1), "no 4 elements"),
    "softmax": (lambda g, x, w: ex.softmax(ex.cast(x, ex.Type.INT32)), "expected a float type"),
    "labels": (lambda g, x, w: ex.cross_entropy(x, x), "labels must be int32"),
    "empty": (lambda g, x, w: ex.max_(ex.slice_(x, 0, 0, 0), 0), "reduce_max of nothing"),
    "dropout": (lambda g, x, w: ex.dropout(x, 1.0), "must be in"),
    "graphs": (lambda g, x, w: x + matrix(ex.Graph()), "different graphs"),
    "truth": (lambda g, x, w: bool(x > 0), "no truth value"),
    "not a node": (lambda g, x, w: x + "a", "not an expression"),
    "name": (lambda g, x, w: g.input("x", (1,)), "named 'x' already"),
    "csr": (
        lambda g, x, w: ex.csr_dot(
            (2, 4), g.constant([1.0, 2.0], x.type), g.constant([9]), g.constant([0, 1, 1]), x
        ),
        "csr_dot: a sparse matrix",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_show_the_operands(name):
    g = ex.Graph()
    x, w = matrix(g), g.param("w", np.ones((2, 5)))
    build, message = ERRORS[name]
    with pytest.raises(ex.ExpressionError, match=message):
        build(g, x, w)


def test_a_gradient_through_a_node_that_has_none():
    g = ex.Graph()
    x = matrix(g)
    forward = ex.lambda_([x], x.shape, x.type, lambda out, inputs: np.copyto(out, inputs[0]))
    g.forward(ex.sum_(forward, None), x=normal(4, 3))
    with pytest.raises(ex.ExpressionError, match=r"no gradient: lambda float64 .* has none"):
        g.backward()
    g.forward(ex.sum_(forward * x, None), x=normal(4, 3))
    g.backward()  # in the other order
    np.testing.assert_array_equal(x.grad, normal(4, 3))
    inference = ex.Graph(inference=True)
    x = matrix(inference)
    y = ex.lambda_([x], x.shape, x.type, lambda out, inputs: np.copyto(out, inputs[0])) * 2
    inference.forward(y, x=normal(4, 3))
    g = ex.Graph()
    x = matrix(g)
    y = ex.argmax(x)[1]
    g.forward(y, x=normal(4, 3))
    with pytest.raises(ex.ExpressionError, match="no gradient: sort_indexes int32"):
        g.backward()
    free = ex.Graph()
    z = free.input("z", (2,)) * 2
    free.forward(z, z=np.zeros(2, np.float32))
    with pytest.raises(ex.ExpressionError, match="depends on no parameter"):
        free.backward()


def test_a_cycle_is_named():
    g = ex.Graph()
    x = matrix(g)
    y = ex.sin(x)
    z = ex.cos(y)
    y.children = (z,)
    with pytest.raises(ex.ExpressionError, match=r"cycle: .*sin#1.*cos#2"):
        topological([z])


def test_inputs_are_checked():
    g = ex.Graph()
    y = matrix(g) * 2
    for array, message in (
        (np.zeros((3, 3)), "given shape"),
        (np.zeros((4, 3), np.float32), "given type float32"),
    ):
        with pytest.raises(ex.ExpressionError, match=message):
            g.forward(y, x=array)
    with pytest.raises(ex.ExpressionError, match="no input named"):
        g.forward(y, xx=np.zeros((4, 3)))


def random_tree(rng, names, depth):
    """Text of a random formula that is finite and smooth almost everywhere."""
    if depth == 0:
        return str(rng.choice([*names, "0.5", "1.5"]))
    a, b = (random_tree(rng, names, depth - 1) for _ in range(2))
    unary = ["tanh({a})", "sigmoid({a})", "sin({a})", "softplus({a})", "swish({a})", "sqr({a})",
             "exp(-sqr({a}))", "log(1 + sqr({a}))", "gelu({a})", "-({a})", "erf({a})",
             "sqrt(1 + sqr({a}))"]  # fmt: skip
    binary = ["({a}) + ({b})", "({a}) - ({b})", "({a}) * ({b})", "({a}) / (1 + sqr({b}))",
              "max({a}, {b})", "min({a}, {b})", "logaddexp({a}, {b})", "where({a} > {b}, {a}, {b})",
              "(1 + sqr({a})) ** ({b})"]  # fmt: skip
    return str(rng.choice([*unary, *binary])).format(a=a, b=b)


@pytest.mark.parametrize("seed", range(25))
def test_random_trees_graph_derivative_against_symbolic(seed):
    rng = np.random.default_rng(seed)
    text = "tanh(x + 0 * y) + " + random_tree(rng, ["x", "y"], 4)
    holders = {"x": formulas.Placeholder(1), "y": formulas.Placeholder(2)}
    symbolic = formulas.parse(text, holders)
    g = ex.Graph()
    x, y = matrix(g), matrix(g, "y", (1, 3))
    root = Formula(text).build(g, {"x": x, "y": y})
    arrays = {"x": rng.normal(size=(4, 3)) * 0.7, "y": rng.normal(size=(1, 3)) * 0.7}
    g.forward(root, **arrays)
    g.backward()
    full = [arrays["x"], np.broadcast_to(arrays["y"], (4, 3)).copy()]
    moved = {formulas.Placeholder(i): formulas.Placeholder(i + 1) for i in (1, 2)}

    def evaluate(expr):
        out = np.empty((4, 3))
        moved_on = expr.substitute(moved) + 0 * formulas.Placeholder(3)
        tensor.element(formulas.assign(formulas.Placeholder(1), moved_on))(out, *full)
        return out

    np.testing.assert_allclose(root.value, evaluate(symbolic), 1e-9, 1e-9)
    by_x, by_y = (evaluate(formulas.derivative(symbolic, holders[n])) for n in "xy")
    np.testing.assert_allclose(x.grad, by_x, 1e-7, 1e-8)
    np.testing.assert_allclose(y.grad, by_y.sum(0, keepdims=True), 1e-7, 1e-8)


@pytest.mark.parametrize("axis", [0, 1])
def test_factors_of_sums_that_do_not_vary_are_taken_out_of_them(axis):
    """Gradients of a broadcast s in x / s, x s y etc. are sums of products, scaled afterwards."""
    shape = (1, 5) if axis == 0 else (6, 1)
    s0 = np.abs(normal(*shape, seed=3)) + 0.5
    forms = {
        "x / s": lambda x, s: -x / s**2,
        "-(x * s) * s": lambda x, s: -2 * x * s,
        "s / x": lambda x, s: 1 / x,
        "(x + s) * s / x": lambda x, s: (x + 2 * s) / x,
        "x * tanh(s) / (2 * s)": lambda x, s: x
        * ((1 - np.tanh(s) ** 2) / (2 * s) - np.tanh(s) / (2 * s**2)),
    }
    data, seed = normal(6, 5), normal(6, 5, seed=4)
    for text, derivative in forms.items():
        g = ex.Graph()
        x, s = matrix(g, shape=(6, 5)), matrix(g, "s", shape)
        root = Formula(text).build(g, {"x": x, "s": s})
        g.forward(root, x=data, s=s0)
        g.backward({root: seed})
        expected = (seed * derivative(data, s0)).sum(axis, keepdims=True)
        np.testing.assert_allclose(s.grad, expected, 1e-10, 1e-10, err_msg=text)

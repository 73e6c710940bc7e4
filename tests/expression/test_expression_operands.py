"""Every operator with all element types, strided parameters, no rows and one row."""

import numpy as np
import pytest
from test_expression_operators import BINARY, MOVES, REDUCTIONS, UNARY, smax

from nnet3tools import expression as ex
from nnet3tools.tensor.formulas import type_of_dtype
from support.expression_checks import EPSILON, normal, run
from support.marian_operators import sig

ROWS = np.array([[1, 0, 2], [0, 1, 1], [2, 2, 0], [1, 0, 0]])
MATRIX = {
    **{name: (build, formula) for name, (build, formula, _) in UNARY.items()},
    **{f"{name} axis {axis}": (
        lambda x, build=build, axis=axis: build(x, axis),
        lambda x, formula=formula, axis=axis: formula(x, axis=axis, keepdims=True),
    ) for name, (build, formula) in REDUCTIONS.items() for axis in (0, 1)},
    "softmax": (ex.softmax, smax),
    "log_softmax": (lambda x: ex.log_softmax(x, axis=0), lambda x: np.log(smax(x, 0))),
    "dot": (lambda x: ex.dot(x, x, False, True), lambda x: x @ x.T),
    "transpose": (ex.transpose, np.transpose),
    "concatenate": (lambda x: ex.concatenate([x, x], 1), lambda x: np.concatenate([x, x], 1)),
    "repeat": (lambda x: ex.repeat(x, 2, 0), lambda x: np.tile(x, (2, 1))),
    "narrow": (lambda x: ex.narrow(x, 1, 1, 2) * 1, lambda x: x[:, 1:]),
    "cols": (lambda x: ex.cols(x, [2, 0]), lambda x: x[:, [2, 0]]),
    "cumsum": (lambda x: ex.cumsum(x, 0), lambda x: np.cumsum(x, 0)),
    "sort": (lambda x: ex.sort(x, 1, False)[0], lambda x: np.sort(x, 1)),
    "layer_norm": (
        lambda x: ex.layer_norm(x, eps=0.01),
        lambda x: (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.01),
    ),
    "batch_norm": (
        lambda x: ex.batch_norm(x, eps=0.01),
        lambda x: (x - x.mean(0)) / np.sqrt(x.var(0) + 0.01),
    ),
    "rms_norm": (
        lambda x: ex.rms_norm(x, eps=0.01),
        lambda x: x / np.sqrt((x * x).mean(1, keepdims=True) + 0.01),
    ),
    "highway": (lambda x: ex.highway(x, x * 2, x), lambda x: x * sig(x) + 2 * x * (1 - sig(x))),
    "weighted_average": (
        lambda x: ex.weighted_average(ex.cast(x, ex.exp(x).type), ex.exp(x), 1),
        lambda x: (x * np.exp(x)).sum(1, keepdims=True) / np.exp(x).sum(1, keepdims=True),
    ),
    "shift": (lambda x: ex.shift(x, (0, 1)), lambda x: np.pad(x, ((0, 0), (1, 0)))[:, :-1]),
}  # fmt: skip
ONLY_FLOAT = {"softmax", "log_softmax", "dot", "cumsum", "layer_norm", "rms_norm", "batch_norm"}
"""Others take integers and truth values, too."""
LARGE = {"log", "sqrt", "number_pow", "reverse_div", "log_softmax"}
"""What is not defined at 0, or grows fast."""


def plain(formula, x):
    with np.errstate(all="ignore"):
        return np.asarray(formula(x.astype(np.float64)), np.float64)


def value_of(build, x):
    graph = ex.Graph(inference=True)
    node = graph.input("x", x.shape, type_of_dtype(x.dtype))
    root = build(node)
    graph.forward(root, x=x)
    return np.array(root.value), root


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "uint32", "bool"])
@pytest.mark.parametrize("name", MATRIX)
def test_types(name, dtype):
    build, formula = MATRIX[name]
    x = (ROWS + (name in LARGE)).astype(dtype)
    if dtype == "uint32" and name in ("neg", "clip", "reverse_sub"):
        pytest.skip("wraps around, as in C")
    if name in ONLY_FLOAT and not dtype.startswith("float"):
        with pytest.raises(ex.ExpressionError, match=f"x input {dtype}"):
            value_of(build, x)
        return
    value, root = value_of(build, x)
    assert value.dtype == root.value.dtype
    assert type_of_dtype(value.dtype) is root.type
    tolerance = 4e-3 if dtype == "float16" else 1e-5
    expected = plain(formula, x)
    finite = np.isfinite(expected)
    np.testing.assert_allclose(value[finite].astype(float), expected[finite], tolerance, tolerance)


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", MATRIX)
def test_no_rows_and_one_row(name, rows):
    build, formula = MATRIX[name]
    x = np.full((rows, 3), 0.63) + np.arange(3) * 0.1
    if rows == 0 and name in ("max axis 0", "min axis 0", "logsumexp axis 0"):
        with pytest.raises(ex.ExpressionError, match="of nothing"):
            run(build, [x])
        return
    shape = run(build, [x])[0].shape
    value, (grad,) = run(build, [x], np.ones(shape))
    assert grad is None or grad.shape == x.shape
    if rows:
        np.testing.assert_allclose(value, plain(formula, x), 1e-9, 1e-9)
    if rows == 1 and grad is not None and name != "sort":
        for column in range(3):
            moved = [x.copy(), x.copy()]
            moved[0][0, column] += EPSILON
            moved[1][0, column] -= EPSILON
            above, below = (run(build, [m])[0].sum() for m in moved)
            # the standard deviation of one number has a kink
            if "std" not in name or "axis 1" in name:
                assert grad[0, column] == pytest.approx((above - below) / 2 / EPSILON, abs=1e-6)


@pytest.mark.parametrize("name", MATRIX)
def test_strided_parameters(name):
    build, formula = MATRIX[name]
    whole = np.abs(normal(8, 9)) + 0.2
    views = [
        whole[::2, 1:7:2],
        whole[:4, 2:5],
        np.asfortranarray(whole[:4, :3]),
        whole[7:3:-1, 3:0:-1],
    ]
    for view in views:
        graph = ex.Graph()
        w = graph.param("w", view)
        root = build(w)
        graph.forward(root)
        value = np.array(root.value)
        np.testing.assert_allclose(value, plain(formula, np.array(view)), 1e-9, 1e-9)
        expected = run(build, [np.array(view)], np.ones(value.shape))[1][0]
        if expected is not None:
            graph.backward()
            np.testing.assert_allclose(w.grad, expected, 1e-12, 1e-12)
            assert w.value is view


MIXED = {
    **{name: build for name, (build, _) in BINARY.items()},
    "lt": ex.lt, "eq": ex.eq, "and_": ex.and_, "clip": lambda a, b: ex.clip(a, -1.0, b),
    "where": lambda a, b: ex.where(a, a, b),
    "highway": lambda a, b: ex.highway(a, a, b),
    "concatenate": lambda a, b: ex.concatenate([a, b], 1),
    "stack": lambda a, b: ex.stack([a, b]),
    "choose": lambda a, b: ex.choose([a, b], 0),
    "dot": lambda a, b: ex.dot(a, b, False, True),
    "bdot": lambda a, b: ex.bdot(a, b, False, True),
    "affine": lambda a, b: ex.affine(a, ex.transpose(a), b),
    "scalar_product": ex.scalar_product,
    "weighted_average": ex.weighted_average,
    "scatter": lambda a, b: ex.scatter(a, 0, [[0, 1, 2]], ex.narrow(b, 0, 0, 1)),
    "layer_norm": ex.layer_norm,
    "batch_norm": lambda a, b: ex.batch_norm(a, None, b),
    "attention": ex.attention,
}  # fmt: skip


def nodes_of(*dtypes, values=ROWS + 1):
    graph = ex.Graph(inference=True)
    arrays = {n: x.astype(d) for n, x, d in zip("ab", (values, values[::-1]), dtypes, strict=True)}
    nodes = [graph.input(n, x.shape, type_of_dtype(x.dtype)) for n, x in arrays.items()]
    return graph, arrays, nodes


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("pair", [("float16", "float32"), ("float32", "float64")])
def test_floats_of_different_precision_do_not_mix(name, pair):
    _, _, nodes = nodes_of(*pair)
    with pytest.raises(ex.ExpressionError, match=f"{name.rstrip('_')}.*{pair[0]}.*{pair[1]}"):
        MIXED[name](*nodes)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("pair", [("int32", "float32"), ("int32", "uint32"), ("uint32", "float16")])
def test_integers_mix_with_nothing_else(name, pair):
    _, _, nodes = nodes_of(*pair)
    with pytest.raises(
        ex.ExpressionError, match=f"of {pair[0]} and {pair[1]}: cast one of the operands"
    ):
        BINARY[name][0](*nodes)


# pow is of abs, which makes int32 of bool.
@pytest.mark.parametrize("name", sorted(BINARY.keys() - {"pow"}))
@pytest.mark.parametrize("other", ["int32", "float16", "float32", "float64"])
def test_truth_values_take_the_type_of_the_other_operand(name, other):
    build, formula = BINARY[name]
    graph, arrays, nodes = nodes_of("bool", other)
    root = build(*nodes)
    if other == "int32" and name in ("div", "logaddexp", "pow", "prelu"):
        other = "float32"  # never an integer division
    assert root.type.value == other
    graph.forward(root, **arrays)
    expected = formula(*(x.astype(np.float64) for x in arrays.values()))
    np.testing.assert_allclose(np.array(root.value).astype(float), expected, 4e-3, 4e-3)


def test_numpy_arrays_take_the_type_of_the_node_beside_them():
    graph, _, (a, _) = nodes_of("float32", "float32")
    assert (a * np.array([1.0, 2.0, 3.0])).type is ex.Type.FLOAT32
    assert ex.where(a > 0, np.array([1, 2, 3]), a).type is ex.Type.FLOAT32
    assert ex.where(np.array([True, False, True]), a, 0).children[0].type is ex.Type.BOOL
    assert ((a > 0) * np.array([0.5])).type is ex.Type.FLOAT64
    with pytest.raises(ex.ExpressionError, match=r"0\.5 is no int32"):
        graph.constant([1, 2]) * np.array([0.5])


@pytest.mark.parametrize("name", MOVES)
def test_moves_of_no_rows(name):
    """Operators that move elements accept an empty axis 0, unless given explicit sizes."""
    if name in ("reshape", "flatten_2d", "reshaped_slice"):
        pytest.skip("sizes spelt out")
    build, _ = MOVES[name]
    x = np.zeros((0, 3, 4))
    shape = run(build, [x])[0].shape
    _, (grad,) = run(build, [x], np.ones(shape))
    assert grad.shape == x.shape

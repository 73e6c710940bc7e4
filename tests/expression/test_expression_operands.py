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
        lambda x: ex.weighted_average(x, ex.exp(x), 1),
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


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        ("float16", "float32", "float32"), ("float32", "float64", "float64"),
        ("int32", "float32", "float32"), ("int32", "uint32", "float64"),
        ("bool", "int32", "int32"), ("uint32", "float16", "float16"),
    ],
)  # fmt: skip
def test_promotion(name, first, second, result):
    build, formula = BINARY[name]
    a, b = (ROWS + 1).astype(first), (ROWS[::-1] + 1).astype(second)
    graph = ex.Graph(inference=True)
    nodes = [graph.input(n, x.shape, type_of_dtype(x.dtype)) for n, x in (("a", a), ("b", b))]
    root = build(*nodes)
    if result in ("int32",) and name in ("div", "logaddexp", "pow", "prelu"):
        result = "float32"  # never an integer division
    assert root.type.value == result
    graph.forward(root, a=a, b=b)
    expected = formula(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(np.array(root.value).astype(float), expected, 4e-3, 4e-3)


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

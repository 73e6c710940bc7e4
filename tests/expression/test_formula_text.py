"""Formula text gives the same nodes as the Python functions, for every function and operator."""

import re

import numpy as np
import pytest

from nnet3tools import expression as ex
from nnet3tools.errors import TextError
from nnet3tools.expression.elementwise import KINDS, apply
from nnet3tools.expression.formula import Formula
from nnet3tools.expression.formula_functions import CALLABLE
from nnet3tools.tensor.formulas import CASTS
from nnet3tools.tensor.formulas.functions import ALIASES

PYTHON = {
    "x + y - 2 * x / y": lambda x, y, i: x + y - 2 * x / y,
    "x ** 2 + -x ^ y": lambda x, y, i: x**2 + -(x**y),
    "(x < y) + (x <= y) + (x > y) + (x >= y)": lambda x, y, i: (x < y) + (x <= y) + (x > y)
    + (x >= y),
    "(x == y) + (x != 0.5)": lambda x, y, i: ex.eq(x, y) + ex.ne(x, 0.5),
    "x > 0 && y > 0 || !(x > y)": lambda x, y, i: (x > 0) & (y > 0) | ~(x > y),
    "not x and y or x": lambda x, y, i: ~x & y | x,
    "clip(x, 0.5) + clip(x, -1, y)": lambda x, y, i: ex.clip(x, 0.5) + ex.clip(x, -1, y),
    "2 * pi * x": lambda x, y, i: 2 * 3.141592653589793 * x,
    "h = x * 2; g = tanh(h); g * h": lambda x, y, i: ex.tanh(x * 2) * (x * 2),
    "sum(x) + sum(x, axis=1) + sum(x, 0)": lambda x, y, i: ex.sum_(x, None) + ex.sum_(x, 1)
    + ex.sum_(x, 0),
    "mean(x, axis=0) + var(x, axis=0)": lambda x, y, i: ex.mean(x, 0) + ex.var(x, 0),
    "std(x, axis=-1) * prod(x, axis=1)": lambda x, y, i: ex.std(x, -1) * ex.prod(x, 1),
    "max(x, axis=1) - min(x, axis=1)": lambda x, y, i: ex.max_(x, 1) - ex.min_(x, 1),
    "max(x, y) + min(x, 0)": lambda x, y, i: ex.maximum(x, y) + ex.minimum(x, 0),
    "logsumexp(x, axis=1)": lambda x, y, i: ex.logsumexp(x, 1),
    "sparsemax(x) + logcumsumexp(y, reverse=1)": lambda x, y, i: ex.sparsemax(x)
    + ex.logcumsumexp(y, reverse=True),
    "softmax(x) + softmax(x, axis=0, mask=x > 0)": lambda x, y, i: ex.softmax(x)
    + ex.softmax(x, 0, mask=x > 0),
    "log_softmax(x, axis=0) + logsoftmax(y)": lambda x, y, i: ex.log_softmax(x, axis=0)
    + ex.log_softmax(y),
    "concatenate(x, y) + concatenate([y, x], axis=1)": lambda x, y, i: ex.concatenate([x, y], 1)
    + ex.concatenate([y, x], 1),
    "stack(x, y, axis=0)": lambda x, y, i: ex.stack([x, y], 0),
    "choose(x, y, 1)": lambda x, y, i: ex.choose([x, y], 1),
    "choose(x, y, argmax(x))": lambda x, y, i: ex.choose([x, y], ex.argmax(x)[1]),
    "slice(x, 1, 0, 3, 2)": lambda x, y, i: ex.slice_(x, 1, 0, 3, 2),
    "sort(x) + sort(y, axis=0, descending=false)": lambda x, y, i: ex.sort(x)[0]
    + ex.sort(y, 0, False)[0],
    "topk(x, 1)": lambda x, y, i: ex.topk(x, 1)[0],
    "argmax(x) - argmin(x, axis=1)": lambda x, y, i: ex.argmax(x)[1] - ex.argmin(x, 1)[1],
    "affine(x, y, i, trans_b=true)": lambda x, y, i: ex.affine(x, y, i, trans_b=True),
    "dot(x, y, trans_b=true, scalar=0.5)": lambda x, y, i: ex.dot(x, y, False, True, 0.5),
    "bdot(reshape(x, [2, 2, 3]), reshape(y, [2, 3, 2]))": lambda x, y, i: ex.bdot(
        ex.reshape(x, (2, 2, 3)), ex.reshape(y, (2, 3, 2))
    ),
    "checkpoint(tanh(x)) + stop_gradient(y)": lambda x, y, i: ex.checkpoint(ex.tanh(x))
    + ex.stop_gradient(y),
    "clip_gradient(x, 0.5)": lambda x, y, i: ex.clip_gradient(x, 0.5),
    "cols(x, [2, 0]) + rows(narrow(y, 1, 0, 2), [3, 2, 1, 0])": lambda x, y, i: ex.cols(x, [2, 0])
    + ex.rows(ex.narrow(y, 1, 0, 2), [3, 2, 1, 0]),
    "index_select(x, 1, [1])": lambda x, y, i: ex.index_select(x, 1, [1]),
    "gather(x, 0, [[0, 1, 2]])": lambda x, y, i: ex.gather(x, 0, np.array([[0, 1, 2]])),
    "scatter(x, 0, [[0, 1, 2]], narrow(y, 0, 0, 1))": lambda x, y, i: ex.scatter(
        x, 0, np.array([[0, 1, 2]]), ex.narrow(y, 0, 0, 1)
    ),
    "cross_entropy(x, argmax(y), 0.1)": lambda x, y, i: ex.cross_entropy(
        x, ex.argmax(y)[1], 0.1
    ),
    "unlikelihood(x, argmax(y))": lambda x, y, i: ex.unlikelihood(x, ex.argmax(y)[1]),
    "cumsum(x, axis=0, reverse=true)": lambda x, y, i: ex.cumsum(x, 0, True),
    "flatten(x)": lambda x, y, i: ex.flatten(x),
    "layer_norm(x, mean(y, axis=0)) + rms_norm(y)": lambda x, y, i: ex.layer_norm(
        x, ex.mean(y, 0)
    ) + ex.rms_norm(y),
    "batch_norm(x, eps=0.01)": lambda x, y, i: ex.batch_norm(x, eps=0.01),
    "repeat(x, 2, axis=1)": lambda x, y, i: ex.repeat(x, 2, 1),
    "shift(x, [1, 0])": lambda x, y, i: ex.shift(x, (1, 0)),
    "transpose(x, [1, 0]) + swap_axes(y, 0, 1)": lambda x, y, i: ex.transpose(x, (1, 0))
    + ex.swap_axes(y, 0, 1),
    "scalar_product(x, y, 1) + weighted_average(x, y, 1)": lambda x, y, i: ex.scalar_product(
        x, y, 1
    ) + ex.weighted_average(x, y, 1),
}  # fmt: skip
WORDS = {"and", "or"}
"""Functions that are operators in text: `x and y`, `x && y`."""


def leaves():
    graph = ex.Graph()
    x, y = (graph.input(name, (4, 3), trainable=True) for name in "xy")
    return graph, {"x": x, "y": y, "i": graph.input("i", (4,))}


@pytest.mark.parametrize("text", PYTHON)
def test_text_is_the_python_form(text):
    graph, names = leaves()
    assert Formula(text).build(graph, names) is PYTHON[text](*names.values())


@pytest.mark.parametrize("name", sorted({*KINDS, *ALIASES} - WORDS))
def test_every_elementwise_function(name):
    graph, names = leaves()
    kind = ALIASES.get(name, name)
    operands = ["x", "y", "x"][: KINDS[kind].arity]
    made = Formula(f"{name}({', '.join(operands)})").build(graph, names)
    assert made is apply(kind, *(names[o] for o in operands))


@pytest.mark.parametrize("name", CASTS)
def test_casts(name):
    graph, names = leaves()
    assert Formula(f"{name}(x)").build(graph, names) is ex.cast(names["x"], CASTS[name])


def test_no_function_is_left_out():
    seen = set(re.findall(r"(\w+)\(", " ".join(PYTHON)))
    assert set(CALLABLE) <= seen | set(KINDS) | set(ALIASES) | set(CASTS)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x * * y", 5, "expected operand, found"),
        ("tanh(x", 7, "expected '\\)'"),
        ("x + $", 5, "expected operand, found"),
        ("", 1, "expected operand, found"),
        ("a = x; a = y; a", 8, "'a' is defined twice"),
        ("x = y; x", 1, "'x' cannot be defined anew"),
        ("x + yy", 5, "unknown name 'yy' \\(nearest known: y\\)"),
        ("x + tnah(y)", 5, "unknown function 'tnah' \\(nearest known: tanh\\)"),
        (
            "x * (y + i)",
            6,
            "do not broadcast: y input float32 \\(4 x 3\\), i input float32 \\(4\\)",
        ),
        ("1 + dot(x, y)", 5, "do not fit together: x input float32 \\(4 x 3\\), y input"),
        ("a = b; b = c * x; c = sqr(a); a", 27, "cycle: a -> b -> c -> a"),
        ("a = a + x; a", 5, "cycle: a -> a"),
        ("x + sum(y, axis=2)", 5, "no axis 2"),
        ("x + sin(x, y)", 5, "takes 1 operands, found 2"),
        ("x + softmax()", 5, "softmax"),
        ("x + concatenate(x, 1)", 5, "numbers cannot be joined"),
        ("2 + exp(1, 2)", 5, "exp needs"),
    ],
)
def test_errors_mark_the_column(text, column, message):
    graph, names = leaves()
    with pytest.raises(TextError, match=message) as caught:
        Formula(text).build(graph, names)
    assert caught.value.column == column, str(caught.value)
    mark = text[: column - 1] + " >>> " + text[column - 1 :]
    assert str(caught.value).endswith(f"at column {column} of formula: {mark}")


NOT_WHOLE = {
    "reshape(x, [nan, 2])": "reshape: expected a whole number, found nan",
    "reshape(x, [inf, 2])": "reshape: expected a whole number, found inf",
    "reshape(x, [1.5, 2])": "reshape: expected a whole number, found 1.5",
    "topk(x, 1.5)": "topk: expected a whole number, found 1.5",
    "topk(x, nan)": "topk: expected a whole number, found nan",
    "narrow(x, 1, 0.5, 1)": "narrow: expected a whole number, found 0.5",
    "slice(x, 1, nan)": "slice: expected a whole number, found nan",
    "repeat(x, 2.5)": "repeat: expected a whole number, found 2.5",
    "shift(x, [0, 0.5])": "shift: expected a whole number, found 0.5",
    "topk(x, 99999999999999999999)": "an integer of 20 digits",
    "x + " + "9" * 5000: "an integer of 5000 digits",
}


@pytest.mark.parametrize("text", NOT_WHOLE)
def test_numbers_that_are_not_whole_are_errors_with_the_column(text):
    g = ex.Graph()
    x = g.input("x", (4, 3))
    with pytest.raises(TextError, match=NOT_WHOLE[text]) as error:
        Formula(text).build(g, {"x": x})
    assert "at column" in str(error.value)


@pytest.mark.parametrize(("opened", "closed"), [("(", ")"), ("sin(", ")"), ("[", "]")])
def test_nesting_has_a_stated_limit(opened, closed):
    def build_levels(levels):
        g = ex.Graph()
        text = opened * levels + "x" + closed * levels
        text = f"concatenate({text})" if opened == "[" else text
        return Formula(text).build(g, {"x": g.input("x", (4, 3))})

    if opened != "[":
        build_levels(100)
    for levels in (101, 50_000):
        with pytest.raises(TextError, match="at most 100 levels of parentheses"):
            build_levels(levels)


def test_chains_of_operators_are_no_levels():
    g = ex.Graph()
    x = g.input("x", (4, 3))
    Formula(" + ".join(["x ** -2", "max(x ^ 2, x ** 3)"] * 150)).build(g, {"x": x})
    Formula("x" + " ** - x" * 1000).build(g, {"x": x})


def test_definitions_may_use_later_ones_to_a_stated_depth():
    def build_levels(count):
        g = ex.Graph()
        lines = [f"a{i} = sin(a{i + 1})" for i in range(count)]
        text = "; ".join([*lines, f"a{count} = x", "a0"])
        return Formula(text).build(g, {"x": g.input("x", (4, 3))})

    build_levels(99)
    with pytest.raises(TextError, match="more than 100 definitions in turn"):
        build_levels(101)


def test_a_chain_of_many_definitions_in_order():
    g = ex.Graph()
    text = "; ".join(["a0 = x", *(f"a{i + 1} = a{i} * 0.5" for i in range(3000)), "a3000"])
    assert Formula(text).build(g, {"x": g.input("x", (4, 3))}).shape == (4, 3)

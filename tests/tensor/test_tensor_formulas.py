"""Expressions: text against Python, printing, errors, types, simplification, derivatives."""

import math
import pickle

import numpy as np
import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.formulas import Placeholder, Type
from support.tensor_reference import evaluate, random_expression

_1, _2, _3 = (Placeholder(i) for i in (1, 2, 3))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_1 + _2 * _3", _1 + _2 * _3),
        ("(_1 + _2) * _3", (_1 + _2) * _3),
        ("_1 - _2 - _3", (_1 - _2) - _3),
        ("_1 - (_2 - _3)", _1 - (_2 - _3)),
        ("_1 / _2 / _3", (_1 / _2) / _3),
        ("-_1 ** 2", -(_1**2)),
        ("_1 ** -_2", _1 ** (-_2)),
        ("2 ** 3 ** _1", F.pow(2, F.pow(3, _1))),
        ("-2 * _1", -2 * _1),
        ("1e-3*_1", 0.001 * _1),
        ("_1 > 0 and _2 < 1 or not _3 == 2", ((_1 > 0) & (_2 < 1)) | ~F.eq(_3, 2)),
        ("_1 > 0 and not _2 or _3", ((_1 > 0) & ~_2) | _3),
        ("where(_1 >= 0, _1, 0.1 * _1)", F.where(_1 >= 0, _1, 0.1 * _1)),
        ("if_then_else(_1, _2, _3)", F.where(_1, _2, _3)),
        ("clip(_1, 2)", F.clip(_1, -2, 2)),
        ("max(_1, min(_2, 0))", F.max(_1, F.min(_2, 0))),
        ("float64(_1) + true", F.cast(_1, Type.FLOAT64) + True),
    ],
)
def test_text_form_is_the_python_form(text, expected):
    got = F.parse(text)
    if text == "clip(_1, 2)":
        assert F.simplify(got) is F.simplify(expected)
    else:
        assert got is expected


@pytest.mark.parametrize("seed", range(60))
def test_printed_trees_read_back_as_the_same_object(seed):
    tree = random_expression(np.random.default_rng(seed), depth=5)
    assert F.parse(tree.text()) is tree
    assert pickle.loads(pickle.dumps(tree)) is tree
    assert hash(tree) == hash(F.parse(tree.text()))


def test_equal_constants_of_other_kinds_are_other_nodes():
    kinds = [F.Constant(v) for v in (1, 1.0, True, -0.0, 0.0, math.nan)]
    assert len(set(kinds)) == 6
    assert F.Constant(math.nan) is F.Constant(-math.nan)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("_1 + ", "invalid syntax at column"),
        ("_1 * (2 + _2", "never closed"),
        ("sgmoid(_1)", "unknown function 'sgmoid'"),
        ("_1 + foo", "unknown name 'foo'"),
        ("_2 + max(_1)", "takes 2 arguments, found 1"),
        ("_1 $ 2", "invalid syntax"),
        ("", "expected an expression"),
        ("_1 = 2", "expected an expression"),
        ("_1 < _2 < _3", "formulas have no"),
        ("_1 ^ 2", "formulas have no"),
        ("_1.real", "formulas have no"),
        ("max(_1, *_2)", "formulas have no"),
        ("__import__('os')", "formulas have no"),
        ("exp(x=_1)", "formulas have no"),
        ("_0 + 1", "unknown name '_0'"),
    ],
)
def test_text_that_is_no_formula_is_refused(text, words):
    with pytest.raises(F.FormulaError) as caught:
        F.parse(text)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tanh(_2)", "expected an assignment"),
        ("_1 = _2 = 3", "expected an assignment"),
        ("_1.x = 3", "expected a name"),
        ("x = _1", "no placeholder is assigned"),
        ("x += 1", "no value"),
    ],
)
def test_statements_that_assign_nothing_are_refused(text, words):
    with pytest.raises(F.FormulaError, match=words):
        F.parse_statements(text)


def test_later_statements_see_earlier_ones():
    got = F.parse_statements("h = _2 * _2; _1 = h + 1; _3 -= _1 * h")
    h = _2 * _2
    assert got.items == ((_1, h + 1), (_3, _3 - (h + 1) * h))
    assert got.targets == [1, 3]
    assert got.num_operands() == 3


def test_names_of_ones_own():
    names = {"x": _2, "target": _3}
    assert F.parse("x * sigmoid(x) - target", names) is _2 * F.sigmoid(_2) - _3
    with pytest.raises(F.FormulaError, match="unknown name 'tarjet'"):
        F.parse("tarjet", names)


def test_an_expression_has_no_truth_value():
    with pytest.raises(ProgramError, match="where"):
        bool(_1 > 0)


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("_1 + _2", ("float16", "float32"), "float32"),
        ("_1 + _2", ("int32", "float16"), "float16"),
        ("_1 * _2", ("int32", "uint32"), "float64"),
        ("_1 / _2", ("int32", "int32"), "float32"),
        ("_1 + _1", ("bool",), "int32"),
        ("exp(_1)", ("int32",), "float32"),
        ("exp(_1)", ("float16",), "float16"),
        ("_1 + 1.5", ("float16",), "float16"),
        ("_1 + 1.5", ("int32",), "float32"),
        ("_1 + 1", ("uint32",), "uint32"),
        ("_1 + 1", ("bool",), "int32"),
        ("_1 < _2", ("float64", "int32"), "bool"),
        ("where(_1, _2, 0.5)", ("bool", "int32"), "float32"),
        ("floor(_1)", ("int32",), "int32"),
        ("int32(_1) + 1", ("float64",), "int32"),
        ("1 + 2.0", (), "weak_float"),
    ],
)
def test_promotion(text, types, expected):
    given = {i + 1: Type(t) for i, t in enumerate(types)}
    assert F.parse(text).type(given) is Type(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_1 * 1 + 0", "_1"),
        ("0 * _1 + _2", "_2"),
        ("_1 * _1", "sqr(_1)"),
        ("_1 ** 2", "sqr(_1)"),
        ("_1 ** 0.5", "sqrt(_1)"),
        ("_1 ** -1", "1.0 / _1"),
        ("-(-_1)", "_1"),
        ("_1 - -_2", "_1 + _2"),
        ("2 * 3 + _1", "6 + _1"),
        ("exp(0) * _1", "1.0 * _1"),
        ("where(1 > 2, _1, _2)", "_2"),
        ("(_1 > 0) * 1", "(_1 > 0) * 1"),
        ("log(-1)", "log(-1)"),
        ("1 / 0", "1 / 0"),
    ],
)
def test_simplification(text, expected):
    got = F.simplify(F.parse(text)).text()
    assert got in (expected, "_1" if expected == "1.0 * _1" else expected)


@pytest.mark.parametrize("seed", range(60))
def test_simplification_keeps_value_and_type(seed):
    rng = np.random.default_rng(seed)
    tree = random_expression(rng, depth=4)
    operands = [rng.uniform(0.3, 2.0, size=20) for _ in range(3)]
    types = dict.fromkeys((1, 2, 3), Type.FLOAT64)
    simple = F.simplify(tree)
    assert simple.type(types).is_float == tree.type(types).is_float
    expected, got = evaluate(tree, operands), evaluate(simple, operands)
    keep = np.isfinite(expected)
    np.testing.assert_allclose(
        np.broadcast_to(got, keep.shape)[keep], expected[keep], rtol=1e-9, atol=1e-9
    )


SMOOTH = [name for name, f in F.FUNCTIONS.items() if f.rule.name in ("ARITHMETIC", "FLOAT")]


@pytest.mark.parametrize("name", [*SMOOTH, "where"])
def test_symbolic_derivatives_against_finite_differences(name):
    function = F.FUNCTIONS[name]
    holders = [Placeholder(i + 1) for i in range(function.arity)]
    tree = function(*holders)
    rng = np.random.default_rng(5)
    operands = [rng.uniform(0.2, 0.9, 30) * rng.choice([-1, 1], 30) for _ in holders]
    if name in ("sqrt", "log"):
        operands[0] = np.abs(operands[0])
    if name == "pow":
        operands[0] = np.abs(operands[0])
    if name == "clip":
        operands[1:] = [np.full(30, -0.5), np.full(30, 0.5)]
    for i, holder in enumerate(holders):
        step, shifted = 1e-6, []
        for sign in (1, -1):
            moved = list(operands)
            moved[i] = operands[i] + sign * step
            shifted.append(np.asarray(evaluate(tree, moved), np.float64))
        numeric = (shifted[0] - shifted[1]) / (2 * step)
        symbolic = evaluate(F.derivative(tree, holder), operands)
        np.testing.assert_allclose(np.broadcast_to(symbolic, 30), numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("seed", range(40))
def test_derivatives_of_random_trees(seed):
    rng = np.random.default_rng(seed)
    tree = random_expression(rng, depth=4, smooth=True)
    operands = [rng.uniform(0.5, 1.5, size=10) for _ in range(3)]
    for number in tree.placeholders():
        step, shifted = 1e-6, []
        for sign in (1, -1):
            moved = list(operands)
            moved[number - 1] = operands[number - 1] + sign * step
            shifted.append(np.broadcast_to(evaluate(tree, moved), 10))
        numeric = (shifted[0] - shifted[1]) / (2 * step)
        symbolic = evaluate(F.derivative(tree, Placeholder(number)), operands)
        scale = 1.0 + np.abs(shifted[0])
        np.testing.assert_allclose(symbolic / scale, numeric / scale, rtol=1e-4, atol=1e-5)

"""Fusion of a lowered formula: the same numbers in fewer steps."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.formulas import Type, parse
from nnet3tools.tensor.formulas.lowered import used
from nnet3tools.tensor.plain.fusion import fuse
from nnet3tools.tensor.plain.lowering import Steps


def lowered(formula, shapes):
    """(names of the steps before, names of those after) of a formula over float32 operands."""
    steps = Steps([Type.FLOAT32] * len(shapes))
    root = steps.lower(parse(formula))
    before = used(steps.values, [root])
    after, _ = fuse(steps.values, [root], dict(enumerate(shapes)))
    return ([v.function.__name__ for v in steps] for steps in (before, after))


WHOLE, ROW = (50, 8), (1, 8)


@pytest.mark.parametrize(
    ("formula", "shapes", "expected"),
    [
        ("sigmoid(_1) * _2", [WHOLE] * 2, ["negative", "exp", "add", "divide"]),
        (
            "sigmoid(_1 * _2 + _3) * _2",
            [ROW, WHOLE, WHOLE],
            ["negative", "multiply", "subtract", "exp", "add", "divide"],
        ),
        ("exp(-abs(_1))", [WHOLE], ["bitwise_or", "exp"]),
        ("exp(-(_1 - _2))", [WHOLE] * 2, ["subtract", "exp"]),
        ("-(2 * _1)", [WHOLE], ["negative", "multiply"]),
        ("-(_1 / 3)", [WHOLE], ["negative", "divide"]),
        # nothing to gain: no operand is smaller
        ("-(_1 * _2)", [WHOLE] * 2, ["multiply", "negative"]),
        # a reciprocal of a row is taken once, and one that is used twice is needed anyway
        ("_1 * (1 / _2)", [WHOLE, ROW], ["divide", "multiply"]),
        (
            "sigmoid(_1) * _2 + sigmoid(_1)",
            [WHOLE] * 2,
            ["negative", "exp", "add", "divide", "multiply", "add"],
        ),
    ],
)
def test_steps_that_cost_a_pass_are_saved(formula, shapes, expected):
    before, after = lowered(formula, shapes)
    assert after == expected
    assert len(after) <= len(before)


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 100.0, -100.0], np.float32)


@pytest.mark.parametrize(
    "formula",
    ["-(_2 * _3 + _4)", "-(_3 - _4)", "-(_4 / _2)", "-(_4 - (_3 + _2))", "-abs(_3 * _4)"],
)
def test_moved_signs_change_nothing(formula):
    rng = np.random.default_rng(0)
    row = rng.normal(size=8).astype(np.float32)
    x, y = (np.concatenate([rng.normal(size=(92, 8)), s]) for s in (
        np.repeat(SPECIAL[:, None], 8, 1), np.repeat(SPECIAL[None], 8, 0)))  # fmt: skip
    x, y = x.astype(np.float32), y.astype(np.float32)
    out, plain = np.empty_like(x), np.empty_like(x)
    tensor.element(f"_1 = {formula}")(out, row, x, y)
    # the sum with an operand of zeros, in the formula twice, is what fusion leaves alone
    tensor.element(f"_1 = {formula[1:]}")(plain, row, x, y)
    assert np.array_equal(out, -plain, equal_nan=True)


def test_quotients_for_products_with_a_sigmoid():
    rng = np.random.default_rng(0)
    x, y = (10 * rng.normal(size=(2, 300, 40))).astype(np.float32)
    x[:8] = SPECIAL[:, None]
    x[4] = 0.0
    out = np.empty_like(x)
    tensor.element("_1 = sigmoid(_2) * _3")(out, x, y)
    with np.errstate(over="ignore"):
        expected = y / (1 + np.exp(-np.float64(x)))
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-37)

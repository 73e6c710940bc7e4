"""Passes and stages of formulas with reductions of rows and columns."""

import pytest

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.formulas import Type, parse
from nnet3tools.tensor.formulas.lowered import Kind, Lowering, Target
from nnet3tools.tensor.formulas.stages import passes

TARGET = Target("paper", frozenset(F.FUNCTIONS))
SHAPES = {"_1": (5, 7), "_2": (5, 7), "_3": (5, 1), "_4": (1, 7), "_5": ()}


def described(*formulas):
    """Of each pass: names of its column values, reductions of each row stage, column reductions."""
    types = [Type.FLOAT32] * 4 + [Type.WEAK_FLOAT]
    lowering = Lowering(types, TARGET)
    roots = [lowering.lower(parse(formula)) for formula in formulas]
    shapes = list(SHAPES.values())
    found = passes(
        lowering.instructions, roots, lambda i: shapes[i][-1] > 1, lambda i: shapes[i][0] > 1
    )
    names = [
        (
            [v.name or v.type.value for v in p.columns if v.kind in (Kind.APPLY, Kind.CAST)],
            [[v.name for v in p.rows.reductions(s)] for s in range(p.rows.last)],
            [v.name for v in p.reductions],
        )
        for p in found
    ]
    return names


@pytest.mark.parametrize(
    ("formulas", "expected"),
    [
        (["_1 + _4"], [([], [], [])]),
        (["exp(_1 - row_max(_1)) / row_sum(_1)"], [([], [["row_max", "row_sum"]], [])]),
        (["col_sum(_1)"], [([], [], ["col_sum"]), ([], [], [])]),
        # the cast is computed once for each column
        (["_1 - col_mean(_1)"], [([], [], ["col_mean"]), (["float32"], [], [])]),
        (
            ["(_1 - col_mean(_1)) / sqrt(col_mean(sqr(_1 - col_mean(_1))) + _5)"],
            [
                ([], [], ["col_mean"]),
                (["float32"], [], ["col_mean"]),
                (["add", "sqrt", "float32"], [], []),
            ],
        ),
        # rows are reduced again in each pass that needs it
        (
            ["_1 - row_mean(_1) - col_sum(_2 * row_mean(_1))"],
            [([], [["row_mean"]], ["col_sum"]), (["float32"], [["row_mean"]], [])],
        ),
        (
            ["_4 + col_sum(_1)", "_4 * 2"],
            [([], [], ["col_sum"]), (["float32", "add", "mul"], [], [])],
        ),
    ],
)  # fmt: skip
def test_passes(formulas, expected):
    assert described(*formulas) == expected


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("col_sum(_4)", "reduces columns of an operand that has one row"),
        ("col_sum(_5)", "col_sum of a plain number"),
        ("col_sum(col_sum(_1))", "col_sum of a plain number"),
        ("row_sum(float32(col_sum(_1)))", "that is the same for all rows"),
        ("_1 * row_sum(_3)", "reduces rows of an operand that has none"),
    ],
)
def test_reductions_of_nothing_are_refused(formula, words):
    with pytest.raises(ProgramError, match=words):
        described(formula)

"""Errors of statements over placeholders mark the column."""

from __future__ import annotations

import pytest

from nnet3tools.tensor.formulas import FormulaError, parse, parse_statements


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("_1 = 2; 3", "expected name, found '3'", 9),
        ("_1 == 2", "expected one of = \\+= -= \\*= /=, found '='", 4),
        ("tanh(_1)", "expected one of = .* found '\\('", 5),
        ("_1 = 2;;", "expected name, found ';'", 8),
        ("_1 = f(2,)", "expected operand, found '\\)'", 10),
        ("_1 = 2 3", "expected end of text, found '3'", 8),
        ("_1 = 1 < 2 < 3", "expected end of text, found '<'", 12),
        ("_1 = 1 + not 2", "expected operand, found 'n'", 10),
    ],
)
def test_errors_of_statements_mark_the_column(text, message, column) -> None:
    with pytest.raises(FormulaError, match=message) as error:
        parse_statements(text)
    assert error.value.column == column


def test_a_minus_before_a_number_is_part_of_it() -> None:
    assert parse("--2").text() == parse("2").text()

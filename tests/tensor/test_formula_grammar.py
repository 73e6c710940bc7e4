"""Formula text is read by hand as by a grammar of pyparsing's, whatever it is."""

from __future__ import annotations

import random

import pytest

from nnet3tools.tensor.formulas import FormulaError, parse, parse_statements
from support.formula_grammar import read_by_hand, read_with_grammar

ATOMS = ["x", "_1", "2", ".5", "1e-3", "pi", "notable", "orb", "and_", "f(x)", "g()", "h(x, 2)"]
INFIX = ["+", "-", "*", "/", "**", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "&", "and", "||"]
INFIX += ["|", "or"]
PREFIX = ["-", "+", "!", "not ", ""]
PIECES = [*ATOMS, *INFIX, *PREFIX, "(", ")", ",", ";", "=", "+=", " ", "$", "\n", "not", "[", "1e"]


def formula(generator: random.Random, depth: int) -> str:
    """A formula that is mostly well formed."""
    if depth == 0 or generator.random() < 0.2:
        return generator.choice(ATOMS)
    first, second = (formula(generator, depth - 1) for _ in range(2))
    symbol = generator.choice(INFIX)
    text = f"{generator.choice(PREFIX)}{first} {symbol} {generator.choice(PREFIX)}{second}"
    return text if generator.random() < 0.5 else f"({text})"


@pytest.mark.parametrize("seed", range(20))
def test_operators_bind_as_in_the_grammar(seed) -> None:
    generator = random.Random(seed)
    for _ in range(10):
        text = formula(generator, 4)
        assert read_by_hand(text) == read_with_grammar(text), text


@pytest.mark.parametrize("seed", range(20))
def test_pieces_in_any_order_are_a_formula_for_both_or_for_none(seed) -> None:
    generator = random.Random(seed)
    for _ in range(100):
        text = "".join(generator.choices(PIECES, k=generator.randint(1, 6)))
        assert read_by_hand(text) == read_with_grammar(text), text


def test_a_level_of_parentheses_and_operators_needs_no_more_calls_than_are_allowed() -> None:
    text = "x or y and x < x + x * -x ** f("
    assert read_by_hand(text * 50 + "x" + ")" * 50) is not None
    assert read_by_hand(text * 101 + "x" + ")" * 101) is None


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

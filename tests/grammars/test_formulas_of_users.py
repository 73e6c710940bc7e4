"""Formulas: operators bind as in Python, and text in any order is read or refused in one line."""

import ast
import gc
import random
import time
from typing import Any

import pytest

from nnet3tools.errors import TextError
from nnet3tools.grammars.formula import Call, Chain, Name, Number, Power, Tree, read_formula

ATOMS = ["x", "_1", "2", ".5", "1e-3", "pi", "notable", "orb", "and_", "f(x)", "g()", "h(x, 2)"]
INFIX = ["+", "-", "*", "/", "**", "<", "<=", ">", ">=", "==", "!=", "and", "or"]
PREFIX = ["-", "+", "not ", ""]
PIECES = [
    *ATOMS,
    *INFIX,
    *PREFIX,
    "^",
    "!",
    "&&",
    "|",
    "(",
    ")",
    ",",
    ";",
    "=",
    "+=",
    " ",
    "$",
    "[",
]

PYTHON = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "Pow": "**", "Lt": "<", "LtE": "<=",
    "Gt": ">", "GtE": ">=", "Eq": "==", "NotEq": "!=", "And": "and", "Or": "or",
    "USub": "-", "UAdd": "+", "Not": "not",
}  # fmt: skip


def formula(generator: random.Random, depth: int) -> str:
    if depth == 0 or generator.random() < 0.2:
        return generator.choice(ATOMS)
    first, second = (formula(generator, depth - 1) for _ in range(2))
    symbol = generator.choice(INFIX)
    text = f"{generator.choice(PREFIX)}{first} {symbol} {generator.choice(PREFIX)}{second}"
    return text if generator.random() < 0.5 else f"({text})"


def by_python(node: ast.AST) -> Any:
    """Nested tuples (operator, operand, ...) of a Python expression."""
    name = PYTHON.get(type(getattr(node, "op", None)).__name__)
    match node:
        case ast.Expression(body):
            return by_python(body)
        case ast.BinOp(left, _, right):
            return name, by_python(left), by_python(right)
        case ast.BoolOp(_, values):
            first, *rest = map(by_python, values)
            for value in rest:
                first = name, first, value
            return first
        case ast.Compare(left, [operator], [right]):
            return PYTHON[type(operator).__name__], by_python(left), by_python(right)
        case ast.UnaryOp(_, operand):
            return name, by_python(operand)
        case ast.Call(function, arguments):
            return "call", function.id, *map(by_python, arguments)  # type: ignore[attr-defined]
        case ast.Name(word):
            return word
        case ast.Constant(value):
            return value
    raise SyntaxError


def by_grammar(tree: Tree) -> Any:
    match tree:
        case Number(value):
            return value
        case Name(name):
            return name
        case Call(function, arguments):
            return "call", function, *(by_grammar(value) for _, value in arguments)
        case Chain(first, rest):
            found = by_grammar(first)
            for operator, operand in rest:
                found = operator, found, by_grammar(operand)
            return found
        case Power(operands):
            found = None
            for signs, operand in reversed(operands):
                value = by_grammar(operand)
                found = value if found is None else ("**", value, found)
                for sign in reversed(signs):
                    found = sign, found
            return found


@pytest.mark.parametrize("seed", range(20))
def test_operators_bind_as_in_python(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(20):
        text = formula(generator, 4)
        try:
            expected = by_python(ast.parse(text, mode="eval"))
        except SyntaxError:  # a < b < c, or -not a
            with pytest.raises(TextError):
                read_formula(text)
            continue
        assert by_grammar(read_formula(text).result) == expected, text


@pytest.mark.parametrize("seed", range(20))
def test_pieces_in_any_order_are_a_formula_or_an_error_of_one_line(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(100):
        text = "".join(generator.choices(PIECES, k=generator.randint(1, 6)))
        try:
            read_formula(text)
            continue
        except TextError as caught:
            error = caught
        assert error.message.startswith("expected ") or error.message.endswith(" twice")
        assert "\n" not in str(error)
        assert 1 <= error.column <= len(text) + 1


@pytest.mark.parametrize("operator", [" + ", " ** -", " and ", ", ", "; a = "])
def test_time_grows_with_the_length_only(operator: str) -> None:
    def seconds(count: int) -> float:
        text = f"f(x{f'{operator}x' * count})"
        if operator == "; a = ":
            text = "".join(f"a{i} = x; " for i in range(count)) + "x"
        gc.disable()  # collecting the objects of all tests takes longer than reading
        began = time.process_time()
        read_formula(text)
        took = time.process_time() - began
        gc.enable()
        return took

    few = min(seconds(200) for _ in range(3))
    tries = (seconds(1600) < 8 * 3 * few for _ in range(3))
    assert any(tries), "8 times is linear, 64 times is quadratic"


def test_a_level_of_parentheses_and_operators_needs_no_more_calls_than_are_allowed() -> None:
    text = "x or y and x < x + x * -x ** f("
    read_formula(text * 100 + "x" + ")" * 100)
    for count in (101, 10_000):
        with pytest.raises(TextError, match="at most 100 levels of parentheses"):
            read_formula(text * count + "x" + ")" * count)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("a = 2; 3 4", "expected end of text, found '4'", 10),
        ("a = 2", "expected ';', found the end", 6),
        ("a = 2; a = 3; a", "'a' is defined twice", 8),
        ("f(2,)", "expected operand, found '\\)'", 5),
        ("f(x, axis=)", "expected operand, found '\\)'", 11),
        ("[1 2]", "expected ']', found '2'", 4),
        ("1 < 2 < 3", "expected end of text, found '<'", 7),
        ("1 + not 2", "expected operand, found 'not'", 5),
        ("x * 1234567890123456789", "expected a number, found an integer of 19 digits", 5),
    ],
)
def test_errors_mark_the_column(text: str, message: str, column: int) -> None:
    with pytest.raises(TextError, match=message) as caught:
        read_formula(text)
    assert caught.value.column == column
    mark = f"{text[: column - 1]} >>> {text[column - 1 :]}"
    assert str(caught.value).endswith(f"at column {column} of formula: {mark}")

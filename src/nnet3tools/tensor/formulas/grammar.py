"""The common part of the two readers of formula text: operators, their precedence, constants.

tensor.formulas.reader reads formulas of placeholders, expression.formula those of graphs; they
differ in their operands and results. (pyparsing, which did this, took 45 ms to be imported and
built and 2 ms a formula, a fifth of the start of a training. The tests hold that its grammar,
tests/support/formula_grammar.py, reads the same.)
"""

from __future__ import annotations

import contextlib
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, NoReturn, TypeVar

from nnet3tools.tensor.formulas.formula_error import FormulaError

__all__ = ["CONSTANTS", "MAX_LEVELS", "SYMBOLS", "FormulaReader", "Token", "deep_recursion"]

MAX_LEVELS = 100
"""Levels of parentheses, calls, lists and powers, and of definitions that use later ones."""

CONSTANTS = {
    "true": True,
    "false": False,
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
}

SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "div", "**": "pow", "^": "pow",
    "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
    "&&": "and", "&": "and", "and": "and", "||": "or", "|": "or", "or": "or",
}  # fmt: skip
"""Infix operator -> name of the function."""

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT = range(6)
_PRECEDENCE = {
    **dict.fromkeys(("or", "|", "||"), _OR),
    **dict.fromkeys(("and", "&", "&&"), _AND),
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), _COMPARISON),
    **dict.fromkeys("+-", _SUM),
    **dict.fromkeys("*/", _PRODUCT),
}
"""How tightly infix operators bind, from the loosest on; signs and powers bind tighter."""

_MOST_DIGITS = 18  # of an integer that int64 holds

_TOKEN = re.compile(
    r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<sign>(?:and|or|not)\b|\*\*|\|\||&&|[-+*/<>=!]=|[-+*/^<>=!&|()\[\],;])"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<other>[^ \t\r\n])"
)


class Token(NamedTuple):
    """A number, a sign (operators, parentheses, commas), a name, or the end."""

    kind: str
    word: str
    position: int


Part = TypeVar("Part")
"""What a reader makes of a subformula."""
Item = TypeVar("Item")


class FormulaReader(ABC, Generic[Part]):
    """Reads one formula by operator precedence; subclasses say what its parts become.

    Positions are those of a part's first character, for errors that mark the column.
    """

    def __init__(self, text: str) -> None:
        """FormulaError if the text is nested too deeply to be read."""
        _check_levels(text)
        self.text = text
        found = [Token(m.lastgroup or "", m[0], m.start()) for m in _TOKEN.finditer(text)]
        self._tokens = [*found, Token("end", "", len(text))]
        self._at = 0

    @abstractmethod
    def make_number(self, value: float) -> Part:
        """A number without a sign, an int or a float."""

    @abstractmethod
    def make_name(self, name: str, position: int) -> Part:
        """A name that is not called."""

    @abstractmethod
    def call(self, name: Token) -> Part:
        """Read the arguments of a function, whose parenthesis is open, and `)`."""

    @abstractmethod
    def make_chain(self, parts: list[Part], symbols: list[str], position: int) -> Part:
        """Parts with operators of one precedence between them, to be taken from the left."""

    @abstractmethod
    def make_signed(self, signs: list[str], part: Part, position: int) -> Part:
        """A part after `-`, `+`, `!` or `not`."""

    @property
    def token(self) -> Token:
        """What comes next."""
        return self._tokens[self._at]

    def next_is_assigned(self) -> bool:
        """Whether a name and `=` come next."""
        return self.token.kind == "name" and self._tokens[self._at + 1].word == "="

    def advance(self) -> Token:
        """Take what comes next."""
        token = self.token
        self._at += 1
        return token

    def expected(self, what: str) -> NoReturn:
        """FormulaError: this should have come next."""
        raise self._syntax_error(f"expected {what}")

    def expect(self, sign: str) -> Token:
        """Take this sign; FormulaError if something else comes next."""
        if self.token.word != sign:
            self.expected(f"'{sign}'")
        return self.advance()

    def expect_name(self) -> Token:
        """Take a name; FormulaError if something else comes next."""
        if self.token.kind != "name":
            self.expected("name")
        return self.advance()

    def expect_end(self) -> None:
        """FormulaError if anything comes."""
        if self.token.kind != "end":
            self.expected("end of text")

    def expression(self, loosest: int = _OR) -> Part:
        """A subformula of operators that bind at least as tightly as this."""
        position = self.token.position
        if self.token.word == "not" and loosest <= _NOT:
            part, limit = self._negated(), _NOT
        else:
            part, limit = self._signed_power(), _PRODUCT + 1
        while loosest <= (precedence := _PRECEDENCE.get(self.token.word, -1)) < limit:
            parts, symbols = [part], []
            while _PRECEDENCE.get(self.token.word) == precedence:
                symbols.append(self.advance().word)
                parts.append(self.expression(precedence + 1))
                if precedence == _COMPARISON:  # a < b < c is none
                    break
            part, limit = self.make_chain(parts, symbols, position), precedence
        return part

    def listed(self, read: Callable[[], Item], closing: str) -> list[Item]:
        """Things between commas, perhaps none, and the parenthesis that closes them."""
        found: list[Item] = []
        if self.token.word != closing:
            found.append(read())
            while self.token.word == ",":
                self.advance()
                found.append(read())
        self.expect(closing)
        return found

    def atom(self) -> Part:
        """A number, name, call, or a subformula in parentheses."""
        token = self.token
        if token.kind == "number":
            return self._number()
        if token.kind == "name":
            self.advance()
            if self.token.word != "(":
                return self.make_name(token.word, token.position)
            self.advance()
            return self.call(token)
        if token.word != "(":
            self.expected("operand")
        self.advance()
        part = self.expression()
        self.expect(")")
        return part

    def _negated(self) -> Part:
        position, signs = self.token.position, []
        while self.token.word == "not":
            signs.append(self.advance().word)
        return self.make_signed(signs, self.expression(_COMPARISON), position)

    def _signed_power(self) -> Part:
        position, signs = self.token.position, []
        while self.token.word in ("-", "+", "!"):
            signs.append(self.advance().word)
        start = self.token.position
        part = self.atom()
        if self.token.word in ("**", "^"):
            symbol = self.advance().word
            part = self.make_chain([part, self._signed_power()], [symbol], start)
        return self.make_signed(signs, part, position) if signs else part

    def _number(self) -> Part:
        word = self.token.word
        is_float = any(c in word for c in ".eE")
        if not is_float and len(word) > _MOST_DIGITS:
            raise self._syntax_error(f"an integer of {len(word)} digits")
        self.advance()
        return self.make_number(float(word) if is_float else int(word))

    def _syntax_error(self, problem: str) -> FormulaError:
        at = self.token.position
        found = repr(self.text[at]) if at < len(self.text) else "the end"
        return FormulaError(f"syntax error: {problem}, found {found}", self.text, at)


_LEVELS = re.compile(
    r"(?P<power>(?:\*\*|\^)[\s+-]*)|(?P<open>[(\[])|(?P<close>[)\]])|[-+*/<>=&|,;]"
)


def _check_levels(text: str) -> None:
    """FormulaError at the place where a formula is nested too deeply."""
    powers, total = [0], 0
    """Powers on the way at each level of parentheses; all of these."""
    for token in _LEVELS.finditer(text):
        if token["open"]:
            powers.append(0)
        elif token["power"]:
            powers[-1] += 1
            total += 1
        elif token["close"] and len(powers) > 1:
            total -= powers.pop()
        else:
            total -= powers[-1]
            powers[-1] = 0
        if total + len(powers) - 1 > MAX_LEVELS:
            raise FormulaError(
                f"the formula is nested more than {MAX_LEVELS} levels deep", text, token.start()
            )


_FRAMES = 40_000
"""Python calls in one another: a dozen a level when text is read; more in definitions."""


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Allows as many calls in one another as formulas within MAX_LEVELS need."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)

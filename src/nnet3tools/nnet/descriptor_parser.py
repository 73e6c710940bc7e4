"""Descriptors' text to expressions, with a stack of its own instead of recursion.

Kaldi prints a sum of n terms as n levels, Sum(a, Sum(b, ...)), so that whatever is printed can be
read back only if levels are no limit. (pyparsing took ten Python calls a
level, and its import a third of the time of a program that copies a model. The tests hold that its
grammar of descriptors, tests/support/descriptor_grammar.py, reads the same.)
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.descriptor_text import (
    NODES,
    OPERATORS,
    Argument,
    Dialect,
    Expression,
    Signature,
    operation,
)

__all__ = ["MAX_DEPTH", "parse_expression"]

MAX_DEPTH = 100
"""Levels of operators; an operator that is the last argument of its like is on the same level."""

_TOKEN = re.compile(r"[(),]|[^\s(),]+|[^\S \t\r\n]")
"""A parenthesis, comma or word; or a blank that is no blank to Kaldi."""


@dataclass
class _Level:
    """An operator some of whose arguments have been read."""

    name: str
    signature: Signature
    position: int
    given: list[Any] = field(default_factory=list)
    depth: int = 0
    """Levels of the deepest argument."""
    depth_before: int = 0
    """The same without the last argument."""

    @property
    def next_argument(self) -> Argument | None:
        """What may come next."""
        return self.signature.at(len(self.given))


@dataclass
class _Nested:
    """An operator that has ended, and may yet become part of its like around it.

    Its arguments are kept from the last to the first, so that those around are put to the end.
    """

    level: _Level
    backwards: list[Any]


class _Parser:
    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text, self._dialect = text, dialect
        self._tokens = _TOKEN.finditer(text)
        self._levels: list[_Level] = []
        self._next()

    def _next(self) -> None:
        match = next(self._tokens, None)
        self._token, self._at = (match[0], match.start()) if match else ("", len(self._text))

    def _error(self, expected: str, found: str = "") -> ConfigError:
        rest = found or self._text[self._at : self._at + 21].strip()
        shown = f"'{rest[:20]}{'...' if len(rest) > 20 else ''}'" if rest else "its end"
        return self._problem(f"expected {expected}, found {shown}")

    def _problem(self, message: str) -> ConfigError:
        return ConfigError(f"descriptor '{self._text}', column {self._at + 1}: {message}")

    def parse(self) -> Expression:
        """The expression that the text is."""
        while True:
            value, depth = self._argument()
            while value is not None:
                if not self._levels:
                    if self._token:
                        raise self._error("the end of the descriptor")
                    return self._sealed(value)
                value, depth = self._after(value, depth)

    def _argument(self) -> tuple[Any, int]:
        """The value of the next argument; None if it is an operator, whose level it opens."""
        kind = self._levels[-1].next_argument if self._levels else Argument.EXPRESSION
        assert kind is not None
        word, position = self._token, self._at
        of_nodes = kind is Argument.EXPRESSION
        if of_nodes and word in OPERATORS:
            self._open(word, position)
            return None, 0
        what = f"{self._dialect.leaf} or an operator such as Offset" if of_nodes else kind.value
        if word in ("", "(", ")", ","):
            raise self._error(what)
        value: Any = None
        if not of_nodes:
            value = kind.parse(word, self._dialect)
        elif self._dialect.is_leaf(word):
            value = Expression("", name=word, position=position)
        if value is None:
            raise self._error(what, word)
        self._next()
        return value, 0

    def _open(self, name: str, position: int) -> None:
        self._next()
        if self._token != "(":
            raise self._error("'('")
        self._next()
        self._levels.append(_Level(name, OPERATORS[name], position))

    def _after(self, value: Any, depth: int) -> tuple[Any, int]:
        """Take an argument's value; the value of its operator and its depth if that ends here."""
        level = self._levels[-1]
        level.given.append(value)
        level.depth_before, level.depth = level.depth, max(level.depth, depth)
        if self._token == "," and level.next_argument is not None:
            level.given[-1] = self._sealed(value)
            self._next()
            return None, 0
        if len(level.given) < level.signature.num_needed:
            raise self._error("','")
        if self._token != ")":
            raise self._error("')'")
        self._next()
        return self._closed(self._levels.pop())

    def _closed(self, level: _Level) -> tuple[Any, int]:
        last, depth = level.given[-1], level.depth + 1
        if not (level.signature.nests and self._dialect.flat):
            level.given[-1] = self._sealed(last)
            value: Any = operation(level.name, level.given, level.position)
        elif isinstance(last, _Nested) and last.level.name == level.name:
            last.backwards.extend(reversed(level.given[:-1]))
            last.level.position = level.position
            depth = max(level.depth, level.depth_before + 1)
            value = last
        else:
            level.given[-1] = self._sealed(last)
            value = _Nested(level, level.given[::-1])
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"descriptor '{self._text[:40]}...' is nested too deeply: more than {MAX_DEPTH} "
                "levels of operators"
            )
        return value, depth

    def _sealed(self, value: Any) -> Any:
        """The expression, of an operator that ended for good."""
        if not isinstance(value, _Nested):
            return value
        return Expression(
            value.level.name, tuple(reversed(value.backwards)), position=value.level.position
        )


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str, dialect: Dialect = NODES) -> Expression:
    """Parse the text of a descriptor; ConfigError with the column if it is not well formed.

    There may be any number of arguments, and MAX_DEPTH levels of operators.
    """
    return _Parser(text, dialect).parse()

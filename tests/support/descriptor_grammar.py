"""The grammar of descriptors (pyparsing): any text, and errors that say what was expected where."""

from __future__ import annotations

import functools
from typing import Any

import pyparsing as pp

from nnet3tools.errors import ConfigError
from nnet3tools.nnet.descriptor_text import (
    OPERATORS,
    Argument,
    Dialect,
    Expression,
    Signature,
    operation,
)

__all__ = ["parse_with_grammar"]


def parse_with_grammar(text: str, dialect: Dialect) -> Expression:
    """Parse the text of a descriptor; ConfigError with the column if it is not well formed."""
    try:
        return _grammar(dialect).parse_string(text, parse_all=True)[0]
    except pp.ParseBaseException as error:
        found = text[error.loc :].strip()
        found = f"'{found[:20]}{'...' if len(found) > 20 else ''}'" if found else "its end"
        message = error.msg[:1].lower() + error.msg[1:]
        if "found" not in message:
            message = f"{message}, found {found}"
        raise ConfigError(f"descriptor '{text}', column {error.loc + 1}: {message}") from None
    except RecursionError:
        raise ConfigError(f"descriptor '{text[:40]}...' is nested too deeply") from None


def _word(what: str, convert: Any) -> pp.ParserElement:
    """A token up to blank, parenthesis or comma that `convert` accepts (does not make None)."""

    def action(text: str, position: int, tokens: pp.ParseResults) -> Any:
        value = convert(tokens[0])
        if value is None:
            raise pp.ParseException(text, position, f"expected {what}, found '{tokens[0]}'")
        return value

    return pp.Regex(r"[^\s(),]+").set_name(what).set_parse_action(action)


@functools.cache
def _grammar(dialect: Dialect) -> pp.ParserElement:
    expression = pp.Forward()
    what = f"{dialect.leaf} or an operator such as Offset"
    opening, closing, comma = (pp.Suppress(c).set_name(f"'{c}'") for c in "(),")
    kinds: dict[Argument, pp.ParserElement] = {
        kind: _word(kind.value, functools.partial(kind.parse, dialect=dialect)) for kind in Argument
    }
    kinds[Argument.EXPRESSION] = expression

    def arguments(signature: Signature) -> pp.ParserElement:
        first, *others = (kinds[kind] for kind in signature.arguments)
        if signature.repeated:
            return first + pp.ZeroOrMore(comma - first)
        whole: pp.ParserElement = first
        num_needed = len(others) - signature.num_optional
        for other in others[:num_needed]:
            whole = whole - comma - other
        for other in others[num_needed:]:
            whole = whole + pp.Optional(comma - other)
        return whole

    def operator(name: str) -> pp.ParserElement:
        def action(text: str, position: int, tokens: pp.ParseResults) -> Expression:
            return operation(name, list(tokens), position)

        head = pp.Suppress(pp.Regex(name + r"(?=[\s(),]|$)"))
        return (head - opening - arguments(OPERATORS[name]) - closing).set_parse_action(action)

    def leaf(text: str, position: int, tokens: pp.ParseResults) -> Expression:
        return Expression("", name=tokens[0], position=position)

    name = _word(what, lambda text: text if dialect.is_leaf(text) else None)
    alternatives = pp.MatchFirst([*map(operator, OPERATORS), name.add_parse_action(leaf)])
    expression <<= alternatives.set_name(what)
    return expression + pp.StringEnd().set_name("the end of the descriptor")

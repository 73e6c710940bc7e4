"""Values of options that are lists with rules: --minibatch-size, --trainer.dropout-schedule."""

from __future__ import annotations

import functools
from itertools import pairwise

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.grammars.reading import fail, read_text, word

Range = tuple[int, int]
"""The smallest and the largest size."""

Point = tuple[float, float]
"""A fraction of the data, and the dropout proportion there."""


def read_minibatch_rules(text: str) -> dict[int, list[Range]]:
    """Parse `128=64:128,256/256=32`: by size of examples, allowed ranges of minibatch sizes.

    The example gives {128: [(64, 128), (256, 256)], 256: [(32, 32)]}. A rule for examples of all
    sizes, as `64:128,256`, has the key 0. TextError if the text is no such list.
    """
    what = "--minibatch-size"
    rules: dict[int, list[Range]] = {}
    found = read_text(_minibatch_rules(), text, what)
    for size, ranges, position in found:
        if size in rules or (size == 0 and len(found) > 1):
            raise TextError("expected size=sizes, each size once", text, position, what)
        rules[size] = ranges
    return rules


@functools.cache
def _minibatch_rules() -> pp.ParserElement:
    """The grammar of minibatch rules: (example size or 0 for any, [(first, last)], position)."""
    size = word(r"0{0,9}[1-9][0-9]{0,8}(?![0-9])", "a positive integer")
    size.set_parse_action(lambda t: int(t[0]))

    def to_range(text: str, position: int, tokens: pp.ParseResults) -> list[Range]:
        if tokens[0] > tokens[-1]:
            fail(text, position, f"expected a rising range, found {tokens[0]}:{tokens[-1]}")
        return [(tokens[0], tokens[-1])]

    ends = (size + pp.Opt(pp.Suppress(":") - size)).set_parse_action(to_range)
    of_examples = pp.Opt(size + pp.Suppress("="), 0)
    rule = of_examples + pp.Group(pp.DelimitedList(ends), aslist=True)
    rule.set_parse_action(lambda s, at, t: [(t[0], t[1], at)])
    return pp.Group(rule - pp.ZeroOrMore(pp.Suppress("/") - rule), aslist=True)


def read_dropout_schedule(text: str) -> list[tuple[str, list[Point]]]:
    """Parse `*=0,0.5@0.25,0 lstm*=0,0.3,0`: dropout proportions over the training by name pattern.

    Each pattern of component names comes with points (fraction of the training data, proportion).
    The first value is at fraction 0, the last at 1, the others at 0.5 or as `value@fraction` says.
    TextError if the text is no such schedule.
    """
    return read_text(_dropout_schedule(), text, "--trainer.dropout-schedule")


@functools.cache
def _dropout_schedule() -> pp.ParserElement:
    def to_number(text: str, position: int, tokens: pp.ParseResults) -> float:
        if float(tokens[0]) > 1:
            fail(text, position, f"expected a number from 0 to 1, found '{tokens[0][:20]}'")
        return float(tokens[0])

    def to_function(text: str, position: int, tokens: pp.ParseResults) -> tuple[str, list[Point]]:
        pattern, first, inner, last = tokens
        points = [(0.0, first), *inner, (1.0, last)]
        if any(a[0] > b[0] for a, b in pairwise(points)):
            fail(text, position, "expected rising fractions of the data")
        return pattern, points

    number = word(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", "a number from 0 to 1")
    number.set_parse_action(to_number)
    comma = pp.Suppress(",")
    value = number + pp.Opt(pp.Suppress("@") - number, 0.5)
    value.set_parse_action(lambda t: [(t[1], t[0])])
    inner = pp.Group(pp.ZeroOrMore(comma + value + pp.FollowedBy(",")), aslist=True)
    pattern = word(r"[^\s=]+(?==)", "a pattern") - pp.Suppress("=")
    start = pattern - number | pp.Empty().set_parse_action(lambda: "*") + number
    function = (start - inner - comma - number).set_parse_action(to_function)
    return pp.Group(pp.ZeroOrMore(function), aslist=True)

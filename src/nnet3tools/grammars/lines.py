"""Lines `word key=value key=value`: layers of xconfig files, and commands of --edits.

A value runs to the next `key=`, so `input=Append(a, b) dim=3` needs no quotes; "..." encloses text
in which `=` stands; `#` starts a comment anywhere.
"""

from __future__ import annotations

import functools
import re

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.grammars.reading import read_text, word

_FOREIGN = re.compile(r'[^\w\-.()\[\]@=,/+:\s"]', re.ASCII)

Line = tuple[str, dict[str, str]]
"""The first word of a line, and its values by key."""


def read_layer(text: str) -> Line | None:
    """(layer type, values by key) of an xconfig line; None if it is blank, TextError for errors."""
    text = text.split("#", 1)[0].rstrip()
    if foreign := _FOREIGN.search(text):
        hint = '; values that contain = stand in "..."' if foreign[0] == "'" else ""
        message = f"expected letters, digits or -.()[]@=,/+:, found {foreign[0]!a}{hint}"
        raise TextError(message, text, foreign.start(), "line")
    return _read(text, "a layer type such as relu-layer")


def read_edit(text: str) -> Line | None:
    """(command, values by key) of a line of --edits; None if it is blank, TextError for errors."""
    return _read(text.split("#", 1)[0].rstrip(), "a command such as set-learning-rate")


def _read(text: str, first: str) -> Line | None:
    if not text:
        return None
    name, pairs = read_text(_grammar(first), text, "line")
    values: dict[str, str] = {}
    for key, words, position in pairs:
        if key in values:
            raise TextError(f"'{key}' is given twice", text, position, "line")
        values[key] = " ".join(words)
    return name, values


@functools.cache
def _grammar(first: str) -> pp.ParserElement:
    """The grammar of `word key=value ...`: (word, [(key, words of value, position of key)]).

    Errors call the word `first`, such as "a layer type".
    """
    name = word(r"[a-z][-a-z0-9]+(?=\s|$)", first)
    key = word(r"[A-Za-z_][-\w]*(?==)", "key=value") - pp.Suppress("=")
    quotes = [
        pp.Suppress(q) - word(f"[^{q}]*", "text").leave_whitespace() - pp.Suppress(q) for q in "\"'"
    ]
    plain = word(r"""(?:[-\w]+(?![-\w=])|[^-\w\s="'])+""", "a value")
    pair = key - pp.Group(pp.ZeroOrMore(pp.MatchFirst([plain, *quotes])), aslist=True)
    pair.set_parse_action(lambda s, at, t: [(t[0], t[1], at)])
    pairs = pp.Group(pp.ZeroOrMore(pair), aslist=True) - pp.StringEnd().set_name("key=value")
    return pp.Group(name - pairs, aslist=True)

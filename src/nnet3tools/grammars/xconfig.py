"""Lines of an xconfig file: `layer-type key=value key=value`.

A value runs to the next `key=`, so `input=Append(a, b) dim=3` needs no quotes; "..." encloses text
in which `=` stands; `#` starts a comment anywhere.
"""

from __future__ import annotations

import functools
import re

import pyparsing as pp

from nnet3tools.errors import TextError
from nnet3tools.grammars.reading import read_text, word

__all__ = ["read_line"]

_FOREIGN = re.compile(r'[^\w\-.()\[\]@=,/+:\s"]', re.ASCII)


def read_line(text: str) -> tuple[str, dict[str, str]] | None:
    """The layer type and the values by key; None for a line that is blank or a comment.

    TextError for any other line that is not of this form.
    """
    text = text.split("#", 1)[0].rstrip()
    if not text:
        return None
    if foreign := _FOREIGN.search(text):
        hint = '; values that contain = stand in "..."' if foreign[0] == "'" else ""
        message = f"expected letters, digits or -.()[]@=,/+:, found {foreign[0]!a}{hint}"
        raise TextError(message, text, foreign.start(), "line")
    layer_type, pairs = read_text(_grammar(), text, "line")
    values: dict[str, str] = {}
    for key, words, position in pairs:
        if key in values:
            raise TextError(f"'{key}' is given twice", text, position, "line")
        values[key] = " ".join(words)
    return layer_type, values


@functools.cache
def _grammar() -> pp.ParserElement:
    """The layer type, and a list of (key, words of the value, position of the key)."""
    layer_type = word(r"[a-z][-a-z0-9]+(?=\s|$)", "a layer type such as relu-layer")
    key = word(r"[A-Za-z_][-\w]*(?==)", "key=value") - pp.Suppress("=")
    quoted = pp.Suppress('"') - word(r'[^"]*', "text").leave_whitespace() - pp.Suppress('"')
    plain = word(r'(?:[-\w]+(?![-\w=])|[^-\w\s="])+', "a value")
    pair = key - pp.Group(pp.ZeroOrMore(plain | quoted), aslist=True)
    pair.set_parse_action(lambda s, at, t: [(t[0], t[1], at)])
    pairs = pp.Group(pp.ZeroOrMore(pair), aslist=True) - pp.StringEnd().set_name("key=value")
    return pp.Group(layer_type - pairs, aslist=True)

"""The text form of a ComputationRequest, as in docs/request.txt."""

from __future__ import annotations

import functools
import re

import pyparsing as pp

from nnet3tools.grammars.reading import fail, read_text, word

Io = tuple[str, list[int], bool]
"""The name of an input or output; n, t, x of each row in turn; whether it has a derivative."""


def read_request(text: str) -> tuple[list[Io], list[Io], bool, bool]:
    """(inputs, outputs, need model derivative, store component statistics); or TextError.

    An input or output is (name, numbers n, t, x of one row after the other, has derivative).
    """
    return read_text(_grammar(), text, "request")


_INDEXES = r"(?:<I1>(?:\s+[-+]?[0-9]+){3}\s+)*"


def _numbers(text: str, position: int, tokens: pp.ParseResults) -> list[list[int]]:
    words = re.sub("<I1>", " ", tokens[0]).split()
    for number in words:
        if len(number) > 11 or not -(1 << 31) <= int(number) < 1 << 31:
            fail(text, position, f"expected integers of 32 bits, found {number[:20]}")
    return [list(map(int, words))]


def _io(text: str, position: int, tokens: pp.ParseResults) -> Io:
    name, declared, size, numbers, has_deriv = tokens
    if not declared == size == len(numbers) // 3:
        found = f"{size} and {len(numbers) // 3}"
        fail(text, position, f"expected {declared} indexes for '{name}' as declared, found {found}")
    return name, numbers, has_deriv


@functools.cache
def _grammar() -> pp.ParserElement:
    def token(name: str) -> pp.ParserElement:
        return pp.Suppress(f"<{name}>")

    size = word(r"[0-9]{1,9}(?=\s)", "a size").set_parse_action(lambda t: int(t[0]))
    truth = word(r"[TF](?=\s)", "T or F").set_parse_action(lambda t: t[0] == "T")
    indexes = word(_INDEXES, "indexes such as <I1> 0 0 0").set_parse_action(_numbers)
    io = token("IoSpecification") - word(r"[^\s<]\S*", "the name of a node")
    io = io - token("NumIndexes") - size - token("Indexes") - token("I1V") - size - indexes
    io = (io - token("HasDeriv") - truth - token("/IoSpecification")).set_parse_action(_io)

    def listed(kind: str) -> pp.ParserElement:
        def check(text: str, position: int, tokens: pp.ParseResults) -> None:
            if tokens[0] != len(tokens[1]):
                fail(
                    text,
                    position,
                    f"expected {tokens[0]} {kind} as declared, found {len(tokens[1])}",
                )

        ios = token(f"Num{kind}") - size - token(kind) - pp.Group(pp.ZeroOrMore(io), aslist=True)
        return ios.set_parse_action(check, lambda t: [t[1]])

    flags = token("NeedModelDerivative") - truth - token("StoreComponentStats") - truth
    whole = token("ComputationRequest") - listed("Inputs") - listed("Outputs") - flags
    return pp.Group(whole - token("/ComputationRequest"), aslist=True)

"""Descriptors' text to expressions, by the quick reader or the grammar."""

from __future__ import annotations

import functools

from nnet3tools.nnet.descriptor_text import NODES, Dialect, Expression, read_plain

__all__ = ["parse_expression"]


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str, dialect: Dialect = NODES) -> Expression:
    """Parse the text of a descriptor; ConfigError with the column if it is not well formed."""
    if (plain := read_plain(text, dialect)) is not None:
        return plain
    from nnet3tools.nnet.descriptor_grammar import parse_with_grammar

    return parse_with_grammar(text, dialect)

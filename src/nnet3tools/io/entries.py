"""Entries of an archive that are complete in a reader's buffer. Without NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from nnet3tools.io.stream import Reader

T = TypeVar("T")

AT_HAND = 1 << 20
"""The most bytes of the buffer in which entries are looked for at once."""
KEY = re.compile(rb"([!-~]+)[ \t]\0B")
"""The usual key of an archive, and the header of the binary record after it."""
_KEY_WITHOUT_HEADER = re.compile(rb"([!-~]+)[ \t]")


def encoded_entries(
    reader: Reader, find: Callable[[bytes, int], tuple[T, int] | None], has_header: bool = True
) -> Iterator[tuple[str, T]]:
    r"""Consume entries that are complete in the reader's buffer; yield (key, object) of each.

    `find(data, start)` returns the object at `start` and its end in `data`, or None if the full
    reader must read the object. It raises IndexError if the data end too early. `has_header`: the
    objects are binary and begin with "\0B".
    """
    pattern = KEY if has_header else _KEY_WITHOUT_HEADER
    data = reader.buffered(AT_HAND)
    start = 0
    while (key := pattern.match(data, start)) is not None:
        try:
            found = find(data, key.end())
        except IndexError:
            reader.insufficient_end = reader.offset + len(data) - start
            return
        if found is None:
            return
        value, end = found
        reader.advance(end - start)
        start = end
        yield key.group(1).decode(), value

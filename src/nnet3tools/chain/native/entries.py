"""EntryScanner: finds entries of chain examples in C, those whose layouts are known."""

from __future__ import annotations

import ctypes
import functools
import os
from array import array
from collections.abc import Sequence
from typing import Any

from nnet3tools.chain.example_format import num_acceptors
from nnet3tools.io.encoded import EncodedRecord, Layout
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.library import load_files

_load = functools.cache(load_files)
_WIDTH = 9
"""Numbers of a found entry: layout, begin and end of its key, of its record, and of two holes."""


class EntryScanner:
    """Finds successive entries whose records have one of `layouts`, by the function nn_entries."""

    def __init__(self, function: Any, layouts: Sequence[Layout]) -> None:
        self._function, self._layouts = function, layouts
        self._texts, self._pieces, self._numbers = bytearray(), array("q"), array("q")
        for layout in layouts:
            middle, last = (part for part in layout.rest if isinstance(part, bytes))
            pieces = [*layout.pieces, (middle + b"FV \x04", 0), (last, 0)]
            begin = len(self._pieces) // 3
            for text, num_skipped in pieces:
                self._pieces.extend((len(self._texts), len(text), num_skipped))
                self._texts += text
            values = layout.values
            num_rows = values["num_sequences"] * values["frames_per_sequence"]
            num_fsts = num_acceptors(values)
            self._numbers.extend(
                (begin, begin + len(pieces), num_fsts, values["label_dim"], num_rows)
            )

    def find(self, data: bytes) -> tuple[list[tuple[str, EncodedRecord[Any]]], int]:
        """The (key, record) of each entry at the start of `data`, and the end of the last one."""
        most = len(data) // 64 + 1  # every record is longer
        found = (ctypes.c_int64 * (most * _WIDTH))()
        tables = self._pieces, self._numbers
        pieces, numbers = (ctypes.c_void_p(table.buffer_info()[0]) for table in tables)
        size, num, room = map(ctypes.c_int64, (len(data), len(self._layouts), most))
        count = self._function(data, size, bytes(self._texts), pieces, numbers, num, found, room)
        values = iter(found[: count * _WIDTH])
        entries, end = list[tuple[str, EncodedRecord[Any]]](), 0
        for i, key, end_of_key, begin, end, a, b, c, d in zip(*[values] * _WIDTH, strict=True):
            holes = ((a - begin, b - begin), (c - begin, d - begin))
            record: EncodedRecord[Any] = EncodedRecord(data[begin:end], self._layouts[i], holes)
            entries.append((data[key:end_of_key].decode(), record))
        return entries, end


@functools.lru_cache(maxsize=4)
def scanner(layouts: tuple[Layout, ...]) -> EntryScanner | None:
    """The EntryScanner for those `layouts` that have no sparse matrix; None if C is not used."""
    files = ("acceptor.h", "entries.c")
    library: Any = are_native() and _load(os.path.dirname(__file__), files, "chain examples")
    if not library:
        return None
    library.nn_entries.restype = ctypes.c_int64
    return EntryScanner(library.nn_entries, [x for x in layouts if x.pieces])

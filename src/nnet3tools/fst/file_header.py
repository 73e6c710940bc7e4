"""OpenFst's binary files with standard arcs: layouts of records, and reading of the header."""

from __future__ import annotations

import numpy as np

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.file_numbers import (
    ALIGNED_VERSION,
    ALIGNMENT,
    HAS_INPUT_SYMBOLS,
    HAS_OUTPUT_SYMBOLS,
    HEADER,
    IS_ALIGNED,
    MAGIC,
    SYMBOL_TABLE_MAGIC,
)
from nnet3tools.io.stream import Reader

ARC = np.dtype([("ilabel", "<i4"), ("olabel", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
COMPACT_ARC = np.dtype([("label", "<i4"), ("weight", "<f4"), ("nextstate", "<i4")])
CONST_STATE = np.dtype(
    [
        ("final", "<f4"),
        ("pos", "<u4"),
        ("narcs", "<u4"),
        ("niepsilons", "<u4"),
        ("noepsilons", "<u4"),
    ]
)

_LONGEST_NAME = 64
_LONGEST_SYMBOL = 1 << 20


@dataclass(frozen=True)
class Header:
    """An OpenFst file's header; `flags`: bits for symbol tables and for aligned arrays."""

    kind: str
    arc_type: str
    version: int
    flags: int
    properties: int
    start: int
    num_states: int
    num_arcs: int

    @property
    def is_aligned(self) -> bool:
        """Whether the file pads arrays to start at multiples of 16 bytes."""
        return bool(self.flags & IS_ALIGNED) or self.version == ALIGNED_VERSION


def read_header(reader: Reader, arc_types: tuple[str, ...] = ("standard",)) -> Header:
    """Read a header and skip symbol tables; DataError for an arc type not in `arc_types`."""
    if reader.read_array(1, "<i4", "an FST's header")[0] != MAGIC:
        raise reader.error("expected an OpenFst file, found something else (wrong magic number)")
    kind, arcs = _read_name(reader), _read_name(reader)
    if arcs not in arc_types:
        expected = " or ".join(arc_types)
        raise reader.error(f"expected an FST with {expected} arcs, found '{arcs}'")
    raw = reader.read_array(HEADER.size, np.uint8, "an FST's header").tobytes()
    header = Header(kind, arcs, *HEADER.unpack(raw))
    if header.flags & HAS_INPUT_SYMBOLS:
        _skip_symbols(reader)
    if header.flags & HAS_OUTPUT_SYMBOLS:
        _skip_symbols(reader)
    return header


def _read_name(reader: Reader, longest: int = _LONGEST_NAME) -> str:
    size = int(reader.read_array(1, "<i4", "an FST's header")[0])
    if not 0 <= size <= longest:
        raise reader.error(f"expected a name in an FST's header, found one of {size} bytes")
    return reader.read_array(size, np.uint8, "a name").tobytes().decode("utf-8", "replace")


def _skip_symbols(reader: Reader) -> None:
    """Skip a symbol table: its name, next free number and entries."""
    if reader.read_array(1, "<i4", "a symbol table")[0] != SYMBOL_TABLE_MAGIC:
        raise reader.error("expected the FST's symbol table")
    _read_name(reader, _LONGEST_SYMBOL)
    _, size = reader.read_array(2, "<i8", "a symbol table").tolist()
    for _ in range(size):
        _read_name(reader, _LONGEST_SYMBOL)
        reader.read_array(1, "<i8", "a symbol's key")


def align(reader: Reader, header: Header) -> None:
    """Skip the padding before an array, if the file is aligned."""
    if header.is_aligned and (past := reader.offset % ALIGNMENT):
        reader.read_array(ALIGNMENT - past, np.uint8, "an FST's padding")


def num_states(reader: Reader, header: Header) -> int:
    """The header's number of states; DataError if it is negative."""
    if header.num_states < 0:
        raise reader.error(f"expected an FST, found one of {header.num_states} states")
    return header.num_states

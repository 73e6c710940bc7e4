"""Reading OpenFst's binary files: vector, const and compact_acceptor, with standard arcs."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nnet3tools.fst.file_numbers import (
    ALIGNED_VERSION,
    ALIGNMENT,
    HAS_INPUT_SYMBOLS,
    HAS_OUTPUT_SYMBOLS,
    HEADER,
    IS_ALIGNED,
    MAGIC,
    NOT_AN_ARC,
    SYMBOL_TABLE_MAGIC,
    VECTOR_STATE,
)
from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, Fst
from nnet3tools.fst.layout import ARC, COMPACT_ARC, CONST_STATE
from nnet3tools.io.stream import Reader

__all__ = [
    "Header",
    "acceptors_of_bytes",
    "check_fst",
    "read_binary_fst",
    "read_compact_acceptor",
    "read_header",
]

_LONGEST_NAME = 64
_LOOK_AHEAD = 1 << 20


@dataclass(frozen=True)
class Header:
    """What an OpenFst file begins with."""

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
        """Whether arrays begin at multiples of 16 bytes."""
        return bool(self.flags & IS_ALIGNED) or self.version == ALIGNED_VERSION


def read_binary_fst(reader: Reader) -> Fst:
    """An FST in any of the three kinds of files; DataError for anything else."""
    header = read_header(reader)
    read = _READERS.get(header.kind)
    if read is None:
        raise reader.error(f"expected an FST of kind {', '.join(_READERS)}, found '{header.kind}'")
    return check_fst(reader, read(reader, header))


def read_compact_acceptor(reader: Reader) -> Fst:
    """The compact form in which binary examples hold their acceptors."""
    header = read_header(reader)
    if header.kind != "compact_acceptor":
        raise reader.error(f"expected a compact_acceptor FST, found '{header.kind}'")
    return check_fst(reader, _read_compact(reader, header))


def read_header(reader: Reader, arc_types: tuple[str, ...] = ("standard",)) -> Header:
    """What a file of one of these arc types begins with; its symbol tables are passed over."""
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
    """Pass over a symbol table: name, next key, and its entries."""
    if reader.read_array(1, "<i4", "a symbol table")[0] != SYMBOL_TABLE_MAGIC:
        raise reader.error("expected the FST's symbol table")
    _read_name(reader, _LOOK_AHEAD)
    _, size = reader.read_array(2, "<i8", "a symbol table").tolist()
    for _ in range(size):
        _read_name(reader, _LOOK_AHEAD)
        reader.read_array(1, "<i8", "a symbol's key")


def _align(reader: Reader, header: Header) -> None:
    if header.is_aligned and (past := reader.offset % ALIGNMENT):
        reader.read_array(ALIGNMENT - past, np.uint8, "an FST's padding")


def _num_states(reader: Reader, header: Header) -> int:
    if header.num_states < 0:
        raise reader.error(f"expected an FST, found one of {header.num_states} states")
    return header.num_states


def _read_vector(reader: Reader, header: Header) -> Fst:
    """State after state: final weight, number of arcs, arcs."""
    finals, counts = array("f"), array("i")
    arcs = bytearray()
    buffer, at = b"", 0
    for state in range(_num_states(reader, header)):
        if len(buffer) - at < VECTOR_STATE.size:
            buffer, at = _refill(reader, at, VECTOR_STATE.size), 0
            if len(buffer) < VECTOR_STATE.size:
                raise reader.error(
                    f"expected an FST of {header.num_states} states, found the end of the stream "
                    f"in state {state}"
                )
        final, count = VECTOR_STATE.unpack_from(buffer, at)
        at += VECTOR_STATE.size
        if count < 0:
            raise reader.error(f"expected a state's arcs, found {count} of them")
        size = count * ARC.itemsize
        if len(buffer) - at < size:
            reader.advance(at)
            arcs += reader.read_array(count, ARC, f"the {count} arcs of state {state}").data.cast(
                "B"
            )
            buffer, at = b"", 0
        else:
            arcs += buffer[at : at + size]
            at += size
        finals.append(final)
        counts.append(count)
    reader.advance(at)
    offsets = _offsets(np.array(counts, np.int64))
    columns = _columns(np.frombuffer(arcs, ARC))
    return _of_columns(header, np.array(finals, np.float32), offsets, columns)


def _refill(reader: Reader, used: int, size: int) -> bytes:
    """Consume the bytes used and look at those that follow: at least `size`, unless it ends."""
    reader.advance(used)
    while len(buffer := reader.buffered(_LOOK_AHEAD)) < size and reader.more():
        pass
    return buffer


def _read_const(reader: Reader, header: Header) -> Fst:
    """All states, then all arcs."""
    num_states = _num_states(reader, header)
    _align(reader, header)
    states = reader.read_array(num_states, CONST_STATE, f"an FST of {num_states} states")
    finals, places = states["final"].astype(np.float32), states["pos"].copy()
    offsets = _offsets(states["narcs"])
    del states
    _align(reader, header)
    num_arcs = max(header.num_arcs, 0)
    if offsets[-1] != num_arcs or (offsets[:-1] != places).any():
        raise reader.error("the FST's states do not say where its arcs are")
    return _of_columns(header, finals, offsets, _read_columns(reader, num_arcs))


_SLAB = 1 << 20
"""Arcs of large FSTs are read so many at a time: never are all there twice."""


def _read_columns(reader: Reader, num_arcs: int) -> list[np.ndarray]:
    what = f"{num_arcs} arcs of an FST"
    if num_arcs <= _SLAB:
        return _columns(reader.read_array(num_arcs, ARC, what))
    slabs = (
        reader.read_array(min(_SLAB, num_arcs - begin), ARC, what)
        for begin in range(0, num_arcs, _SLAB)
    )
    parts = [_columns(slab) for slab in slabs]
    columns = [list(column) for column in zip(*parts, strict=True)]
    del parts
    return [np.concatenate(columns.pop(0)) for _ in range(len(columns))]


def _columns(arcs: np.ndarray) -> list[np.ndarray]:
    """Input labels, output labels, weights and next states of arcs as OpenFst has them."""
    return [
        np.ascontiguousarray(arcs[name]) for name in ("ilabel", "olabel", "weight", "nextstate")
    ]


def _of_columns(
    header: Header, finals: np.ndarray, offsets: np.ndarray, columns: list[np.ndarray]
) -> Fst:
    ilabels, olabels, weights, nextstates = columns
    return Fst(
        header.start, finals, offsets, ilabels, olabels, weights, nextstates, header.properties
    )


def _offsets(counts: np.ndarray) -> np.ndarray:
    """Where each state's arcs begin, and where the last one's end."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _read_compact(reader: Reader, header: Header) -> Fst:
    """Offsets of the states, then elements; one with label and next state -1 is a final weight."""
    num_states = _num_states(reader, header)
    _align(reader, header)
    ends = reader.read_array(num_states + 1, "<u4", f"an FST of {num_states} states")
    _align(reader, header)
    elements = reader.read_array(int(ends[-1]), COMPACT_ARC, f"{ends[-1]} elements of an FST")
    sizes = ends[1:].astype(np.int64) - ends[:-1]
    if ends[0] != 0 or (sizes < 0).any():
        raise reader.error("the FST's states do not say where its arcs are")
    is_final = elements["label"] == NOT_AN_ARC
    if (np.flatnonzero(is_final) != ends[_sources(sizes)[is_final]]).any():
        raise reader.error("the FST has a final weight after an arc")
    return _of_elements(header, sizes, elements)


def _sources(sizes: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


def _of_elements(header: Header, sizes: np.ndarray, elements: np.ndarray) -> Fst:
    is_final = elements["label"] == NOT_AN_ARC
    final_states = _sources(sizes)[is_final]
    finals = np.full(len(sizes), NOT_FINAL, np.float32)
    finals[final_states] = elements["weight"][is_final]
    arcs = elements[~is_final]
    counts = sizes.copy()
    counts[final_states] -= 1
    labels = np.ascontiguousarray(arcs["label"])
    return Fst(
        header.start,
        finals,
        np.concatenate([[0], np.cumsum(counts)]),
        labels,
        labels,
        np.ascontiguousarray(arcs["weight"]),
        np.ascontiguousarray(arcs["nextstate"]),
        header.properties,
    )


_COMPACT = "compact_acceptor", "standard"


def acceptors_of_bytes(places: Sequence[tuple[bytes, int]]) -> list[Fst]:
    """The compact acceptors that begin there, which `acceptor_walk.walk_acceptor` has gone over."""
    before = 4 + sum(4 + len(name) for name in _COMPACT)
    headers, offsets, elements = [], [], []
    for data, at in places:
        header = Header(*_COMPACT, *HEADER.unpack_from(data, at + before))
        begin = at + before + HEADER.size
        end = begin + 4 * (header.num_states + 1)
        (size,) = struct.unpack_from("<I", data, end - 4)
        headers.append(header)
        offsets.append(data[begin:end])
        elements.append(data[end : end + COMPACT_ARC.itemsize * size])
    ends = np.frombuffer(b"".join(offsets), "<u4").astype(np.int64)
    num_states = np.array([header.num_states for header in headers])
    # Each has one more offset than it has states.
    is_state = np.ones(len(ends) - 1, bool)
    is_state[np.cumsum(num_states + 1)[:-1] - 1] = False
    sizes = np.diff(ends)[is_state]
    whole = _of_elements(headers[0], sizes, np.frombuffer(b"".join(elements), COMPACT_ARC))
    last = num_states.cumsum()
    return [
        _part(whole, header, begin, end)
        for header, begin, end in zip(
            headers, (last - num_states).tolist(), last.tolist(), strict=True
        )
    ]


def _part(whole: Fst, header: Header, begin: int, end: int) -> Fst:
    """The FST of these states."""
    offsets = whole.offsets[begin : end + 1]
    arcs = slice(int(offsets[0]), int(offsets[-1]))
    labels = whole.ilabels[arcs]
    return Fst(
        header.start,
        whole.finals[begin:end],
        offsets - offsets[0],
        labels,
        labels,
        whole.weights[arcs],
        whole.nextstates[arcs],
        header.properties,
    )


_READERS: dict[str, Callable[[Reader, Header], Fst]] = {
    "vector": _read_vector,
    "const": _read_const,
    "compact_acceptor": _read_compact,
}


def check_fst(reader: Reader, fst: Fst) -> Fst:
    """The FST; DataError if a state, label or weight is none."""
    size = fst.num_states
    if not (0 <= fst.start < size or (fst.start == NO_STATE and not size)):
        raise reader.error(f"the FST starts in state {fst.start}: it has {size} states")
    wrong = np.flatnonzero((fst.nextstates < 0) | (fst.nextstates >= size))
    if len(wrong):
        raise reader.error(
            f"an arc of the FST leads to state {fst.nextstates[wrong[0]]}: it has {size} states"
        )
    if ((fst.ilabels < 0) | (fst.olabels < 0)).any():
        raise reader.error("an arc of the FST has a negative label")
    # The semiring has no NaN and no negative infinity.
    if np.isnan(fst.weights).any() or np.isnan(fst.finals).any():
        raise reader.error("the FST has a weight that is not a number")
    if (fst.weights == -np.inf).any() or (fst.finals == -np.inf).any():
        raise reader.error("the FST has a weight of minus infinity")
    return fst

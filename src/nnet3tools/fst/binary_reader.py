"""Reading OpenFst's binary files: vector, const and compact_acceptor, with standard arcs."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable

import numpy as np

from nnet3tools.fst.check import check_fst
from nnet3tools.fst.compact_reader import read_compact
from nnet3tools.fst.file_header import ARC, CONST_STATE, Header, align, num_states, read_header
from nnet3tools.fst.file_numbers import VECTOR_STATE
from nnet3tools.fst.fst import Fst
from nnet3tools.io.stream import Reader

_LOOK_AHEAD = 1 << 20


def read_binary_fst(reader: Reader) -> Fst:
    """Read an FST from a vector, const or compact_acceptor file; DataError for other kinds."""
    header = read_header(reader)
    if (read := _READERS.get(header.kind)) is None:
        raise reader.error(f"expected an FST of kind {', '.join(_READERS)}, found '{header.kind}'")
    return check_fst(reader, read(reader, header))


def _read_vector(reader: Reader, header: Header) -> Fst:
    """Read the states of a vector file: for each the final weight, number of arcs, and arcs."""
    finals, counts, columns = array("f"), array("i"), _Columns()
    left = num_states(reader, header)
    while left:
        buffer = reader.buffered(_LOOK_AHEAD)
        words = np.frombuffer(buffer, np.int32, len(buffer) // 4)
        starts, end = _whole_states(words.data, left)
        if not starts and words.nbytes < _LOOK_AHEAD and reader.more():
            continue
        if starts:
            places, is_arc = np.array(starts), np.ones(end, np.bool_)
            for word in range(_STATE_WORDS):
                is_arc[places + word] = False
            reader.advance(words.itemsize * end)
            finals.frombytes(words[places].tobytes())
            counts.frombytes(words[places + 1].tobytes())
            columns.add(words[:end][is_arc].view(ARC))
        else:
            final, arcs = _read_state(reader, header, header.num_states - left)
            finals.append(final)
            counts.append(len(arcs))
            columns.add(arcs)
        left = header.num_states - len(counts)
    offsets = _offsets(np.array(counts, np.int64))
    return columns.fst(header, np.array(finals, np.float32), offsets)


_STATE_WORDS, _ARC_WORDS = VECTOR_STATE.size // 4, ARC.itemsize // 4


def _whole_states(words: memoryview, most: int) -> tuple[list[int], int]:
    """Find where states begin, and where the last one ends, in `words`, part of a vector file.

    The search ends after `most` states, or before a state whose arcs are not all in `words`.
    """
    starts, at, size = [], 0, len(words)
    with contextlib.suppress(IndexError):
        for _ in range(most):
            end = at + _STATE_WORDS + _ARC_WORDS * words[at + 1]
            if words[at + 2] or not at < end <= size:  # the number of arcs has two words
                break
            starts.append(at)
            at = end
    return starts, at


def _read_state(reader: Reader, header: Header, state: int) -> tuple[float, np.ndarray]:
    """Read one state, of any size: (final weight, arcs). DataError if it is not complete."""
    start = reader.buffered(VECTOR_STATE.size)
    if len(start) < VECTOR_STATE.size:
        raise reader.error(
            f"expected an FST of {header.num_states} states, found the end of the stream in state "
            f"{state}"
        )
    final, count = VECTOR_STATE.unpack(start)
    if count < 0:
        raise reader.error(f"expected a state's arcs, found {count} of them")
    reader.advance(VECTOR_STATE.size)
    return final, reader.read_array(count, ARC, f"the {count} arcs of state {state}")


def _read_const(reader: Reader, header: Header) -> Fst:
    """Read the body of a const file: all states, then all arcs."""
    count = num_states(reader, header)
    align(reader, header)
    states = reader.read_array(count, CONST_STATE, f"an FST of {count} states")
    finals, offsets = states["final"].astype(np.float32), _offsets(states["narcs"])
    num_arcs = max(header.num_arcs, 0)
    if offsets[-1] != num_arcs or (offsets[:-1] != states["pos"]).any():
        raise reader.error("the FST's states do not say where its arcs are")
    del states
    align(reader, header)
    columns = _Columns()
    for begin in range(0, num_arcs, _SLAB):
        size = min(_SLAB, num_arcs - begin)
        columns.add(reader.read_array(size, ARC, f"{num_arcs} arcs of an FST"))
    return columns.fst(header, finals, offsets)


_SLAB = 1 << 18
"""Large FSTs are read in slabs of so many arcs, so that memory never holds all arcs twice."""


class _Columns:
    """The fields of arcs: input labels, output labels, weights and next states, an array each."""

    def __init__(self) -> None:
        self._columns = {
            name: array(code) for name, code in zip(ARC.names or (), "iifi", strict=True)
        }

    def add(self, arcs: np.ndarray) -> None:
        """Append OpenFst's arc records."""
        for name, column in self._columns.items():
            column.frombytes(arcs[name].tobytes())

    def fst(self, header: Header, finals: np.ndarray, offsets: np.ndarray) -> Fst:
        """The FST of all arcs that were added."""
        ilabels, olabels, weights, nextstates = (
            np.frombuffer(column, column.typecode) for column in self._columns.values()
        )
        return Fst(
            header.start, finals, offsets, ilabels, olabels, weights, nextstates, header.properties
        )


def _offsets(counts: np.ndarray) -> np.ndarray:
    """Index of each state's first arc, then the number of arcs, (N + 1,), for arc counts (N,)."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


_READERS: dict[str, Callable[[Reader, Header], Fst]] = {
    "vector": _read_vector,
    "const": _read_const,
    "compact_acceptor": read_compact,
}

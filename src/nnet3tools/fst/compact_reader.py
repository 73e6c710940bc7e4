"""Reading OpenFst's compact acceptors, which examples contain, singly or many at a time."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from nnet3tools.fst.check import check_fst
from nnet3tools.fst.file_header import COMPACT_ARC, Header, align, num_states, read_header
from nnet3tools.fst.file_numbers import HEADER, NOT_AN_ARC
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.stream import Reader


def read_compact_acceptor(reader: Reader) -> Fst:
    """Read a compact_acceptor file, the binary form of acceptors in examples."""
    header = read_header(reader)
    if header.kind != "compact_acceptor":
        raise reader.error(f"expected a compact_acceptor FST, found '{header.kind}'")
    return check_fst(reader, read_compact(reader, header))


def read_compact(reader: Reader, header: Header) -> Fst:
    """Read the body of a compact acceptor: offsets of states, then arcs and final weights."""
    states = num_states(reader, header)
    align(reader, header)
    ends = reader.read_array(states + 1, "<u4", f"an FST of {states} states")
    align(reader, header)
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
    """Decode many compact acceptors; each place is (data, offset of the acceptor in the data).

    The bytes are valid: `file_walks.walk_acceptor` has checked them.
    """
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
    counts = np.array([header.num_states for header in headers])
    # Each acceptor has one more offset than states.
    is_state = np.ones(len(ends) - 1, bool)
    is_state[np.cumsum(counts + 1)[:-1] - 1] = False
    sizes = np.diff(ends)[is_state]
    whole = _of_elements(headers[0], sizes, np.frombuffer(b"".join(elements), COMPACT_ARC))
    last = counts.cumsum()
    return [
        _part(whole, header, begin, end)
        for header, begin, end in zip(headers, (last - counts).tolist(), last.tolist(), strict=True)
    ]


def _part(whole: Fst, header: Header, begin: int, end: int) -> Fst:
    """The FST of states `begin` to `end` (exclusive) of `whole`, numbered from 0.

    Next states are counted from `begin` already; `header` has the start state and properties.
    """
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

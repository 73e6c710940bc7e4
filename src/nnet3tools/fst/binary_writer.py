"""Writing OpenFst's binary files: vector, const and compact_acceptor, with standard arcs."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from nnet3tools.fst.file_header import ARC, COMPACT_ARC, CONST_STATE
from nnet3tools.fst.file_numbers import (
    HAS_INPUT_SYMBOLS,
    HAS_OUTPUT_SYMBOLS,
    HEADER,
    MAGIC,
    NOT_AN_ARC,
    SYMBOL_TABLE_MAGIC,
    TRINARY,
    VECTOR_STATE,
    VERSION,
    all_settled,
)
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.properties import Property, all_properties
from nnet3tools.io.stream import Writer


def _write_header(
    writer: Writer,
    kind: str,
    properties: int,
    fst: Fst,
    num_arcs: int,
    arc_type: str = "standard",
    symbols: bytes = b"",
) -> None:
    names = _name(kind) + _name(arc_type)
    flags = HAS_INPUT_SYMBOLS | HAS_OUTPUT_SYMBOLS if symbols else 0
    numbers = HEADER.pack(VERSION, flags, properties, fst.start, fst.num_states, num_arcs)
    writer.write_bytes(struct.pack("<i", MAGIC) + names + numbers + 2 * symbols)


def _name(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<i", len(data)) + data


def symbol_table(name: str, numbers: Mapping[str, int]) -> bytes:
    """Make a binary symbol table: name, next free number, symbols in the order of `numbers`."""
    ordered = sorted(numbers.items(), key=lambda item: item[1])
    entries = b"".join(_name(symbol) + struct.pack("<q", number) for symbol, number in ordered)
    following = max(numbers.values(), default=-1) + 1
    sizes = struct.pack("<qq", following, len(numbers))
    return struct.pack("<i", SYMBOL_TABLE_MAGIC) + _name(name) + sizes + entries


def _arc_array(fst: Fst) -> np.ndarray:
    arcs = np.empty(fst.num_arcs, ARC)
    arcs["ilabel"], arcs["olabel"] = fst.ilabels, fst.olabels
    arcs["weight"], arcs["nextstate"] = fst.weights, fst.nextstates
    return arcs


def write_vector_header(
    writer: Writer, fst: Fst, arc_type: str = "standard", symbols: bytes = b""
) -> None:
    """Write the header of a vector file, with the property bits of `fst.properties`.

    `symbols` is a binary symbol table, or empty; `arc_type` is OpenFst's name of the weights' type.
    """
    properties = fst.properties | Property.EXPANDED | Property.MUTABLE
    _write_header(writer, "vector", properties, fst, 0, arc_type, symbols)


def write_vector_fst(writer: Writer, fst: Fst, symbols: bytes = b"") -> None:
    """Write OpenFst's vector file; `symbols` is a binary symbol table for all labels, or empty."""
    write_vector_header(writer, fst, symbols=symbols)
    arcs = _arc_array(fst).tobytes()
    ends = (fst.offsets * ARC.itemsize).tolist()
    counts = fst.counts.tolist()
    pieces = []
    for state, final in enumerate(fst.finals.tolist()):
        pieces.append(VECTOR_STATE.pack(final, counts[state]))
        pieces.append(arcs[ends[state] : ends[state + 1]])
    writer.write_bytes(b"".join(pieces))


def write_const_fst(writer: Writer, fst: Fst) -> None:
    """Write OpenFst's const file."""
    states = np.empty(fst.num_states, CONST_STATE)
    states["final"], states["pos"] = fst.finals, fst.offsets[:-1]
    states["narcs"] = fst.counts
    for name, labels in (("niepsilons", fst.ilabels), ("noepsilons", fst.olabels)):
        states[name] = np.bincount(fst.sources[labels == 0], minlength=fst.num_states)
    properties = (fst.properties | Property.EXPANDED) & ~Property.MUTABLE
    _write_header(writer, "const", properties, fst, fst.num_arcs)
    writer.write_bytes(states.tobytes() + _arc_array(fst).tobytes())


def write_compact_acceptor(writer: Writer, fst: Fst) -> None:
    """Write OpenFst's compact_acceptor file with all property bits known, as Kaldi does."""
    is_final = fst.is_final
    ends = np.zeros(fst.num_states + 1, np.int64)
    np.cumsum(fst.counts + is_final, out=ends[1:])
    elements = np.empty(int(ends[-1]), COMPACT_ARC)
    is_arc = np.ones(len(elements), bool)
    is_arc[ends[:-1][is_final]] = False
    elements["label"], elements["weight"], elements["nextstate"] = NOT_AN_ARC, 0.0, NOT_AN_ARC
    elements["label"][is_arc] = fst.ilabels
    elements["weight"][is_arc], elements["weight"][~is_arc] = fst.weights, fst.finals[is_final]
    elements["nextstate"][is_arc] = fst.nextstates
    known = fst.properties & TRINARY
    if not all_settled(known):
        known = all_properties(fst)
    properties = known | Property.EXPANDED
    _write_header(writer, "compact_acceptor", properties, fst, fst.num_arcs)
    writer.write_bytes(ends.astype("<u4").tobytes() + elements.tobytes())

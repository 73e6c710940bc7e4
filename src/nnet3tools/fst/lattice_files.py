"""Tables of lattices: OpenFst's vector files with Kaldi's weights, and Kaldi's text form."""

from __future__ import annotations

import struct

import numpy as np

from nnet3tools.errors import naming
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.binary_writer import write_vector_header
from nnet3tools.fst.check import check_fst
from nnet3tools.fst.file_header import read_header
from nnet3tools.fst.fst import NOT_FINAL
from nnet3tools.fst.lattice import CompactLattice, FinalWeight, Lattice, State, lattice_of
from nnet3tools.fst.lattice_conversion import compacted, expanded
from nnet3tools.fst.lattice_text import read_lattice_text, write_lattice_text
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader, Writer

_PLAIN, _COMPACT = "lattice4", "compactlattice44"
_ARC_TYPES = {_PLAIN: "<f4", "lattice8": "<f8", _COMPACT: "<f4", "compactlattice84": "<f8"}
"""Arc type -> data type of a cost. Like Kaldi, we also read types with double costs."""

_WEIGHT = struct.Struct("<ff")
_LABELS = struct.Struct("<ii")
_INT = struct.Struct("<i")
_COUNT = struct.Struct("<q")
_ARC = np.dtype("<i4, <i4, <f4, <f4, <i4")
"""An arc of a Lattice: input label, output label, graph cost, acoustic cost, next state."""


# -- reading


def _read_either(reader: Reader) -> Lattice | CompactLattice:
    if chr(max(reader.peek_byte(), 0)).isspace():
        lattice = read_lattice_text(reader)
    else:
        lattice = _read_binary(reader)
    check_fst(reader, lattice.fst)
    return lattice


def _read_binary(reader: Reader) -> Lattice | CompactLattice:
    header = read_header(reader, tuple(_ARC_TYPES))
    if header.kind != "vector":
        raise reader.error(f"expected a lattice of kind vector, found '{header.kind}'")
    weights = _Weights(reader, _ARC_TYPES[header.arc_type], "compact" in header.arc_type)
    states: list[State] = []
    for _ in range(header.num_states):
        final = weights.read()
        count = int(reader.read_array(1, "<i8", "a lattice's state")[0])
        if count < 0:
            raise reader.error(f"expected a state's arcs, found {count} of them")
        arcs = [weights.read_arc() for _ in range(count)]
        states.append((None if final[0] == NOT_FINAL else final, arcs))
    lattice = lattice_of(header.start, states, weights.compact)
    return replace(lattice, fst=lattice.fst.with_properties(header.properties))


class _Weights:
    """Reads weights and arcs of a binary lattice one by one, because their lengths differ."""

    def __init__(self, reader: Reader, cost_type: str, compact: bool) -> None:
        self._reader, self._type, self.compact = reader, cost_type, compact

    def read(self) -> FinalWeight:
        graph, acoustic = self._reader.read_array(2, self._type, "a lattice's weight").tolist()
        if not self.compact:
            return graph, acoustic, ()
        size = int(self._reader.read_array(1, "<i4", "a lattice's weight")[0])
        if size < 0:
            raise self._reader.error(f"expected transition ids, found {size} of them")
        ids = self._reader.read_array(size, "<i4", "transition ids").tolist() if size else ()
        return graph, acoustic, tuple(ids)

    def read_arc(self) -> tuple[int, int, FinalWeight, int]:
        ilabel, olabel = self._reader.read_array(2, "<i4", "a lattice's arc").tolist()
        weight = self.read()
        return ilabel, olabel, weight, int(self._reader.read_array(1, "<i4", "an arc")[0])


def read_lattice(reader: Reader) -> Lattice:
    """Read a lattice of either kind, in text or binary, and convert it to a Lattice."""
    lattice = _read_either(reader)
    if isinstance(lattice, Lattice):
        return lattice
    with naming(reader.name):
        return expanded(lattice)


def _read_compact(reader: Reader) -> CompactLattice:
    lattice = _read_either(reader)
    if isinstance(lattice, CompactLattice):
        return lattice
    with naming(reader.name):
        return compacted(lattice)


# -- writing


def write_lattice(writer: Writer, lattice: Lattice, digits: int = 6) -> None:
    """Write a lattice as Kaldi's WriteLattice; in text, costs have `digits` significant digits."""
    if not writer.binary:
        write_lattice_text(writer, lattice, digits)
        return
    fst = lattice.fst
    arcs = np.empty(fst.num_arcs, _ARC)
    columns = (fst.ilabels, fst.olabels, fst.weights, lattice.acoustic, fst.nextstates)
    for name, column in zip(_ARC.names or (), columns, strict=True):
        arcs[name] = column
    data, ends = arcs.tobytes(), (fst.offsets * _ARC.itemsize).tolist()
    pieces = []
    for state, (final, count) in enumerate(
        zip(lattice.final_list(), fst.counts.tolist(), strict=True)
    ):
        pieces.append(_WEIGHT.pack(*(final or (NOT_FINAL, NOT_FINAL))) + _COUNT.pack(count))
        pieces.append(data[ends[state] : ends[state + 1]])
    write_vector_header(writer, fst, _PLAIN)
    writer.write_bytes(b"".join(pieces))


def _write_compact(writer: Writer, lattice: CompactLattice) -> None:
    if not writer.binary:
        write_lattice_text(writer, lattice)
        return
    pieces = []
    for final, arcs in zip(lattice.final_list(), lattice.arc_lists(), strict=True):
        pieces.append(_packed(final or (NOT_FINAL, NOT_FINAL, ())) + _COUNT.pack(len(arcs)))
        for word, graph, acoustic, ids, target in arcs:
            weight = _packed((graph, acoustic, ids))
            pieces.append(_LABELS.pack(word, word) + weight + _INT.pack(target))
    write_vector_header(writer, lattice.fst, _COMPACT)
    writer.write_bytes(b"".join(pieces))


def _packed(weight: FinalWeight) -> bytes:
    graph, acoustic, ids = weight
    return _WEIGHT.pack(graph, acoustic) + struct.pack(f"<i{len(ids)}i", len(ids), *ids)


LATTICE: Holder[Lattice] = Holder("a lattice", read_lattice, write_lattice, has_header=False)
"""Holder of tables of Lattice; converts compact lattices."""

COMPACT_LATTICE: Holder[CompactLattice] = Holder(
    "a lattice", _read_compact, _write_compact, has_header=False
)
"""Holder of tables of CompactLattice; converts lattices of the other kind."""

"""Phone lattices, as lattice-align-phones --replace-output-symbols=true writes them.

Of Kaldi's CompactLattice only what supervisions need is kept: phones, graph costs, and how many
frames each arc has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fst.binary_reader import check_fst, read_header
from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, Fst
from nnet3tools.fst.text_form import read_att_lines
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader, Writer

__all__ = ["PHONE_LATTICE", "PhoneLattice"]

_KINDS = {"compactlattice44": "<f4", "compactlattice84": "<f8"}
"""Arc types, and how the two costs of a weight are stored."""


@dataclass(frozen=True)
class PhoneLattice:
    """An acceptor of phones with graph costs; `lengths` (A,) and `final_lengths` (N,) in frames."""

    fst: Fst
    lengths: NDArray[np.int64]
    final_lengths: NDArray[np.int64]

    def times(self) -> tuple[NDArray[np.int64], int]:
        """The frame of each state, (N,), and of the end.

        DataError unless states are in order of time, no arc is without a phone, paths to a state
        agree in length, and final states are at the end.
        """
        fst = self.fst
        if not fst.num_states:
            raise DataError("the lattice is empty")
        if fst.start != 0 or (fst.nextstates <= fst.sources).any():
            raise DataError("the lattice is not in topological order from state 0 on")
        if (fst.ilabels == 0).any():
            raise DataError("the lattice has an epsilon arc, expected a phone on each")
        times = np.full(fst.num_states, -1, np.int64)
        times[0] = 0
        arcs = zip(
            fst.sources.tolist(), fst.nextstates.tolist(), self.lengths.tolist(), strict=True
        )
        for source, target, length in arcs:
            if times[target] < 0:
                times[target] = times[source] + length
            elif times[target] != times[source] + length:
                raise DataError(f"paths to state {target} of the lattice differ in length")
        finals = np.flatnonzero(fst.is_final & (times >= 0))
        if not len(finals):
            raise DataError("the lattice has no path to a final state")
        end = int((times[finals] + self.final_lengths[finals]).max())
        if (times[finals] != end).any():
            raise DataError(
                "the lattice has a final state before its end: is it aligned to phones?"
            )
        return times, end


# -- reading


class _Builder:
    """States and arcs as they are read."""

    def __init__(self) -> None:
        self.start, self.num_states = NO_STATE, 0
        self.arcs: list[tuple[int, int, float, int, int]] = []
        self.finals: dict[int, tuple[float, int]] = {}

    def lattice(self, reader: Reader) -> PhoneLattice:
        finals = np.full(self.num_states, NOT_FINAL, np.float32)
        final_lengths = np.zeros(self.num_states, np.int64)
        for state, (cost, length) in self.finals.items():
            finals[state], final_lengths[state] = cost, length
        table = np.array(self.arcs, np.float64).reshape(-1, 5)
        sources, labels, costs, lengths, targets = table.T
        order = np.argsort(sources, kind="stable")
        fst = Fst.from_arcs(
            self.start,
            finals,
            sources.astype(np.int64),
            labels.astype(np.int64),
            costs,
            targets.astype(np.int64),
        )
        return PhoneLattice(check_fst(reader, fst), lengths[order].astype(np.int64), final_lengths)


def _read(reader: Reader) -> PhoneLattice:
    if chr(max(reader.peek_byte(), 0)).isspace():
        return _read_text(reader)
    return _read_binary(reader)


def _read_text(reader: Reader) -> PhoneLattice:
    """State, next state, phone and weight; or state and weight: "graph,acoustic,1_1_2"."""
    reader.read_line()
    builder = _Builder()
    builder.start, builder.num_states = read_att_lines(
        reader,
        "a compact lattice",
        "a lattice",
        lambda fields: _parse_line(fields, builder),
        lambda: 2 * len(builder.arcs) + len(builder.finals),
    )
    return builder.lattice(reader)


def _parse_line(fields: list[str], builder: _Builder) -> list[int]:
    state = _natural(fields[0])
    if len(fields) <= 2:
        builder.finals[state] = _parse_weight(fields[1]) if len(fields) == 2 else (0.0, 0)
        return [state]
    if len(fields) not in (3, 4):
        raise ValueError
    target, phone = _natural(fields[1]), _natural(fields[2])
    cost, length = _parse_weight(fields[3]) if len(fields) == 4 else (0.0, 0)
    builder.arcs.append((state, phone, cost, length, target))
    return [state, target]


def _natural(text: str) -> int:
    if not 0 <= (value := int(text)) < 1 << 31:
        raise ValueError
    return value


def _parse_weight(text: str) -> tuple[float, int]:
    """The graph cost, and the number of transition ids."""
    graph, _, rest = text.partition(",")
    acoustic, comma, ids = rest.partition(",")
    if not comma:
        raise ValueError
    for cost in (graph, acoustic):
        float(cost.replace("Infinity", "inf"))
    return float(graph.replace("Infinity", "inf")), len(ids.split("_")) if ids else 0


def _read_binary(reader: Reader) -> PhoneLattice:
    header = read_header(reader, tuple(_KINDS))
    if header.kind != "vector":
        raise reader.error(f"expected a lattice of kind vector, found '{header.kind}'")
    cost_type = _KINDS[header.arc_type]
    weight = _weight_reader(reader, cost_type)
    builder = _Builder()
    builder.start = header.start
    for state in range(header.num_states):
        cost, length = weight()
        if cost != NOT_FINAL:
            builder.finals[state] = (cost, length)
        count = int(reader.read_array(1, "<i8", "a lattice's state")[0])
        if count < 0:
            raise reader.error(f"expected a state's arcs, found {count} of them")
        for _ in range(count):
            phone, _ = reader.read_array(2, "<i4", "a lattice's arc").tolist()
            cost, length = weight()
            target = int(reader.read_array(1, "<i4", "a lattice's arc")[0])
            builder.arcs.append((state, phone, cost, length, target))
        builder.num_states = state + 1
    return builder.lattice(reader)


def _weight_reader(reader: Reader, cost_type: str) -> Callable[[], tuple[float, int]]:
    def read() -> tuple[float, int]:
        graph, _ = reader.read_array(2, cost_type, "a lattice's weight").tolist()
        size = int(reader.read_array(1, "<i4", "a lattice's weight")[0])
        if size < 0:
            raise reader.error(f"expected transition ids, found {size} of them")
        reader.read_array(size, "<i4", "transition ids")
        return graph, size

    return read


def _no_writing(writer: Writer, lattice: PhoneLattice) -> None:
    raise NotImplementedError("phone lattices are only read")


PHONE_LATTICE: Holder[PhoneLattice] = Holder("a lattice", _read, _no_writing, has_header=False)
"""The holder of tables of compact lattices, of which phones, costs and lengths are kept."""

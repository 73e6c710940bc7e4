"""Text form of lattices: lines of states, labels and weights, ended by an empty line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from nnet3tools.fst.fst import NO_STATE, NOT_FINAL
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight, Lattice
from nnet3tools.fst.text_form import parse_natural, read_att_lines
from nnet3tools.io.stream import Reader, Writer

_ONE: FinalWeight = (0.0, 0.0, ())


# -- reading


@dataclass
class _Lines:
    """Collects arcs and final weights of text lines, and notes which kind of lattice they fit."""

    plain: list[tuple[int, tuple[int, int, float, float, int]]] = field(default_factory=list)
    compact: list[tuple[int, CompactArc]] = field(default_factory=list)
    finals: dict[int, FinalWeight] = field(default_factory=dict)
    may_be_plain: bool = True
    may_be_compact: bool = True

    @property
    def count(self) -> int:
        """Number of times that the lines name a state."""
        return 2 * (len(self.plain) + len(self.compact)) + len(self.finals)

    def parse(self, fields: list[str]) -> list[int]:
        """Parse a line; return the states it names. ValueError if it is wrong or another kind."""
        state = parse_natural(fields[0])
        if len(fields) <= 2:
            parsed = _parse_weight(fields[1]) if len(fields) == 2 else None
            if parsed is not None and parsed[:2] != (NOT_FINAL, NOT_FINAL):
                self._settle(len(fields[1].split(",")) == 3)
            self.finals[state] = parsed or (0.0, 0.0, ())
            return [state]
        target, label = parse_natural(fields[1]), parse_natural(fields[2])
        is_compact = len(fields) == 3 or (len(fields) == 4 and "," in fields[3])
        self._settle(is_compact)
        if is_compact:
            weight = _parse_weight(fields[3]) if len(fields) == 4 else (0.0, 0.0, ())
            self.compact.append((state, (label, *weight, target)))
        elif len(fields) in (4, 5):
            graph, acoustic, _ = _parse_weight(fields[4]) if len(fields) == 5 else (0.0, 0.0, ())
            word = parse_natural(fields[3])
            self.plain.append((state, (label, word, graph, acoustic, target)))
        else:
            raise ValueError
        return [state, target]

    def _settle(self, is_compact: bool) -> None:
        self.may_be_compact &= is_compact
        self.may_be_plain &= not is_compact
        if not (self.may_be_compact or self.may_be_plain):
            raise ValueError

    def lattice(self, start: int, num_states: int) -> Lattice | CompactLattice:
        """Build the lattice; a CompactLattice if the lines fit both kinds."""
        finals = [self.finals.get(state) for state in range(num_states)]
        finals = [None if f is None or f[0] == NOT_FINAL else f for f in finals]
        if self.may_be_compact:
            arcs: list[list[CompactArc]] = [[] for _ in range(num_states)]
            for state, arc in self.compact:
                arcs[state].append(arc)
            return CompactLattice.from_lists(start, finals, arcs)
        plain: list[list] = [[] for _ in range(num_states)]
        for state, plain_arc in self.plain:
            plain[state].append(plain_arc)
        costs = [None if final is None else final[:2] for final in finals]
        return Lattice.from_lists(start, costs, plain)


def read_lattice_text(reader: Reader) -> Lattice | CompactLattice:
    """Read the lines after a key and newline as a lattice of the kind that they fit."""
    if reader.read_line().strip():
        raise reader.error("expected a newline after a lattice's key")
    lines = _Lines()
    start, num_states = read_att_lines(
        reader, "a lattice", "a lattice", lines.parse, lambda: lines.count
    )
    return lines.lattice(start, num_states)


def _parse_weight(text: str) -> FinalWeight:
    """Parse graph cost, acoustic cost and, in compact lattices, transition ids."""
    costs = text.split(",")
    if len(costs) not in (2, 3):
        raise ValueError
    graph, acoustic = (float(cost.replace("Infinity", "inf")) for cost in costs[:2])
    if graph != graph or acoustic != acoustic or min(graph, acoustic) == -NOT_FINAL:
        raise ValueError
    ids = costs[2] if len(costs) == 3 else ""
    return graph, acoustic, tuple(map(parse_natural, ids.split("_"))) if ids else ()


# -- writing


def write_lattice_text(writer: Writer, lattice: Lattice | CompactLattice, digits: int = 6) -> None:
    """Write Kaldi's text form, the start state first; costs have `digits` digits."""
    writer.write_bytes(b"\n")
    if lattice.fst.start != NO_STATE:
        if isinstance(lattice, CompactLattice):
            texts = _compact_states(lattice, digits)
        else:
            texts = _plain_states(lattice, digits)
        first = texts.pop(lattice.fst.start)
        writer.write_text(first + "".join(texts))
    writer.write_bytes(b"\n")


def _compact_states(lattice: CompactLattice, digits: int) -> list[str]:
    shown = partial(_shown_compact, digits)
    lines = [
        [f"{arc[4]}\t{arc[0]}{shown(arc[1:4])}" for arc in arcs] for arcs in lattice.arc_lists()
    ]
    return _with_finals(lines, lattice.final_list(), shown)


def _plain_states(lattice: Lattice, digits: int) -> list[str]:
    shown = partial(_shown_plain, digits)
    lines = [
        [f"{arc[4]}\t{arc[0]}\t{arc[1]}{shown((*arc[2:4], ()))}" for arc in arcs]
        for arcs in lattice.arc_lists()
    ]
    finals: list[FinalWeight | None]
    finals = [None if final is None else (*final, ()) for final in lattice.final_list()]
    return _with_finals(lines, finals, shown)


def _with_finals(
    arc_lines: list[list[str]],
    finals: list[FinalWeight | None],
    shown: Callable[[FinalWeight], str],
) -> list[str]:
    """The text of each state: its arcs, then its final weight if it is final or has no arcs.

    `shown` formats a weight.
    """
    texts = []
    for state, (lines, final) in enumerate(zip(arc_lines, finals, strict=True)):
        text = "".join(f"{state}\t{line}\n" for line in lines)
        if final is not None or not lines:
            text += f"{state}{shown(final or (NOT_FINAL, NOT_FINAL, ()))}\n"
        texts.append(text)
    return texts


def _costs(digits: int, weight: FinalWeight) -> str:
    return f"\t{weight[0]:.{digits}g},{weight[1]:.{digits}g}".replace("inf", "Infinity")


def _shown_plain(digits: int, weight: FinalWeight) -> str:
    return "" if weight == _ONE else _costs(digits, weight)


def _shown_compact(digits: int, weight: FinalWeight) -> str:
    return "" if weight == _ONE else f"{_costs(digits, weight)},{'_'.join(map(str, weight[2]))}"

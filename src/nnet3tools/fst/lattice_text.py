"""Text form of lattices: lines of states, labels and weights, ended by an empty line."""

from __future__ import annotations

from nnet3tools.fst.fst import NO_STATE, NOT_FINAL
from nnet3tools.fst.lattice import (
    CompactLattice,
    FinalWeight,
    Lattice,
    State,
    lattice_of,
    states_of,
)
from nnet3tools.fst.text_form import parse_cost, parse_natural, read_att_lines
from nnet3tools.io.stream import Reader, Writer

_ONE: FinalWeight = (0.0, 0.0, ())


# -- reading


class _Lines:
    """Collects arcs and final weights from text lines; notes which kinds of lattice they fit."""

    def __init__(self) -> None:
        self._arcs: list[tuple[int, tuple[int, int, FinalWeight, int]]] = []
        """The state that each arc leaves, and the arc."""
        self._finals: dict[int, FinalWeight] = {}
        self._may_be_plain = self._may_be_compact = True

    def num_named(self) -> int:
        """Number of mentions of states in the lines so far."""
        return 2 * len(self._arcs) + len(self._finals)

    def parse(self, fields: list[str]) -> list[int]:
        """Parse the fields of a line; return the states it names.

        ValueError if the line is malformed, or fits no kind of lattice that the earlier lines fit.
        """
        state = parse_natural(fields[0])
        if len(fields) <= 2:
            parsed = _parse_weight(fields[1]) if len(fields) == 2 else None
            if parsed is not None and parsed[:2] != (NOT_FINAL, NOT_FINAL):
                self._settle(len(fields[1].split(",")) == 3)
            self._finals[state] = parsed or _ONE
            return [state]
        is_compact = len(fields) == 3 or (len(fields) == 4 and "," in fields[3])
        self._settle(is_compact)
        target, ilabel = parse_natural(fields[1]), parse_natural(fields[2])
        if is_compact:
            olabel, weight = ilabel, _parse_weight(fields[3]) if len(fields) == 4 else _ONE
        elif len(fields) in (4, 5):
            olabel = parse_natural(fields[3])
            graph, acoustic, _ = _parse_weight(fields[4]) if len(fields) == 5 else _ONE
            weight = graph, acoustic, ()
        else:
            raise ValueError
        self._arcs.append((state, (ilabel, olabel, weight, target)))
        return [state, target]

    def _settle(self, is_compact: bool) -> None:
        self._may_be_compact &= is_compact
        self._may_be_plain &= not is_compact
        if not (self._may_be_compact or self._may_be_plain):
            raise ValueError

    def lattice(self, start: int, num_states: int) -> Lattice | CompactLattice:
        """Build the lattice of the lines; it is a CompactLattice if the lines fit both kinds."""
        finals = [self._finals.get(state) for state in range(num_states)]
        states: list[State] = [(None if f is None or f[0] == NOT_FINAL else f, []) for f in finals]
        for state, arc in self._arcs:
            states[state][1].append(arc)
        return lattice_of(start, states, self._may_be_compact)


def read_lattice_text(reader: Reader) -> Lattice | CompactLattice:
    """Read the lines after a key and newline as a lattice of the kind that they fit."""
    if reader.read_line().strip():
        raise reader.error("expected a newline after a lattice's key")
    lines = _Lines()
    whole = "a lattice"
    return lines.lattice(*read_att_lines(reader, whole, whole, lines.parse, lines.num_named))


def _parse_weight(text: str) -> FinalWeight:
    """Parse a weight: graph cost, acoustic cost and, in compact lattices, transition ids."""
    costs = text.split(",")
    if len(costs) not in (2, 3):
        raise ValueError
    graph, acoustic = map(parse_cost, costs[:2])
    if graph != graph or acoustic != acoustic or min(graph, acoustic) == -NOT_FINAL:
        raise ValueError
    ids = costs[2] if len(costs) == 3 else ""
    return graph, acoustic, tuple(map(parse_natural, ids.split("_"))) if ids else ()


# -- writing


def write_lattice_text(writer: Writer, lattice: Lattice | CompactLattice, digits: int = 6) -> None:
    """Write Kaldi's text form, the start state first; costs have `digits` significant digits."""
    is_compact = isinstance(lattice, CompactLattice)

    def labels(ilabel: int, olabel: int) -> str:
        return f"{ilabel}" if is_compact else f"{ilabel}\t{olabel}"

    def shown(weight: FinalWeight) -> str:
        if weight == _ONE:
            return ""
        costs = ",".join(f"{cost:.{digits}g}" for cost in weight[:2]).replace("inf", "Infinity")
        return f"\t{costs},{'_'.join(map(str, weight[2]))}" if is_compact else f"\t{costs}"

    texts = []
    for state, (final, arcs) in enumerate(states_of(lattice)):
        lines = [
            f"{state}\t{target}\t{labels(ilabel, olabel)}{shown(weight)}\n"
            for ilabel, olabel, weight, target in arcs
        ]
        if final is not None or not arcs:
            lines.append(f"{state}{shown(final or (NOT_FINAL, NOT_FINAL, ()))}\n")
        texts.append("".join(lines))
    writer.write_bytes(b"\n")
    if lattice.fst.start != NO_STATE:
        writer.write_text(texts.pop(lattice.fst.start) + "".join(texts))
    writer.write_bytes(b"\n")

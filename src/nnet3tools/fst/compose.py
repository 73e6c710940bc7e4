"""Composition of FSTs whose matched sides have no epsilons."""

from __future__ import annotations

from collections import defaultdict

from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst

__all__ = ["ArcsByLabel", "compose"]


class ArcsByLabel:
    """The arcs of an FST by state and input label, in their order, made as they are asked for."""

    def __init__(self, fst: Fst) -> None:
        self._lists = fst.arc_lists()
        self._tables: dict[int, dict[int, list[ArcTuple]]] = {}

    def of(self, state: int) -> dict[int, list[ArcTuple]]:
        """Input label -> arcs."""
        if (table := self._tables.get(state)) is None:
            table = defaultdict(list)
            for arc in self._lists[state]:
                table[arc[0]].append(arc)
            self._tables[state] = table = dict(table)
        return table


def compose(first: Fst, second: Fst | tuple[Fst, ArcsByLabel]) -> Fst:
    """The connected FST that reads what `first` reads and writes what `second` makes of its output.

    Neither may have epsilons where they meet. States are numbered as OpenFst does where it looks
    the labels of `first` up in `second`. For many compositions with one `second`, give the table of
    its arcs with it.
    """
    other, table = second if isinstance(second, tuple) else (second, ArcsByLabel(second))
    if not first.num_states or not other.num_states:
        return Fst.empty()
    lists, finals1, finals2 = first.arc_lists(), first.finals.tolist(), other.finals.tolist()
    pairs = [(first.start, other.start)]
    numbers = {pairs[0]: 0}
    arcs: list[list[ArcTuple]] = []
    finals: list[float] = []
    for state1, state2 in pairs:  # which grows
        found: list[ArcTuple] = []
        matches = table.of(state2)
        for ilabel, olabel, weight1, target1 in lists[state1]:
            for _, output, weight2, target2 in matches.get(olabel, ()):
                pair = (target1, target2)
                if (number := numbers.get(pair)) is None:
                    number = numbers[pair] = len(pairs)
                    pairs.append(pair)
                found.append((ilabel, output, weight1 + weight2, number))
        arcs.append(found)
        both = finals1[state1] + finals2[state2]
        finals.append(both if both < NOT_FINAL else NOT_FINAL)
    return connect(Fst.from_lists(0, finals, arcs))

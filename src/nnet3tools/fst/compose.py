"""Composition of FSTs, without and with epsilons on the matched sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst


class ArcsByLabel:
    """Finds an FST's arcs by state and input label (output label if made with output=True)."""

    def __init__(self, fst: Fst, output: bool = False) -> None:
        self.start, self.finals = fst.start, fst.finals.tolist()
        self._lists, self._output = fst.arc_lists(), output
        self._tables: dict[int, dict[int, list[ArcTuple]]] = {}

    def by_label(self, state: int) -> dict[int, list[ArcTuple]]:
        """The arcs of a state by input label (output label if made with output=True); cached."""
        if (table := self._tables.get(state)) is None:
            table = defaultdict(list)
            for arc in self._lists[state]:
                table[arc[1] if self._output else arc[0]].append(arc)
            self._tables[state] = table = dict(table)
        return table

    def only_epsilons(self, state: int) -> bool:
        """Whether a state is not final and none of its arcs has a label other than epsilon."""
        return self.finals[state] == NOT_FINAL and self.by_label(state).keys() <= {EPSILON}


class _ArcsOfLabels:
    """Finds the arcs of a state with epsilon or one of given labels as input, in their order."""

    def __init__(self, fst: Fst) -> None:
        self._lists = fst.arc_lists()
        self._places: dict[int, dict[int, list[int]]] = {}

    def reading(self, state: int, labels: Collection[int]) -> list[ArcTuple]:
        """The arcs of a state with input epsilon or one of `labels`; all, if that is faster."""
        arcs = self._lists[state]
        if len(arcs) <= _FEW_ARCS or len(arcs) <= 4 * len(labels):
            return arcs
        if (table := self._places.get(state)) is None:
            table = self._places[state] = {}
            for place, arc in enumerate(arcs):
                table.setdefault(arc[0], []).append(place)
        found = [place for label in {EPSILON, *labels} for place in table.get(label, ())]
        return [arcs[place] for place in sorted(found)]


_FEW_ARCS = 8


def compose(first: Fst, second: Fst | ArcsByLabel) -> Fst:
    """Compose two FSTs without epsilons on the matched sides; the result is connected.

    States are numbered as by OpenFst if it looks up the output labels of `first` in `second`. For
    repeated compositions with one `second`, pass an ArcsByLabel made once.
    """
    table = second if isinstance(second, ArcsByLabel) else ArcsByLabel(second)
    if not first.num_states or not table.finals:
        return Fst.empty()
    lists, finals1, finals2 = first.arc_lists(), first.finals.tolist(), table.finals
    pairs = [(first.start, table.start)]
    numbers = {pairs[0]: 0}
    arcs: list[list[ArcTuple]] = []
    finals: list[float] = []
    for state1, state2 in pairs:  # grows during the loop
        found: list[ArcTuple] = []
        matches = table.by_label(state2)
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


def compose_with_loops(first: Fst, second: Fst) -> Fst:
    """Compose a transducer and an acceptor; both may have epsilons. The result is connected.

    If both can move on an epsilon, `first` moves before `second` (OpenFst's sequence filter).
    States are numbered as by OpenFst if it looks up labels of `second` in `first`.
    """
    if not first.num_states or not second.num_states:
        return Fst.empty()
    writing, reading = ArcsByLabel(first, output=True), _ArcsOfLabels(second)
    finals1, finals2 = first.finals.tolist(), second.finals.tolist()
    triples = [(first.start, second.start, 0)]
    numbers = {triples[0]: 0}
    arcs: list[list[ArcTuple]] = []
    finals: list[float] = []

    def number_of(state1: int, state2: int, alone: int) -> int:
        triple = (state1, state2, alone)
        if (number := numbers.get(triple)) is None:
            number = numbers[triple] = len(triples)
            triples.append(triple)
        return number

    for state1, state2, alone in triples:  # grows during the loop
        matches = writing.by_label(state1)
        silent = matches.get(EPSILON, [])
        found: list[ArcTuple] = []
        if not alone:
            for ilabel, _, weight, target in silent:
                found.append((ilabel, EPSILON, weight, number_of(target, state2, 0)))
        for label, olabel, weight2, target2 in reading.reading(state2, matches):
            if label == EPSILON:
                if not writing.only_epsilons(state1):
                    moved = number_of(state1, target2, int(bool(silent)))
                    found.append((EPSILON, olabel, weight2, moved))
                continue
            for ilabel, _, weight1, target1 in matches.get(label, ()):
                moved = number_of(target1, target2, 0)
                found.append((ilabel, olabel, weight1 + weight2, moved))
        arcs.append(found)
        both = finals1[state1] + finals2[state2]
        finals.append(both if both < NOT_FINAL else NOT_FINAL)
    return connect(Fst.from_lists(0, finals, arcs))

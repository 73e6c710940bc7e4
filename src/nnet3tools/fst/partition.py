"""Minimization of acceptors with cycles by partition refinement (Hopcroft's algorithm).

Which state of a class remains, and so the numbers of states, depends on the order in which classes
and members are processed. It is OpenFst's (fst/minimize.h, fst/partition.h).
"""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst, sort_order
from nnet3tools.fst.minimize import merged_acyclic, top_order
from nnet3tools.fst.properties import is_deterministic

Members = dict[int, None]
"""The states of a class in the order of insertion; they are visited in reverse order."""


def minimize_encoded(fst: Fst) -> Fst:
    """Merge equivalent states of an acceptor whose weights are all zero.

    Arcs are sorted (label, next state). A nondeterministic acceptor may keep equivalent states.
    """
    fst = connect(fst)
    if not fst.num_states:
        return fst
    if (order := top_order(fst)) is not None and is_deterministic(fst):
        return merged_acyclic(fst, order)
    return _merged(fst, _Refinement(fst).classes())


def _merged(fst: Fst, classes: list[list[int]]) -> Fst:
    """The FST with the first state of each class, which gets the arcs of all members."""
    representative = [0] * fst.num_states
    for members in classes:
        for state in members:
            representative[state] = members[0]
    lists = fst.arc_lists()
    arcs: list[list[ArcTuple]] = [[] for _ in lists]
    for members in classes:
        found = {
            (i, o, representative[target]): weight
            for state in members
            for i, o, weight, target in lists[state]
        }
        arcs[members[0]] = [
            (i, o, weight, target) for (i, o, target), weight in sorted(found.items())
        ]
    return connect(Fst.from_lists(representative[fst.start], fst.finals.tolist(), arcs))


class _EnteringArcs:
    """Arcs into one state that are still to be visited; `<` compares the labels of the first arcs.

    They are arcs `at` to `end` - 1 of all, sorted by next state and label; `label` is the first's.
    """

    __slots__ = ("at", "end", "label")

    def __init__(self, at: int, end: int, label: int) -> None:
        self.at, self.end, self.label = at, end, label

    def __lt__(self, other: _EnteringArcs) -> bool:
        return self.label < other.label


class _Refinement:
    """Splits classes of states until the states of each class are equivalent."""

    def __init__(self, fst: Fst) -> None:
        self._class_of = _first_classes(fst)
        self._members: list[Members] = [{} for _ in range(max(self._class_of) + 1)]
        for state, number in enumerate(self._class_of):
            self._members[number][state] = None
        self._marked: dict[int, Members] = {}
        order = sort_order(fst.nextstates, fst.ilabels)
        self._sources: list[int] = fst.sources[order].tolist()
        self._labels: list[int] = fst.ilabels[order].tolist()
        counts = np.bincount(fst.nextstates, minlength=fst.num_states)
        self._ends: list[int] = [0, *np.cumsum(counts).tolist()]

    def classes(self) -> list[list[int]]:
        """The members of each class after refinement."""
        self._waiting = list(range(len(self._members)))
        while self._waiting:
            self._split_by(self._waiting.pop())
        return [list(reversed(members)) for members in self._members]

    def _split_by(self, number: int) -> None:
        """For each label, separate states with an arc into class `number` from states without."""
        heap: list[_EnteringArcs] = []
        for state in reversed(self._members[number]):
            begin, end = self._ends[state], self._ends[state + 1]
            if begin < end:
                heapq.heappush(heap, _EnteringArcs(begin, end, self._labels[begin]))
        label = -1
        while heap:
            arcs = heapq.heappop(heap)
            if arcs.label != label:
                self._finish_split()
            label = arcs.label
            self._mark(self._sources[arcs.at])
            arcs.at += 1
            if arcs.at < arcs.end:
                arcs.label = self._labels[arcs.at]
                heapq.heappush(heap, arcs)
        self._finish_split()

    def _mark(self, state: int) -> None:
        number = self._class_of[state]
        members = self._members[number]
        if state not in members:
            return  # already marked
        if (marked := self._marked.get(number)) is None:
            if len(members) == 1:
                return
            marked = self._marked[number] = {}
        del members[state]
        marked[state] = None

    def _finish_split(self) -> None:
        """Split classes with marked and unmarked states; the smaller part becomes a new class."""
        for number, marked in self._marked.items():
            others = self._members[number]
            if not others:
                self._members[number] = marked
                continue
            new, old = (others, marked) if len(others) < len(marked) else (marked, others)
            self._members[number] = old
            for state in new:
                self._class_of[state] = len(self._members)
            self._waiting.append(len(self._members))
            self._members.append(new)
        self._marked.clear()


def _first_classes(fst: Fst) -> list[int]:
    """The initial class of each state: by finality and the set of labels of outgoing arcs."""
    numbers: dict[tuple[bool, tuple[int, ...]], int] = {}
    classes = []
    labels, ends = fst.ilabels, fst.offsets
    new = np.ones(fst.num_arcs, bool)
    new[1:] = (labels[1:] != labels[:-1]) | (fst.sources[1:] != fst.sources[:-1])
    kept: NDArray[np.int32] = labels[new]
    places = np.concatenate([[0], np.cumsum(new)])[ends].tolist()
    sequence = kept.tolist()
    for state, final in enumerate(fst.finals.tolist()):
        key = final != NOT_FINAL, tuple(sequence[places[state] : places[state + 1]])
        classes.append(numbers.setdefault(key, len(numbers)))
    return classes

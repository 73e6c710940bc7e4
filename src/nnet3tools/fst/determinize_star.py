"""Determinization of transducers with epsilon removal (Kaldi's DeterminizeStarInLog).

The subset construction of Mohri, "Finite-State Transducers in Language and Speech Processing",
1997, in which an element of a subset also carries output labels not yet written. Weights are added
in the log semiring, which keeps the total weight over all paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.std_sort import std_sort_order
from nnet3tools.fst.weights import log_sum, single

DELTA = 1.0 / 1024.0
"""Weights that differ by no more count as equal when subsets are compared (OpenFst's kDelta)."""

_NOT_FUNCTIONAL = (
    "FST was not functional -> not determinizable (one input has several outputs: are there enough "
    "disambiguation symbols?)"
)

Labels = tuple[int, ...]


class _Element(NamedTuple):
    """A state of the input FST, its residual weight, and the output labels still to be written."""

    state: int
    weight: float
    owed: Labels


class _NewArc(NamedTuple):
    """An output arc that may write several labels; a final weight is an arc with `target` -1."""

    label: int
    written: Labels
    weight: float
    target: int


_FINAL = -1


def determinize_star(fst: Fst, max_states: int | None = None) -> Fst:
    """An equivalent FST without input epsilons and with one arc per state and input label.

    An arc with several output labels becomes a chain of arcs, of which only the first has an input
    label. DataError if one input has two different outputs, or if there would be more than
    `max_states` states.
    """
    if not fst.num_states:
        return fst
    return _written_out(_Determinizer(fst.sorted_by_input(), max_states).run())


def _written_out(arcs_of: list[list[_NewArc]]) -> Fst:
    """Build the FST, with additional states for arcs that write more than one label."""
    arcs: list[list[ArcTuple]] = [[] for _ in arcs_of]
    finals = [NOT_FINAL] * len(arcs_of)
    for source, new_arcs in enumerate(arcs_of):
        for label, written, weight, target in new_arcs:
            state, rest = source, list(written)
            first = (label, weight)
            num_between = len(rest) if target == _FINAL else len(rest) - 1
            for olabel in rest[: max(num_between, 0)]:
                arcs.append([])
                finals.append(NOT_FINAL)
                arcs[state].append((first[0], olabel, first[1], len(arcs) - 1))
                state, first = len(arcs) - 1, (EPSILON, 0.0)
            if target == _FINAL:
                finals[state] = first[1]
            else:
                last = rest[-1] if rest else EPSILON
                arcs[state].append((first[0], last, first[1], target))
    return Fst.from_lists(0, finals, arcs)


@dataclass
class _SubsetNumbers:
    """Numbers of subsets of input states, found by states and labels, and by weights within DELTA.

    `by_key`: (weights of the states, number of the subset) by states and labels. `count`: subsets.
    """

    by_key: dict[tuple, list[tuple[list[float], int]]] = field(default_factory=dict)
    count: int = 0

    def number_of(self, subset: list[_Element]) -> tuple[int, bool]:
        """(number of the subset, whether the subset is new); a new subset gets the next number."""
        key = tuple((element.state, element.owed) for element in subset)
        weights = [element.weight for element in subset]
        candidates = self.by_key.setdefault(key, [])
        for known, number in reversed(candidates):
            if all(abs(a - b) <= DELTA for a, b in zip(known, weights, strict=True)):
                return number, False
        candidates.append((weights, self.count))
        self.count += 1
        return self.count - 1, True


class _Determinizer:
    """The subset construction; the subset that was found last is processed first."""

    def __init__(self, fst: Fst, max_states: int | None) -> None:
        self._start, self._lists, self._finals = fst.start, fst.arc_lists(), fst.finals.tolist()
        self._max_states = max_states
        self._numbers = _SubsetNumbers()
        self._arcs: list[list[_NewArc]] = []
        self._stack: list[tuple[list[_Element], int]] = []

    def run(self) -> list[list[_NewArc]]:
        """Determinize; returns the arcs of each state of the result, by state number."""
        self._number_of([_Element(self._start, 0.0, ())])
        while self._stack:
            subset, number = self._stack.pop()
            closed = self._closure(subset)
            total = NOT_FINAL
            owed: Labels = ()
            for element in closed:
                if (final := self._finals[element.state]) == NOT_FINAL:
                    continue
                if total != NOT_FINAL and owed != element.owed:
                    raise DataError(_NOT_FUNCTIONAL)
                owed = element.owed
                total = log_sum(total, single(element.weight + final))
            if total != NOT_FINAL:
                self._arcs[number].append(_NewArc(EPSILON, owed, total, _FINAL))
            self._add_arcs(closed, number)
            if self._max_states is not None and len(self._arcs) > self._max_states:
                raise DataError(f"determinisation makes more than {self._max_states} states")
        return self._arcs

    def _number_of(self, subset: list[_Element]) -> int:
        number, new = self._numbers.number_of(subset)
        if new:
            self._arcs.append([])
            self._stack.append((subset, number))
        return number

    def _epsilons(self, element: _Element) -> list[_Element]:
        """The elements one epsilon further: one for each epsilon arc of the element's state."""
        found = []
        for ilabel, olabel, weight, target in self._lists[element.state]:
            if ilabel != EPSILON:
                break
            owed = (*element.owed, olabel) if olabel else element.owed
            found.append(_Element(target, single(element.weight + weight), owed))
        return found

    def _closure(self, subset: list[_Element]) -> list[_Element]:
        """The subset extended by all states that epsilon arcs reach, sorted by state."""
        beginning = [after for element in subset for after in self._epsilons(element)]
        return _Closure(subset).grown(beginning, self._epsilons) if beginning else subset

    def _add_arcs(self, subset: list[_Element], number: int) -> None:
        by_label: dict[int, list[_Element]] = {}
        elements: list[tuple[int, _Element]] = []
        for state, owed_weight, owed in subset:
            for ilabel, olabel, weight, target in self._lists[state]:
                if ilabel != EPSILON:
                    labels = (*owed, olabel) if olabel else owed
                    after = _Element(target, single(owed_weight + weight), labels)
                    elements.append((ilabel, after))
        for place in _sorted_places(elements):
            label, element = elements[place]
            by_label.setdefault(label, []).append(element)
        for label, found in by_label.items():
            written, total, rest = _divided(_merged(found))
            self._arcs[number].append(_NewArc(label, written, total, self._number_of(rest)))


def _sorted_places(elements: list[tuple[int, _Element]]) -> list[int]:
    """The positions of `elements`, (label, element), sorted by label and state.

    Elements with equal keys keep std::sort's order, because their weights are summed in it.
    """
    keys = [label << 32 | element.state for label, element in elements]
    if len(keys) > 16 and len(set(keys)) < len(keys):
        return std_sort_order(keys)
    return sorted(range(len(keys)), key=keys.__getitem__)


def _merged(elements: list[_Element]) -> list[_Element]:
    """Merge elements of the same state by adding their weights; `elements` are sorted by state."""
    merged: list[_Element] = []
    for element in elements:
        if not merged or merged[-1].state != element.state:
            merged.append(element)
            continue
        if merged[-1].owed != element.owed:
            raise DataError(_NOT_FUNCTIONAL)
        total = log_sum(merged[-1].weight, element.weight)
        merged[-1] = element._replace(weight=total)
    return merged


def _divided(subset: list[_Element]) -> tuple[Labels, float, list[_Element]]:
    """Split a subset into (output labels common to all, total weight, subset without these)."""
    if len(subset) == 1:
        (only,) = subset
        return only.owed, only.weight, [_Element(only.state, 0.0, ())]
    common = subset[0].owed
    for element in subset[1:]:
        same = 0
        for ours, theirs in zip(common, element.owed, strict=False):
            if ours != theirs:
                break
            same += 1
        common = common[:same]
    total = subset[0].weight
    for element in subset[1:]:
        total = log_sum(total, element.weight)
    size = len(common)
    return (
        common,
        total,
        [_Element(e.state, single(e.weight - total), e.owed[size:]) for e in subset],
    )


class _Closure:
    """Epsilon closure of a subset, with the sum of the weights of all paths to each state.

    A state's weight is propagated in portions: the increase since the last propagation waits until
    it changes the sum by more than DELTA.
    """

    def __init__(self, subset: list[_Element]) -> None:
        self._owed = {element.state: element.owed for element in subset}
        self._sent = dict.fromkeys(self._owed, NOT_FINAL)
        self._waiting = {element.state: element.weight for element in subset}
        self._queued: set[int] = set()
        self._queue: list[int] = []

    def grown(
        self, beginning: list[_Element], epsilons: Callable[[_Element], list[_Element]]
    ) -> list[_Element]:
        """The elements that one or more epsilon arcs lead to, sorted by state.

        `beginning` are the elements one epsilon away. `epsilons(element)` returns the elements one
        epsilon away from an element.
        """
        for element in beginning:
            self._add(element)
        for state in self._queue:  # which grows
            weight = self._waiting[state]
            self._sent[state] = log_sum(self._sent[state], weight)
            self._waiting[state] = NOT_FINAL
            self._queued.discard(state)
            for after in epsilons(_Element(state, weight, self._owed[state])):
                self._add(after)
        return [
            _Element(state, log_sum(self._sent[state], self._waiting[state]), self._owed[state])
            for state in sorted(self._owed)
        ]

    def _add(self, element: _Element) -> None:
        state = element.state
        if (owed := self._owed.get(state)) is None:
            self._owed[state], self._sent[state] = element.owed, NOT_FINAL
            self._waiting[state] = element.weight
        else:
            if owed != element.owed:
                raise DataError(_NOT_FUNCTIONAL)
            sent = self._sent[state]
            self._waiting[state] = waiting = log_sum(self._waiting[state], element.weight)
            if state in self._queued or abs(log_sum(sent, waiting) - sent) <= DELTA:
                return
        self._queued.add(state)
        self._queue.append(state)

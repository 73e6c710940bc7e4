"""Determinization of weighted acceptors: the subset construction with residual weights."""

from __future__ import annotations

import math

from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.weights import single

_DELTA = 1.0 / 1024.0
"""Residual weights are rounded to multiples of this (OpenFst's kDelta)."""

_MOST_MEMBERS = 10_000_000
"""Limit (1 GB) on the states in all subsets, if `max_states` is given.

A supervision has few states in a subset; a damaged one may have all of them.
"""

Subset = tuple[tuple[int, float], ...]
"""(state, residual weight) pairs, sorted by state."""


def determinize(fst: Fst, max_states: int | None = None) -> Fst:
    """An equivalent acceptor without two arcs of one label from a state, sorted by label.

    An epsilon counts as a label. States are numbered in the order of discovery. With `max_states`,
    DataError if the result has more states, as may happen if `fst` has cycles, or if the subsets
    get too large.
    """
    if not fst.num_states:
        return fst
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    subsets: list[Subset] = [((fst.start, 0.0),)]
    numbers = {subsets[0]: 0}
    arcs: list[list[ArcTuple]] = []
    new_finals: list[float] = []
    num_members = 1
    for subset in subsets:  # which grows
        found: list[ArcTuple] = []
        for label, weight, target in _arcs_of_subset(subset, lists):
            if (number := numbers.get(target)) is None:
                number = numbers[target] = len(subsets)
                subsets.append(target)
                num_members += len(target)
                if max_states is not None and number >= max_states:
                    raise DataError(f"determinisation makes more than {max_states} states")
                if max_states is not None and num_members > _MOST_MEMBERS:
                    raise DataError(
                        f"determinisation puts more than {_MOST_MEMBERS} states into its subsets"
                    )
            found.append((label, label, weight, number))
        arcs.append(found)
        new_finals.append(_final_weight(subset, finals))
    return Fst.from_lists(0, new_finals, arcs)


def _final_weight(subset: Subset, finals: list[float]) -> float:
    if len(subset) == 1 and not subset[0][1]:
        return finals[subset[0][0]]
    return min(single(owed + finals[state]) for state, owed in subset)


def _arcs_of_subset(subset: Subset, lists: list[list[ArcTuple]]) -> list[tuple[int, float, Subset]]:
    """The (label, weight, next subset) of each arc that leaves a subset, sorted by label.

    `lists` has the arcs of each state of the FST that is determinized.
    """
    if len(subset) == 1 and not subset[0][1]:
        arcs = lists[subset[0][0]]
        if len(arcs) == 1:
            label, _, weight, target = arcs[0]
            return [(label, weight, ((target, 0.0),))]
        elements = [(label, target, weight) for label, _, weight, target in arcs]
    else:
        elements = [
            (label, target, single(owed + weight))
            for state, owed in subset
            for label, _, weight, target in lists[state]
        ]
    elements.sort()
    found: list[tuple[int, float, Subset]] = []
    at, size = 0, len(elements)
    while at < size:
        label, end = elements[at][0], at + 1
        while end < size and elements[end][0] == label:
            end += 1
        if end == at + 1:
            found.append((label, elements[at][2], ((elements[at][1], 0.0),)))
        else:
            found.append(_normalized(label, elements[at:end]))
        at = end
    return found


def _normalized(label: int, elements: list[tuple[int, int, float]]) -> tuple[int, float, Subset]:
    """(label, weight, next subset) of the arc with one label.

    `elements` are (label, state, weight), sorted. The arc has the least weight; each state of the
    next subset keeps the difference between its weight and this least weight.
    """
    least = min(weight for _, _, weight in elements)
    owed: dict[int, float] = {}
    for _, state, weight in elements:
        owed.setdefault(state, weight)  # a state's first entry has its least weight
    if least == NOT_FINAL:
        return label, least, tuple((state, NOT_FINAL) for state in owed)
    subset = [(state, _quantized(single(weight - least))) for state, weight in owed.items()]
    return label, least, tuple(subset)


def _quantized(weight: float) -> float:
    return math.floor(weight / _DELTA + 0.5) * _DELTA if weight < NOT_FINAL else weight

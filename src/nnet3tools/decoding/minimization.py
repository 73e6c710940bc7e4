"""Minimization of lattices: pushes transition ids and weights to the start, merges equal states.

As Kaldi with `--minimize=true`: PushCompactLatticeStrings, PushCompactLatticeWeights and
MinimizeCompactLattice, with weights in single precision.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.decoding.determinization import common_prefix
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight
from nnet3tools.fst.lattice_conversion import top_sorted
from nnet3tools.fst.weights import single

_DELTA = 1.0 / 1024
"""Tolerance between the weights of states that are merged (OpenFst's kDelta)."""

_INFINITY = float("inf")

_Ids = tuple[int, ...]
_Weight = tuple[float, float]
_Arcs = list[list[CompactArc]]
_Finals = list[FinalWeight | None]


def minimized(lattice: CompactLattice) -> CompactLattice:
    """The minimal lattice with the same paths. The input must be deterministic."""
    if not lattice.fst.num_states:
        return lattice
    lattice = top_sorted(lattice)
    arcs, finals = lattice.arc_lists(), lattice.final_list()
    arcs, finals = _with_early_ids(arcs, finals)
    arcs, finals = _with_early_weights(arcs, finals)
    merged = _equal_states(arcs, finals)
    if merged == list(range(len(arcs))):
        return CompactLattice.from_lists(0, finals, arcs)
    arcs = [[(*arc[:4], merged[arc[4]]) for arc in of_state] for of_state in arcs]
    return CompactLattice.from_lists(merged[0], finals, arcs).connected()


# -- transition ids


def _with_early_ids(arcs: _Arcs, finals: _Finals) -> tuple[_Arcs, _Finals]:
    """(arcs, finals) with the first ids that a state's paths share moved to the arcs into it."""
    shifts = _shifts(arcs, finals)
    moved = [
        [
            (word, graph, acoustic, (ids + _beginning(arcs, finals, n, shifts[n]))[shift:], n)
            for word, graph, acoustic, ids, n in of_state
        ]
        for of_state, shift in zip(arcs, shifts, strict=True)
    ]
    shorter: _Finals = [
        None if final is None else (final[0], final[1], final[2][shift:])
        for final, shift in zip(finals, shifts, strict=True)
    ]
    return moved, shorter


def _shifts(arcs: _Arcs, finals: _Finals) -> list[int]:
    """For each state, the number of ids that all of its paths begin with; 0 for the start."""
    shifts = [0] * len(arcs)
    for state in range(len(arcs) - 1, 0, -1):
        parts = [(arc[3], arc[4], len(arc[3]) + shifts[arc[4]]) for arc in arcs[state]]
        if (final := finals[state]) is not None:
            parts.insert(0, (final[2], -1, len(final[2])))
        if not parts:
            continue
        shift = min(length for _, _, length in parts)
        first = _first_ids(arcs, finals, *parts[0][:2], shift)
        for part in parts[1:]:
            first = common_prefix(first, _first_ids(arcs, finals, *part[:2], len(first)))
        shifts[state] = len(first)
    return shifts


def _first_ids(arcs: _Arcs, finals: _Finals, ids: _Ids, state: int, length: int) -> _Ids:
    """The first `length` of `ids` and then the ids of any path from `state` on (-1: no path)."""
    if len(ids) < length:
        ids += _beginning(arcs, finals, state, length - len(ids))
    return ids[:length]


def _beginning(arcs: _Arcs, finals: _Finals, state: int, length: int) -> _Ids:
    """The first `length` ids of an arbitrary path from a state to the end."""
    found: _Ids = ()
    while len(found) < length:
        final = finals[state]
        if final is not None:
            found += final[2]
            break
        found += arcs[state][0][3]
        state = arcs[state][0][4]
    return found[:length]


# -- weights


def _with_early_weights(arcs: _Arcs, finals: _Finals) -> tuple[_Arcs, _Finals]:
    """(arcs, finals) with the weight of a state's best path to the end moved to arcs into it."""
    weights = _weights_to_end(arcs, finals)
    weights[0] = (0.0, 0.0)  # the start state has no incoming arcs: its weight stays
    moved: _Arcs = []
    rest: _Finals = []
    for of_state, final, weight in zip(arcs, finals, weights, strict=True):
        if weight == _ZERO:
            moved.append(of_state)
            rest.append(final)
            continue
        moved.append([_moved(arc, weights[arc[4]], weight) for arc in of_state])
        rest.append(None if final is None else (*_minus(final, weight), final[2]))
    return moved, rest


_ZERO = (_INFINITY, _INFINITY)


def _weights_to_end(arcs: _Arcs, finals: _Finals) -> list[_Weight]:
    """The weight of the best path from each state to the end, infinite if there is none."""
    weights = [_ZERO] * len(arcs)
    for state in range(len(arcs) - 1, -1, -1):
        final = finals[state]
        best = _ZERO if final is None else (final[0], final[1])
        for _, graph, acoustic, _, target in arcs[state]:
            after = weights[target]
            weight = single(graph + after[0]), single(acoustic + after[1])
            if _order(weight) < _order(best):
                best = weight
        weights[state] = best
    return weights


def _order(weight: _Weight) -> _Weight:
    """The sort key of a weight: total cost, then graph cost."""
    return single(weight[0] + weight[1]), weight[0]


def _moved(arc: CompactArc, after: _Weight, before: _Weight) -> CompactArc:
    if after == _ZERO:
        return arc
    graph, acoustic = _minus(after, before)
    return arc[0], single(arc[1] + graph), single(arc[2] + acoustic), arc[3], arc[4]


def _minus(one: _Weight | FinalWeight, other: _Weight) -> _Weight:
    return single(one[0] - other[0]), single(one[1] - other[1])


# -- equal states


def _equal_states(arcs: _Arcs, finals: _Finals) -> list[int]:
    """For each state, the state that replaces it: an equal one with a higher number, or itself."""
    merged = list(range(len(arcs)))
    kinds: list[int] = [0] * len(arcs)
    numbers: dict[tuple, int] = {}
    of_kind: dict[int, list[int]] = {}
    for state in range(len(arcs) - 1, -1, -1):
        final = finals[state]
        # Only states with equal hashes of the words and ids on their paths are compared.
        arcs_out = sorted((arc[0], arc[3], kinds[arc[4]]) for arc in arcs[state])
        kind = numbers.setdefault((final and final[2], *arcs_out), len(numbers))
        kinds[state] = kind
        alike = of_kind.setdefault(kind, [])
        for other in reversed(alike):  # the lowest number first
            if _is_equal(arcs, finals, merged, state, other):
                merged[state] = other
                break
        else:
            alike.append(state)
    return merged


def _is_equal(arcs: _Arcs, finals: _Finals, merged: list[int], one: int, other: int) -> bool:
    """Whether two states have arcs with equal labels to equal states, and about equal weights.

    `merged` maps each state to the state that replaces it.
    """
    final, other_final = finals[one], finals[other]
    if final is not None and other_final is not None and not _is_close(final[:2], other_final[:2]):
        return False
    pairs = zip(_sorted(arcs[one], merged), _sorted(arcs[other], merged), strict=True)
    return all(a[:2] == b[:2] and a[3] == b[3] and _is_close(a[2], b[2]) for a, b in pairs)


def _sorted(arcs: list[CompactArc], merged: list[int]) -> list[tuple[int, int, _Weight, _Ids]]:
    """(label, target, weight, ids) of each arc, sorted, with targets mapped by `merged`."""
    described = [(arc[0], merged[arc[4]], (arc[1], arc[2]), arc[3]) for arc in arcs]
    return sorted(described, key=lambda arc: arc[:2])


def _is_close(one: _Weight, other: _Weight) -> bool:
    difference = np.float32(single(one[0] + one[1])) - np.float32(single(other[0] + other[1]))
    return one == other or bool(abs(difference) <= _DELTA)

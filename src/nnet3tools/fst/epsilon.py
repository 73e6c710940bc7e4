"""Removal of epsilon arcs, with the order of arcs of OpenFst's RmEpsilon."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.connect import component_numbers, connect
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.weights import single

_SHORTEST_DELTA = 1e-6
"""A detour must shorten a distance by more than this to count (OpenFst's kShortestDelta)."""


def epsilon_arcs(fst: Fst) -> NDArray[np.bool_]:
    """Mask (A,) of the arcs with epsilon as both input and output label."""
    return (fst.ilabels == EPSILON) & (fst.olabels == EPSILON)


def remove_epsilons(fst: Fst) -> Fst:
    """An equivalent connected FST without arcs whose two labels are epsilon.

    Each state's arcs are reversed, and arcs with equal labels and next state merged, even if there
    are no epsilons. DataError if a cycle of epsilons has a negative weight.
    """
    if not fst.num_states:
        return fst
    epsilons = epsilon_arcs(fst)
    if not epsilons.any():
        return connect(_reversed_arcs(fst))
    kept = np.zeros(fst.num_states, bool)  # the start and states entered by other arcs
    kept[fst.nextstates[~epsilons]] = True
    kept[fst.start] = True
    changed = np.zeros(fst.num_states, bool)
    changed[fst.sources[epsilons]] = True
    plain = _reversed_arcs(fst.with_arcs_only((kept & ~changed)[fst.sources]))
    if (replaced := _single_steps(fst, epsilons, kept)) is None:
        closures = _Closures(fst, plain)
        finals = fst.finals.copy()
        by_state: list[list[ArcTuple]] = [[] for _ in range(fst.num_states)]
        for state in _epsilon_states_last_first(fst, epsilons):
            if kept[state]:
                by_state[state], finals[state] = closures.expand(state)
        replaced = Fst.from_lists(fst.start, finals.tolist(), by_state)
    joined = Fst.from_arcs(
        fst.start,
        replaced.finals,
        np.concatenate([plain.sources, replaced.sources]),
        np.concatenate([plain.ilabels, replaced.ilabels]),
        np.concatenate([plain.weights, replaced.weights]),
        np.concatenate([plain.nextstates, replaced.nextstates]),
        None if fst.olabels is fst.ilabels else np.concatenate([plain.olabels, replaced.olabels]),
    )
    return connect(joined)


def _single_steps(fst: Fst, epsilons: NDArray[np.bool_], kept: NDArray[np.bool_]) -> Fst | None:
    """An FST with the arcs and final weights that replace epsilons; None if `fst` is unsuitable.

    Each epsilon must be the only arc of its state and lead to a state without epsilons, and no
    state may get two equal arcs. FSTs of joined supervisions have this form. `epsilons` (A,) masks
    the epsilon arcs, `kept` (N,) the states whose arcs are wanted.
    """
    states, targets = fst.sources[epsilons], fst.nextstates[epsilons]
    has_epsilons = np.zeros(fst.num_states, bool)
    has_epsilons[states] = True
    if (fst.counts[states] != 1).any() or has_epsilons[targets].any():
        return None
    used = kept[states]
    states, targets = states[used], targets[used]
    # adding 0.0 as in _Closures removes -0.0
    weights = np.float32(0.0) + fst.weights[epsilons][used]
    counts = fst.counts[targets]
    number = np.repeat(np.arange(len(states)), counts)
    place = np.arange(len(number)) - (np.cumsum(counts) - counts)[number]
    # Arcs are in reverse order, but those of kept states were reversed before.
    place = np.where(kept[targets][number], place, counts[number] - 1 - place)
    arcs = fst.offsets[targets][number] + place
    columns = fst.ilabels[arcs], fst.olabels[arcs], fst.nextstates[arcs], number
    like = np.lexsort(columns)
    same = np.ones(max(0, len(like) - 1), bool)
    for column in columns:
        same &= column[like[1:]] == column[like[:-1]]
    if same.any():
        return None
    finals = fst.finals.copy()
    finals[states] = np.minimum(np.float32(0.0) + finals[states], weights + fst.finals[targets])
    return Fst.from_arcs(
        fst.start,
        finals,
        states[number],
        fst.ilabels[arcs],
        weights[number] + fst.weights[arcs],
        fst.nextstates[arcs],
        None if fst.olabels is fst.ilabels else fst.olabels[arcs],
    )


def _reversed_arcs(fst: Fst) -> Fst:
    """Reverse each state's arcs; of arcs with equal labels and target, keep the lightest weight."""
    order = np.lexsort((np.arange(fst.num_arcs)[::-1], fst.sources))
    fst = fst.with_arcs_in(order)
    like = np.lexsort((fst.nextstates, fst.olabels, fst.ilabels, fst.sources))
    same = np.ones(len(like), bool)
    for column in (fst.sources, fst.ilabels, fst.olabels, fst.nextstates):
        values = column[like]
        same[1:] &= values[1:] == values[:-1]
    if not same[1:].any():
        return fst
    # Arcs are reversed now, so the last of equal arcs is the first in the original order.
    group = np.cumsum(np.concatenate([[True], ~same[1:]])) - 1
    weights = np.full(group[-1] + 1, np.inf, np.float32)
    np.minimum.at(weights, group, fst.weights[like])
    last = np.full(group[-1] + 1, -1)
    np.maximum.at(last, group, like)
    chosen = np.sort(last)
    best = np.empty(fst.num_arcs, np.float32)
    best[last] = weights
    return replace(fst.with_arcs_only(chosen), weights=best[chosen])


def _epsilon_states_last_first(fst: Fst, epsilons: NDArray[np.bool_]) -> list[int]:
    """States with epsilon arcs, in an order where an epsilon's target precedes its source.

    In a cycle of epsilons the order is arbitrary.
    """
    targets = fst.nextstates[epsilons]
    has_epsilons = np.zeros(fst.num_states, bool)
    has_epsilons[fst.sources[epsilons]] = True
    if not has_epsilons[targets].any():
        return np.flatnonzero(has_epsilons).tolist()
    # np.union1d and np.isin would import numpy.ma, which takes 50 ms.
    is_involved = has_epsilons.copy()
    is_involved[targets] = True
    involved = np.flatnonzero(is_involved)
    sources = np.searchsorted(involved, fst.sources[epsilons])
    nothing = np.zeros(len(sources), np.int32)
    small = Fst.from_arcs(
        0,
        np.zeros(len(involved), np.float32),
        sources,
        nothing,
        np.zeros(len(sources), np.float32),
        np.searchsorted(involved, targets),
    )
    components = component_numbers(small)
    order = involved[np.lexsort((involved, components))]
    return order[has_epsilons[order]].tolist()


class _Closures:
    """Replaces the epsilon arcs of states by the arcs and final weights that they lead to."""

    def __init__(self, fst: Fst, plain: Fst) -> None:
        """Prepare to expand states of `fst`; arcs that a state has in `plain` replace its own."""
        self._fst, self._plain = fst, plain
        self._arcs: dict[int, list[ArcTuple]] = {}
        self._finals: dict[int, float] = {}

    def _arcs_of(self, state: int) -> list[ArcTuple]:
        if (arcs := self._arcs.get(state)) is None:
            fst = self._plain if self._plain.counts[state] else self._fst
            begin, end = fst.offsets[state : state + 2].tolist()
            columns = (fst.ilabels, fst.olabels, fst.weights, fst.nextstates)
            lists = [column[begin:end].tolist() for column in columns]
            arcs = self._arcs[state] = list(zip(*lists, strict=True))
        return arcs

    def _distances(self, source: int) -> dict[int, float]:
        """The least weight of a path of epsilon arcs from `source` to each state, by state."""
        distances, waiting = {source: 0.0}, [source]
        for state in waiting:  # which grows
            here = distances[state]
            for ilabel, olabel, weight, target in self._arcs_of(state):
                if ilabel or olabel:
                    continue
                distance = single(here + weight)
                if distance < distances.get(target, NOT_FINAL) - _SHORTEST_DELTA:
                    distances[target] = distance
                    waiting.append(target)
            # A path without a cycle has at most as many arcs as there are states.
            if len(waiting) > len(distances) ** 2 + 1:
                raise DataError("the FST has a cycle of epsilons with a negative weight")
        return distances

    def expand(self, source: int) -> tuple[list[ArcTuple], float]:
        """(arcs, final weight) that replace the epsilons of `source`; later calls reuse them."""
        distances = self._distances(source)
        final, stack, seen = NOT_FINAL, [source], set()
        found: dict[tuple[int, int, int], float] = {}
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            distance = distances.get(state, NOT_FINAL)  # infinite if all arcs to the state are
            for ilabel, olabel, weight, target in self._arcs_of(state):
                if not (ilabel or olabel):
                    if target not in seen:
                        stack.append(target)
                    continue
                key, weight = (ilabel, olabel, target), single(distance + weight)
                found[key] = min(found.get(key, NOT_FINAL), weight)
            own = self._finals.get(state, float(self._fst.finals[state]))
            final = min(final, single(distance + own))
        arcs = [(i, o, weight, target) for (i, o, target), weight in reversed(found.items())]
        self._arcs[source], self._finals[source] = arcs, final
        return arcs, final


def concatenate(fsts: list[Fst], last_first: bool = True) -> Fst:
    """The FST that accepts the concatenation of one path of each FST, joined by epsilons.

    With `last_first` the states of the last FST get the lowest numbers, as in Kaldi's merged
    supervisions. A final state's epsilon precedes its other arcs.
    """
    pieces, step = (fsts[::-1], -1) if last_first else (fsts, 1)
    sizes = np.array([fst.num_states for fst in pieces])
    begins = np.cumsum(sizes) - sizes
    piece_of = np.repeat(np.arange(len(pieces)), sizes)
    finals = np.concatenate([fst.finals for fst in pieces])
    stays = piece_of == (0 if last_first else len(pieces) - 1)
    ends = np.flatnonzero((finals != NOT_FINAL) & ~stays)
    starts = begins + [fst.start for fst in pieces]
    after = starts[piece_of[ends] + step]
    nothing = np.zeros(len(ends), np.int32)
    counts = np.concatenate([fst.counts for fst in pieces])
    sources = np.repeat(np.arange(len(finals)), counts)
    nextstates = np.concatenate([fst.nextstates for fst in pieces]) + begins[piece_of[sources]]
    weights = np.concatenate([finals[ends], *[fst.weights for fst in pieces]])
    ilabels = np.concatenate([nothing, *[fst.ilabels for fst in pieces]])
    olabels = None
    if any(fst.olabels is not fst.ilabels for fst in pieces):
        olabels = np.concatenate([nothing, *[fst.olabels for fst in pieces]])
    return Fst.from_arcs(
        int(starts[-1 if last_first else 0]),
        np.where(stays, finals, np.float32(NOT_FINAL)),
        np.concatenate([ends, sources]),
        ilabels,
        weights,
        np.concatenate([after, nextstates]),
        olabels,
    )

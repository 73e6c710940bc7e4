"""Removing epsilon arcs, with the order of arcs that OpenFst's RmEpsilon gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.connect import component_numbers, connect
from nnet3tools.fst.fst import EPSILON, NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.weights import single

__all__ = ["concatenate", "epsilon_arcs", "remove_epsilons"]

_SHORTEST_DELTA = 1e-6
"""Distances that a detour would shorten by less stay as they are (OpenFst's kShortestDelta)."""


def epsilon_arcs(fst: Fst) -> NDArray[np.bool_]:
    """Which arcs neither read nor write anything, (A,)."""
    return (fst.ilabels == EPSILON) & (fst.olabels == EPSILON)


def remove_epsilons(fst: Fst) -> Fst:
    """An equivalent FST without arcs that neither read nor write, connected.

    Every state's arcs come out in reverse order, those with the same labels and next state as one,
    even where there are no epsilons.
    """
    if not fst.num_states:
        return fst
    epsilons = epsilon_arcs(fst)
    if not epsilons.any():
        return connect(_reversed_arcs(fst))
    kept = np.zeros(fst.num_states, bool)  # states with another way in than by epsilons
    kept[fst.nextstates[~epsilons]] = True
    kept[fst.start] = True
    closures = _Closures(fst, epsilons, kept)
    changed = np.zeros(fst.num_states, bool)
    finals = fst.finals.copy()
    lists: list[tuple[int, list[ArcTuple]]] = []
    for state in _epsilon_states_last_first(fst, epsilons):
        if kept[state]:
            arcs, final = closures.expand(state)
            changed[state], finals[state] = True, final
            lists.append((state, arcs))
    plain = _reversed_arcs(fst.with_arcs_only((kept & ~changed)[fst.sources]))
    replaced = _arcs_of_lists(fst, lists)
    joined = Fst.from_arcs(
        fst.start,
        finals,
        np.concatenate([plain.sources, replaced.sources]),
        np.concatenate([plain.ilabels, replaced.ilabels]),
        np.concatenate([plain.weights, replaced.weights]),
        np.concatenate([plain.nextstates, replaced.nextstates]),
        None if fst.olabels is fst.ilabels else np.concatenate([plain.olabels, replaced.olabels]),
    )
    return connect(joined)


def _arcs_of_lists(fst: Fst, lists: list[tuple[int, list[ArcTuple]]]) -> Fst:
    by_state: list[list[ArcTuple]] = [[] for _ in range(fst.num_states)]
    for state, arcs in lists:
        by_state[state] = arcs
    return Fst.from_lists(fst.start, fst.finals.tolist(), by_state)


def _reversed_arcs(fst: Fst) -> Fst:
    """Each state's arcs the other way round; of like ones the first, with the least weight."""
    order = np.lexsort((np.arange(fst.num_arcs)[::-1], fst.sources))
    fst = fst.with_arcs_in(order)
    like = np.lexsort((fst.nextstates, fst.olabels, fst.ilabels, fst.sources))
    same = np.ones(len(like), bool)
    for column in (fst.sources, fst.ilabels, fst.olabels, fst.nextstates):
        values = column[like]
        same[1:] &= values[1:] == values[:-1]
    if not same[1:].any():
        return fst
    # Arcs are reversed by now, so the last of the like ones is the one met first.
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
    """The states with epsilon arcs, each after those its epsilons lead to, cycles apart."""
    states = np.unique(fst.sources[epsilons])
    targets = fst.nextstates[epsilons]
    has_epsilons = np.zeros(fst.num_states, bool)
    has_epsilons[states] = True
    if not has_epsilons[targets].any():
        return states.tolist()
    involved = np.union1d(states, targets)
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
    return order[np.isin(order, states)].tolist()


class _Closures:
    """What can be reached by epsilons; states that were expanded have none any more."""

    def __init__(self, fst: Fst, epsilons: NDArray[np.bool_], kept: NDArray[np.bool_]) -> None:
        self._fst, self._kept = fst, kept
        self._arcs: dict[int, list[ArcTuple]] = {}
        self._finals: dict[int, float] = {}
        self._has_epsilons = np.zeros(fst.num_states, bool)
        self._has_epsilons[fst.sources[epsilons]] = True

    def _arcs_of(self, state: int) -> list[ArcTuple]:
        if (arcs := self._arcs.get(state)) is None:
            fst = self._fst
            begin, end = fst.offsets[state : state + 2].tolist()
            columns = (fst.ilabels, fst.olabels, fst.weights, fst.nextstates)
            lists = [column[begin:end].tolist() for column in columns]
            arcs = list(zip(*lists, strict=True))
            if self._kept[state] and not self._has_epsilons[state]:
                arcs = _reversed_list(arcs)
            self._arcs[state] = arcs
        return arcs

    def _final_of(self, state: int) -> float:
        return self._finals.get(state, float(self._fst.finals[state]))

    def _distances(self, source: int) -> dict[int, float]:
        """The least weight of epsilons to every state in the closure."""
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
        return distances

    def expand(self, source: int) -> tuple[list[ArcTuple], float]:
        """The arcs and final weight that the state has without epsilons; it keeps them."""
        distances = self._distances(source)
        final, stack, seen = NOT_FINAL, [source], set()
        found: dict[tuple[int, int, int], float] = {}
        while stack:
            state = stack.pop()
            if state in seen:
                continue
            seen.add(state)
            distance = distances.get(state, NOT_FINAL)  # infinite if arcs to it are
            for ilabel, olabel, weight, target in self._arcs_of(state):
                if not (ilabel or olabel):
                    if target not in seen:
                        stack.append(target)
                    continue
                key, weight = (ilabel, olabel, target), single(distance + weight)
                found[key] = min(found.get(key, NOT_FINAL), weight)
            final = min(final, single(distance + self._final_of(state)))
        arcs = [(i, o, weight, target) for (i, o, target), weight in reversed(found.items())]
        self._arcs[source], self._finals[source] = arcs, final
        return arcs, final


def _reversed_list(arcs: list[ArcTuple]) -> list[ArcTuple]:
    found: dict[tuple[int, int, int], float] = {}
    for ilabel, olabel, weight, target in arcs:
        key = (ilabel, olabel, target)
        found[key] = min(found.get(key, NOT_FINAL), weight)
    return [(i, o, weight, target) for (i, o, target), weight in reversed(found.items())]


def concatenate(fsts: list[Fst]) -> Fst:
    """The FST of their paths one after another, joined by epsilons.

    States and arcs are in the order of Kaldi's merged supervisions: those of the last FST come
    first, and the epsilon of a state that was final stands before its other arcs.
    """
    pieces = fsts[::-1]
    begins = np.cumsum([0] + [fst.num_states for fst in pieces])
    finals = np.full(begins[-1], NOT_FINAL, np.float32)
    finals[: pieces[0].num_states] = pieces[0].finals
    columns: list[list[np.ndarray]] = [[], [], [], [], []]
    for number, (fst, begin) in enumerate(zip(pieces, begins.tolist(), strict=False)):
        if number:
            ends = np.flatnonzero(fst.is_final)
            labels = np.zeros(len(ends), np.int32)
            after = begins[number - 1] + pieces[number - 1].start
            afters = np.full(len(ends), after)
            epsilons: list[np.ndarray] = [ends + begin, labels, labels, fst.finals[ends], afters]
            for column, values in zip(columns, epsilons, strict=True):
                column.append(values)
        sources, nextstates = fst.sources + begin, fst.nextstates + begin
        arcs: list[np.ndarray] = [sources, fst.ilabels, fst.olabels, fst.weights, nextstates]
        for column, values in zip(columns, arcs, strict=True):
            column.append(values)
    sources, ilabels, olabels, weights, nextstates = map(np.concatenate, columns)
    start = int(begins[len(fsts) - 1]) + fsts[0].start
    acceptor = all(fst.olabels is fst.ilabels for fst in fsts)
    outputs = None if acceptor else olabels
    return Fst.from_arcs(start, finals, sources, ilabels, weights, nextstates, outputs)

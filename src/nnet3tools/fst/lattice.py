"""Lattices: acyclic FSTs whose weights have a graph and an acoustic part (Kaldi's Lattice types).

A Lattice reads transition ids and writes words. A CompactLattice accepts words; each arc and final
weight holds the corresponding transition ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.connect import accessible, coaccessible, keep_states, reordered
from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.properties import OF_ANY_ORDER
from nnet3tools.fst.weights import single_sum

CompactArc = tuple[int, float, float, tuple[int, ...], int]
"""Word, graph cost, acoustic cost, transition ids, next state."""

FinalWeight = tuple[float, float, tuple[int, ...]]
"""Graph cost, acoustic cost, transition ids (empty in a Lattice)."""

State = tuple[FinalWeight | None, list[tuple[int, int, FinalWeight, int]]]
"""Final weight, and arcs: input label, output label, weight, next state."""


@dataclass(frozen=True)
class Strings:
    """Integer sequences in one array: sequence i is `ids[ends[i]:ends[i + 1]]`."""

    ends: NDArray[np.int64]
    ids: NDArray[np.int32]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> Strings:
        """Make Strings from Python sequences of integers."""
        ends = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=ends[1:])
        return cls(ends, np.array([i for sequence in sequences for i in sequence], np.int32))

    @classmethod
    def none(cls, count: int) -> Strings:
        """Make Strings of `count` empty sequences."""
        return cls(np.zeros(count + 1, np.int64), np.zeros(0, np.int32))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each sequence."""
        return self.ends[1:] - self.ends[:-1]

    def tuples(self) -> list[tuple[int, ...]]:
        """The sequences as Python tuples."""
        ids = self.ids.tolist()
        return [tuple(ids[begin:end]) for begin, end in pairwise(self.ends.tolist())]

    def joined(self, other: Strings) -> Strings:
        """All sequences of this object, followed by the sequences of `other`."""
        ends = np.concatenate([self.ends, other.ends[1:] + self.ends[-1]])
        return Strings(ends, np.concatenate([self.ids, other.ids]))

    def only(self, chosen: NDArray[np.integer]) -> Strings:
        """The sequences with the numbers `chosen`, in this order."""
        lengths = self.lengths[chosen]
        ends = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        places = np.arange(ends[-1]) + np.repeat(self.ends[chosen] - ends[:-1], lengths)
        return Strings(ends, self.ids[places])


@dataclass(frozen=True)
class _TwoCosts:
    """Base class of lattices: `fst` has the graph costs, two arrays have the acoustic costs.

    `acoustic` (A,) belongs to arcs, `final_acoustic` (N,) to final weights (0 for other states).
    """

    fst: Fst
    acoustic: NDArray[np.float32]
    final_acoustic: NDArray[np.float32]

    def scaled(
        self,
        graph_scale: float = 1.0,
        acoustic_scale: float = 1.0,
        acoustic_to_graph: float = 0.0,
        graph_to_acoustic: float = 0.0,
    ) -> Self:
        """A lattice with graph costs graph_scale * g + acoustic_to_graph * a; acoustic likewise."""
        scales = np.array([[graph_scale, acoustic_to_graph], [graph_to_acoustic, acoustic_scale]])
        if (scales == np.eye(2)).all():
            return self
        weights, acoustic = _mixed(scales, self.fst.weights, self.acoustic)
        finals, final_acoustic = self.fst.finals.copy(), self.final_acoustic.copy()
        chosen = self.fst.is_final
        finals[chosen], final_acoustic[chosen] = _mixed(
            scales, finals[chosen], final_acoustic[chosen]
        )
        fst = replace(self.fst, weights=weights, finals=finals, properties=0)
        return replace(self, fst=fst, acoustic=acoustic, final_acoustic=final_acoustic)

    def total_costs(self) -> tuple[float, float]:
        """(graph, acoustic) cost of a lattice with one path: sums over arcs and final weights."""
        final = self.fst.is_final
        graph = np.append(self.fst.weights, self.fst.finals[final])
        acoustic = np.append(self.acoustic, self.final_acoustic[final])
        return single_sum(graph), single_sum(acoustic)

    @property
    def is_top_sorted(self) -> bool:
        """Whether each arc leads to a state with a higher number."""
        return bool((self.fst.nextstates > self.fst.sources).all())

    def costs_to_end(self, order: Sequence[int]) -> list[float]:
        """The cost of the best path from each state to the end; `order` is topological."""
        fst = self.fst
        arc_costs = (fst.weights.astype(np.float64) + self.acoustic).tolist()
        costs: list[float] = (fst.finals.astype(np.float64) + self.final_acoustic).tolist()
        targets, ends = fst.nextstates.tolist(), fst.offsets.tolist()
        for state in reversed(order):
            for arc in range(ends[state], ends[state + 1]):
                costs[state] = min(costs[state], arc_costs[arc] + costs[targets[arc]])
        return costs

    def connected(self) -> Self:
        """The lattice without the states that are on no path from the start to a final state."""
        fst = self.fst
        if not fst.num_states:
            return self
        keep = accessible(fst) & coaccessible(fst)
        keep &= keep[fst.start]
        if keep.all():
            return self
        arcs = np.flatnonzero(keep[fst.sources] & keep[fst.nextstates])
        return self._with(keep_states(fst, keep), arcs, np.flatnonzero(keep))

    def in_order(self, order: NDArray[np.integer]) -> Self:
        """The lattice with renumbered states: state `order[i]` becomes i (OpenFst's StateSort)."""
        numbers = np.empty(len(order), np.int32)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        fst = reordered(self.fst, numbers).with_properties(self.fst.properties & OF_ANY_ORDER)
        return self._with(fst, np.argsort(numbers[self.fst.sources], kind="stable"), order)

    def _with(self, fst: Fst, arcs: NDArray[np.integer], states: NDArray[np.integer]) -> Self:
        """The FST `fst` as a lattice, with acoustic costs taken from this lattice.

        Arc i and state j of `fst` are arc arcs[i] and state states[j] of this lattice.
        """
        costs = {"acoustic": self.acoustic[arcs], "final_acoustic": self.final_acoustic[states]}
        return replace(self, fst=fst, **costs)


def _mixed(
    scales: NDArray[np.float64], graph: NDArray[np.float32], acoustic: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    first, second = graph.astype(np.float64), acoustic.astype(np.float64)
    mixed = [row[0] * first + row[1] * second for row in scales]
    return mixed[0].astype(np.float32), mixed[1].astype(np.float32)


@dataclass(frozen=True)
class Lattice(_TwoCosts):
    """A lattice that reads transition ids and writes words; weights are (graph, acoustic) costs."""

    @classmethod
    def from_lists(
        cls,
        start: int,
        finals: Sequence[tuple[float, float] | None],
        arcs: Sequence[Sequence[tuple[int, int, float, float, int]]],
    ) -> Lattice:
        """Make a lattice from each state's final costs (None if not final) and arcs.

        An arc is (input label, output label, graph cost, acoustic cost, next state).
        """
        fst = Fst.from_lists(
            start,
            [NOT_FINAL if final is None else final[0] for final in finals],
            [[(i, o, graph, n) for i, o, graph, _, n in of_state] for of_state in arcs],
        )
        acoustic = [arc[3] for of_state in arcs for arc in of_state]
        return cls(fst, np.array(acoustic, np.float32), _final_acoustic(finals))

    def arc_lists(self) -> list[list[tuple[int, int, float, float, int]]]:
        """Each state's arcs: (input label, output label, graph cost, acoustic cost, next state)."""
        acoustic = iter(self.acoustic.tolist())
        return [
            [(i, o, graph, next(acoustic), n) for i, o, graph, n in arcs]
            for arcs in self.fst.arc_lists()
        ]

    def final_list(self) -> list[tuple[float, float] | None]:
        """(graph, acoustic) final cost of each state; None for a state that is not final."""
        pairs = zip(self.fst.finals.tolist(), self.final_acoustic.tolist(), strict=True)
        return [None if graph == NOT_FINAL else (graph, acoustic) for graph, acoustic in pairs]


@dataclass(frozen=True)
class CompactLattice(_TwoCosts):
    """A lattice of words; `strings` has the transition ids of the A arcs, then of the N states."""

    strings: Strings

    @classmethod
    def from_lists(
        cls, start: int, finals: Sequence[FinalWeight | None], arcs: Sequence[Sequence[CompactArc]]
    ) -> CompactLattice:
        """Make a lattice from each state's final weight (None if not final) and arcs.

        A weight is (graph cost, acoustic cost, transition ids), an arc (word, *weight, next state).
        """
        of_fst: list[list[ArcTuple]] = [
            [(word, word, graph, n) for word, graph, _, _, n in of_state] for of_state in arcs
        ]
        fst = Fst.from_lists(
            start, [NOT_FINAL if final is None else final[0] for final in finals], of_fst
        )
        flat = [arc for of_state in arcs for arc in of_state]
        strings = [arc[3] for arc in flat] + [() if final is None else final[2] for final in finals]
        acoustic = np.array([arc[2] for arc in flat], np.float32)
        return cls(fst, acoustic, _final_acoustic(finals), Strings.of(strings))

    @classmethod
    def empty(cls) -> CompactLattice:
        """The lattice without states."""
        return cls.from_lists(NO_STATE, [], [])

    def arc_lists(self) -> list[list[CompactArc]]:
        """The arcs of each state: (word, graph cost, acoustic cost, transition ids, next state)."""
        rest = zip(self.acoustic.tolist(), self.strings.tuples(), strict=False)
        return [
            [(word, graph, *next(rest), n) for word, _, graph, n in arcs]
            for arcs in self.fst.arc_lists()
        ]

    def final_list(self) -> list[FinalWeight | None]:
        """(graph cost, acoustic cost, transition ids) of each state; None unless it is final."""
        strings = self.strings.tuples()[self.fst.num_arcs :]
        weights = zip(self.fst.finals.tolist(), self.final_acoustic.tolist(), strings, strict=True)
        return [None if weight[0] == NOT_FINAL else weight for weight in weights]

    def _with(self, fst: Fst, arcs: NDArray[np.integer], states: NDArray[np.integer]) -> Self:
        strings = self.strings.only(np.concatenate([arcs, states + self.fst.num_arcs]))
        return replace(super()._with(fst, arcs, states), strings=strings)

    def with_penalty(self, penalty: float) -> CompactLattice:
        """The lattice with `penalty` in each word's graph cost (AddWordInsPenToCompactLattice)."""
        extra = np.where(self.fst.ilabels != 0, np.float32(penalty), np.float32(0))
        fst = replace(self.fst, weights=self.fst.weights + extra, properties=0)
        return replace(self, fst=fst)


def _final_acoustic(finals: Sequence[tuple | None]) -> NDArray[np.float32]:
    return np.array([0.0 if final is None else final[1] for final in finals], np.float32)


def states_of(lattice: Lattice | CompactLattice) -> list[State]:
    """For each state of a lattice of either kind: (final weight or None, arcs).

    An arc is (input label, output label, weight, next state); a weight is (graph cost, acoustic
    cost, transition ids).
    """
    if isinstance(lattice, CompactLattice):
        return [
            (
                final,
                [(word, word, (graph, acoustic, ids), n) for word, graph, acoustic, ids, n in arcs],
            )
            for final, arcs in zip(lattice.final_list(), lattice.arc_lists(), strict=True)
        ]
    return [
        (
            None if final is None else (*final, ()),
            [(i, o, (graph, acoustic, ()), n) for i, o, graph, acoustic, n in arcs],
        )
        for final, arcs in zip(lattice.final_list(), lattice.arc_lists(), strict=True)
    ]


def lattice_of(start: int, states: Sequence[State], is_compact: bool) -> Lattice | CompactLattice:
    """Make a CompactLattice if `is_compact`, else a Lattice, from (final weight, arcs) by state."""
    finals = [final for final, _ in states]
    if is_compact:
        words = [[(i, *weight, n) for i, _, weight, n in arcs] for _, arcs in states]
        return CompactLattice.from_lists(start, finals, words)
    plain = [[(i, o, *weight[:2], n) for i, o, weight, n in arcs] for _, arcs in states]
    costs = [None if final is None else final[:2] for final in finals]
    return Lattice.from_lists(start, costs, plain)

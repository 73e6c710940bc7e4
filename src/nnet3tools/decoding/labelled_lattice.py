"""Lattices during determinization: an arc may have any number of transition ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, Fst
from nnet3tools.fst.lattice import CompactArc, CompactLattice, FinalWeight, Lattice, Strings

_Floats = NDArray[np.float32]
_Ints = NDArray[np.int32]


class NewArcs(NamedTuple):
    """Arcs to add to a lattice, in any order."""

    sources: NDArray[np.integer]
    labels: _Ints
    graph: _Floats
    acoustic: _Floats
    targets: _Ints
    strings: Strings


class NewFinals(NamedTuple):
    """Final weights to replace those of all states of a lattice."""

    graph: _Floats
    acoustic: _Floats
    strings: Strings


@dataclass(frozen=True)
class LabelledLattice:
    """A lattice whose labels are words or phones, 0 for none. State 0 is the start state.

    The arcs of state s have the numbers `offsets[s]` to `offsets[s + 1] - 1`. `labels`, `graph`,
    `acoustic` and `targets` (A,) describe the arcs. `final_graph` (N,) and `final_acoustic` (N,)
    are the final weights; the first is infinite for a state that is not final. `strings` holds
    the transition ids of the arcs, then those of the final weights.
    """

    offsets: NDArray[np.int64]
    labels: _Ints
    graph: _Floats
    acoustic: _Floats
    targets: _Ints
    final_graph: _Floats
    final_acoustic: _Floats
    strings: Strings

    # -- from and to other forms

    @classmethod
    def from_lists(
        cls, arcs: Sequence[Sequence[CompactArc]], finals: Sequence[FinalWeight | None]
    ) -> LabelledLattice:
        """A LabelledLattice from lists of each state's arcs and final weight; None: not final."""
        flat = [arc for of_state in arcs for arc in of_state]
        offsets = np.zeros(len(arcs) + 1, np.int64)
        np.cumsum([len(of_state) for of_state in arcs], out=offsets[1:])
        ids = [arc[3] for arc in flat] + [() if final is None else final[2] for final in finals]
        return cls(
            offsets,
            np.array([arc[0] for arc in flat], np.int32),
            np.array([arc[1] for arc in flat], np.float32),
            np.array([arc[2] for arc in flat], np.float32),
            np.array([arc[4] for arc in flat], np.int32),
            np.array([NOT_FINAL if final is None else final[0] for final in finals], np.float32),
            np.array([0.0 if final is None else final[1] for final in finals], np.float32),
            Strings.of(ids),
        )

    @classmethod
    def of(cls, lattice: Lattice) -> LabelledLattice:
        """A LabelledLattice from a decoder's lattice, whose states must be in topological order."""
        fst = lattice.fst
        reads = fst.ilabels != 0
        ends = np.zeros(fst.num_arcs + fst.num_states + 1, np.int64)
        np.cumsum(reads, out=ends[1 : fst.num_arcs + 1])
        ends[fst.num_arcs + 1 :] = ends[fst.num_arcs]
        return cls(
            fst.offsets,
            fst.olabels,
            fst.weights,
            lattice.acoustic,
            fst.nextstates,
            fst.finals,
            lattice.final_acoustic,
            Strings(ends, fst.ilabels[reads]),
        )

    def arc_lists(self) -> list[list[CompactArc]]:
        """The arcs of each state, in the form of `from_lists`."""
        flat = list(
            zip(
                self.labels.tolist(),
                self.graph.tolist(),
                self.acoustic.tolist(),
                self.strings.tuples()[: self.num_arcs],
                self.targets.tolist(),
                strict=True,
            )
        )
        ends = self.offsets.tolist()
        return [flat[begin:end] for begin, end in pairwise(ends)]

    def final_list(self) -> list[FinalWeight | None]:
        """The final weight of each state, None if it is not final."""
        strings = self.strings.tuples()[self.num_arcs :]
        costs = zip(self.final_graph.tolist(), self.final_acoustic.tolist(), strings, strict=True)
        return [None if final[0] == NOT_FINAL else final for final in costs]

    # -- what it is

    @property
    def num_states(self) -> int:
        """Number of states, N."""
        return len(self.final_graph)

    @property
    def num_arcs(self) -> int:
        """Number of arcs, A."""
        return len(self.labels)

    @property
    def is_final(self) -> NDArray[np.bool_]:
        """A flag for each final state, (N,)."""
        return self.final_graph != NOT_FINAL

    @cached_property
    def sources(self) -> NDArray[np.intp]:
        """The state that each arc leaves, (A,)."""
        return np.repeat(np.arange(self.num_states), np.diff(self.offsets))

    @property
    def is_top_sorted(self) -> bool:
        """Whether every arc leads to a state with a higher number."""
        return bool((self.targets > self.sources).all())

    @property
    def arc_strings(self) -> Strings:
        """The transition ids of the arcs alone."""
        ends = self.strings.ends[: self.num_arcs + 1]
        return Strings(ends, self.strings.ids[: ends[-1]])

    @property
    def final_strings(self) -> Strings:
        """The transition ids of the final weights alone."""
        ends = self.strings.ends[self.num_arcs :]
        return Strings(ends - ends[0], self.strings.ids[ends[0] :])

    def backward_costs(self) -> list[float]:
        """The cost of the best path from each state to the end. Requires topological order."""
        costs = [math.inf] * self.num_states
        arcs, finals = self.arc_lists(), self.final_list()
        for state in range(self.num_states - 1, -1, -1):
            final = finals[state]
            best = math.inf if final is None else final[0] + final[1]
            for _, graph, acoustic, _, target in arcs[state]:
                best = min(best, (graph + acoustic) + costs[target])
            costs[state] = best
        return costs

    # -- changed

    def with_arcs(self, labels: _Ints, targets: _Ints) -> LabelledLattice:
        """A copy whose arcs have other labels and target states, (A,) each."""
        return replace(self, labels=labels, targets=targets)

    def extended(self, arcs: NewArcs, finals: NewFinals) -> LabelledLattice:
        """A copy with `arcs` added after each state's own, and with other final weights."""
        order = np.argsort(np.concatenate([self.sources, arcs.sources]), kind="stable")
        counts = np.bincount(arcs.sources, minlength=len(finals.graph))
        counts[: self.num_states] += np.diff(self.offsets)
        strings = self.arc_strings.joined(arcs.strings).only(order)
        return LabelledLattice(
            np.concatenate([[0], np.cumsum(counts)]),
            np.concatenate([self.labels, arcs.labels])[order],
            np.concatenate([self.graph, arcs.graph])[order],
            np.concatenate([self.acoustic, arcs.acoustic])[order],
            np.concatenate([self.targets, arcs.targets])[order],
            finals.graph,
            finals.acoustic,
            strings.joined(finals.strings),
        )

    def in_order(self, order: _Ints) -> LabelledLattice:
        """A copy with its states renumbered: state `order[n]` becomes state n."""
        numbers = np.empty_like(order)
        numbers[order] = np.arange(len(order), dtype=np.int32)
        arcs = np.argsort(numbers[self.sources], kind="stable")
        counts = np.diff(self.offsets)[order]
        return LabelledLattice(
            np.concatenate([[0], np.cumsum(counts)]),
            self.labels[arcs],
            self.graph[arcs],
            self.acoustic[arcs],
            numbers[self.targets[arcs]],
            self.final_graph[order],
            self.final_acoustic[order],
            self.strings.only(np.concatenate([arcs, order + self.num_arcs])),
        )

    def compact(self) -> CompactLattice:
        """This lattice as a CompactLattice."""
        fst = Fst(
            0 if self.num_states else NO_STATE,
            self.final_graph,
            self.offsets,
            self.labels,
            self.labels,
            self.graph,
            self.targets,
        )
        return CompactLattice(fst, self.acoustic, self.final_acoustic, self.strings)

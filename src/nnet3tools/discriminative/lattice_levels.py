"""Forward and backward probabilities of lattices, level by level, sequences side by side.

The formulas are those of Kaldi's LatticeForwardBackward and LatticeForwardBackwardMpeVariants
(lattice-functions.cc), in logarithms and double precision.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.lattice_order import lattice_state_times

_Ints = NDArray[np.integer]
_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class _Groups:
    """Arcs grouped by their source states or by their targets, and the groups sorted by level.

    An arc leads to a state of a higher level. `levels` has (places, firsts, states) of each level
    with arcs: these are `order[places]`; in them, those of state `states[k]` begin at `firsts[k]`.
    """

    order: _Ints
    levels: list[tuple[slice, _Ints, _Ints]]

    @classmethod
    def of(cls, states: _Ints, levels: _Ints, num_levels: int) -> _Groups:
        """Group arcs: arc i belongs to the group of states[i], its source or its target.

        levels[s], from 0 to num_levels - 1, is the level of state s. The groups are sorted by the
        level of their state, then by the state; levels without arcs are left out.
        """
        order = np.lexsort((states, levels[states]))
        in_order = states[order]
        bounds = np.searchsorted(levels[in_order], np.arange(num_levels + 1)).tolist()
        found: list[tuple[slice, _Ints, _Ints]] = []
        for begin, end in pairwise(bounds):
            if begin < end:
                part = in_order[begin:end]
                firsts = np.flatnonzero(np.concatenate([[True], part[1:] != part[:-1]]))
                found.append((slice(begin, end), firsts, part[firsts]))
        return cls(order, found)


@dataclass(frozen=True)
class Probabilities:
    """Log-probabilities in a lattice: forward `alpha` (N,) and backward `beta` (N,) of N states.

    They sum over a part of the lattice, such as one sequence; `totals` has each part's sum.
    """

    alpha: _Doubles
    beta: _Doubles
    totals: _Doubles


class LevelledLattice:
    """A lattice, in topological order, split into parts that can be processed side by side.

    If all paths pass one state between sequences, as in merged supervisions, there is one part per
    sequence, all of one length. Otherwise the lattice is one part. `arcs` are the numbers of the
    arcs that do not join parts; `frames`, `sources` and `labels` (transition ids or 0) belong to
    `arcs`.
    """

    def __init__(self, lattice: Lattice, num_sequences: int = 1) -> None:
        """Split a lattice of `num_sequences` sequences; DataError for paths of unequal length."""
        fst = lattice.fst
        self._times = lattice_state_times(lattice)
        self.num_frames = int(self._times.max(initial=0))
        joints = _joints(lattice, self._times, num_sequences, self.num_frames)
        self.arcs = np.flatnonzero(~joints.arcs)
        self.sources, self._targets = fst.sources[self.arcs], fst.nextstates[self.arcs]
        self.labels = fst.ilabels[self.arcs]
        self.frames = self._times[self.sources]
        self._starts, self._pieces = joints.starts, joints.pieces
        self._finals = np.concatenate([np.flatnonzero(fst.is_final), fst.sources[joints.arcs]])
        self._joints = np.flatnonzero(joints.arcs)
        levels = self._levels()
        count = int(levels.max(initial=0)) + 1
        self._by_target = _Groups.of(self._targets, levels, count)
        self._by_source = _Groups.of(self.sources, levels, count)

    def _levels(self) -> _Ints:
        """A level (number) for each state; an arc's target has a higher level than its source."""
        if (self.labels != 0).all():
            return self._times - self._times[self._starts][self._pieces]
        levels = [0] * len(self._times)  # the states are in topological order
        for source, target in zip(self.sources.tolist(), self._targets.tolist(), strict=True):
            levels[target] = max(levels[target], levels[source] + 1)
        return np.array(levels)

    def costs(self, lattice: Lattice) -> tuple[_Doubles, _Doubles]:
        """(total costs in `lattice` of the arcs `arcs`, costs of the ends of the parts).

        Ends are all final states, then the arcs to a next part. `lattice` has the same arcs.
        """
        fst = lattice.fst
        graph, final_graph = fst.weights.astype(np.float64), fst.finals[fst.is_final]
        of_arcs = graph + lattice.acoustic
        of_finals = final_graph.astype(np.float64) + lattice.final_acoustic[fst.is_final]
        return of_arcs[self.arcs], np.concatenate([of_finals, of_arcs[self._joints]])

    def probabilities(self, costs: _Doubles, final_costs: _Doubles) -> Probabilities:
        """Forward and backward log-probabilities; the arguments are the results of `costs`."""
        with np.errstate(invalid="ignore"):  # costs may be NaN
            return Probabilities(*self._both_ways(costs, final_costs))

    def _both_ways(
        self, costs: _Doubles, final_costs: _Doubles
    ) -> tuple[_Doubles, _Doubles, _Doubles]:
        size, pieces = len(self._times), self._pieces[self._finals]
        alpha, beta = np.full(size, -np.inf), np.full(size, -np.inf)
        alpha[self._starts] = 0.0
        groups = self._by_target
        sources, likes = self.sources[groups.order], -costs[groups.order]
        for places, firsts, states in groups.levels:
            alpha[states] = np.logaddexp.reduceat(alpha[sources[places]] + likes[places], firsts)
        np.logaddexp.at(beta, self._finals, -final_costs)
        groups = self._by_source
        targets, likes = self._targets[groups.order], -costs[groups.order]
        for places, firsts, states in reversed(groups.levels):
            sums = np.logaddexp.reduceat(beta[targets[places]] + likes[places], firsts)
            beta[states] = np.logaddexp(beta[states], sums)
        totals = np.full(len(self._starts), -np.inf)
        np.logaddexp.at(totals, pieces, alpha[self._finals] - final_costs)
        return alpha, beta, totals

    def posteriors(self, costs: _Doubles, found: Probabilities) -> _Doubles:
        """The posterior of each of `arcs`; `found` is what `probabilities` returned for `costs`."""
        totals = found.totals[self._pieces[self.sources]]
        return np.exp(found.alpha[self.sources] - costs + found.beta[self._targets] - totals)

    def expected(
        self, values: _Doubles, costs: _Doubles, final_costs: _Doubles, found: Probabilities
    ) -> tuple[float, _Doubles]:
        """The expected sum over a path of the arcs' `values`, and its derivative by each -cost.

        It is the arc's posterior times the difference of the expectations over paths through the
        arc and all paths (Povey's thesis, chapter 6). `found`: `probabilities(costs, final_costs)`.
        """
        forward, backward = np.zeros(len(self._times)), np.zeros(len(self._times))
        with np.errstate(invalid="ignore"):
            into = np.exp(found.alpha[self.sources] - costs - found.alpha[self._targets])
            out = np.exp(found.beta[self._targets] - costs - found.beta[self.sources])
        for places, firsts, states in self._by_target.levels:
            arcs = self._by_target.order[places]
            sums = into[arcs] * (forward[self.sources[arcs]] + values[arcs])
            forward[states] = np.add.reduceat(sums, firsts)
        for places, firsts, states in reversed(self._by_source.levels):
            arcs = self._by_source.order[places]
            sums = out[arcs] * (backward[self._targets[arcs]] + values[arcs])
            backward[states] = np.add.reduceat(sums, firsts)
        pieces = self._pieces[self._finals]
        shares = np.exp(found.alpha[self._finals] - final_costs - found.totals[pieces])
        totals = np.bincount(pieces, shares * forward[self._finals], len(self._starts))
        more = forward[self.sources] + values + backward[self._targets]
        more -= totals[self._pieces[self.sources]]
        return float(totals.sum()), self.posteriors(costs, found) * more


@dataclass(frozen=True)
class _Joints:
    """Parts of a lattice: their first states, the part of each state, which arcs join two parts."""

    starts: _Ints
    pieces: _Ints
    arcs: NDArray[np.bool_]


def _joints(lattice: Lattice, times: _Ints, num_sequences: int, num_frames: int) -> _Joints:
    fst = lattice.fst
    whole = _Joints(
        np.array([fst.start]), np.zeros(fst.num_states, np.int64), np.zeros(fst.num_arcs, bool)
    )
    if num_sequences <= 1 or num_frames % num_sequences:
        return whole
    length = num_frames // num_sequences
    between = (times % length == 0) & (times > 0) & (times < num_frames)
    arcs = between[fst.sources] & (fst.ilabels == 0)
    starts = np.append(fst.start, np.unique(fst.nextstates[arcs]))
    expected = np.arange(num_sequences) * length
    starts = starts[np.argsort(times[starts], kind="stable")]
    if not np.array_equal(times[starts], expected):
        return whole
    is_start = np.zeros(fst.num_states, bool)
    is_start[starts] = True
    # Each path enters a part by an arc to its start.
    leaves, enters = between[fst.sources] & ~is_start[fst.sources], is_start[fst.nextstates]
    if (leaves != arcs).any() or (enters & ~arcs).any():
        return whole
    pieces = np.minimum(times // length, num_sequences - 1)
    return _Joints(starts, pieces - (between & ~is_start), arcs)

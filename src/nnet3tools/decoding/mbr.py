"""Minimum Bayes risk: words with the least expected word errors, their confidences and times.

The recursion is that of "Minimum Bayes Risk decoding and system combination based on a recursion
for edit distance" (Xu, Povey, Mangu, Zhu, 2011), as in Kaldi's lat/sausages.cc. Between all words
of the hypothesis, and at its ends, is an epsilon (0): each of these Q positions is a bin, to which
the words of the lattice are aligned. Arcs are computed level by level, for all bins at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.fst import NO_STATE
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.fst.lattice_conversion import top_sorted
from nnet3tools.fst.shortest_paths import best_compact_path
from nnet3tools.io import log

_DELTA = float(np.float32(1e-5))
"""Added to the cost of words that no bin takes, so that words come into bins where they can."""
_ROUNDING = 1e-9
"""Costs that differ less are equal: the first of a match, an insertion and a deletion is chosen."""
_LEAST = 1e-14
"""Smaller posteriors are rounding errors."""
_MOST_ROUNDS = 100
_MATCH, _INSERTION, _DELETION = 1, 2, 3

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bin:
    """The words aligned to one position of a hypothesis (0: no word): posteriors and times.

    Times are (begin, end) in frames. The word with the highest posterior is the first.
    """

    words: tuple[int, ...]
    posteriors: tuple[float, ...]
    times: tuple[tuple[float, float], ...]

    @property
    def span(self) -> tuple[float, float]:
        """Average begin and end of the words, in frames, weighted with the posteriors."""
        begin, end = np.array(self.posteriors) @ np.array(self.times)
        return float(begin), float(end)

    def place_of(self, word: int) -> int | None:
        """The index of `word` in `words`; None if `words` lacks it."""
        return self.words.index(word) if word in self.words else None


@dataclass(frozen=True)
class BayesRisk:
    """Minimum-Bayes-risk words, confidences, times in frames, bins, and risk (expected errors)."""

    words: tuple[int, ...]
    confidences: tuple[float, ...]
    times: tuple[tuple[float, float], ...]
    """Average begin and end of each word in frames, without overlaps."""
    risk: float
    bins: tuple[Bin, ...]

    def bin_times(self) -> list[tuple[float, float]]:
        """Average (begin, end) in frames of each bin (a word's place), without overlaps."""
        spans = [list(one.span) for one in self.bins]
        for before, after in pairwise(spans):
            if before[1] > after[0]:
                before[1] = after[0] = 0.5 * (before[1] + after[0])
        return [(begin, end) for begin, end in spans]


def minimum_bayes_risk(
    lattice: CompactLattice, words: Sequence[int] | None = None, decode_mbr: bool = True
) -> BayesRisk:
    """The hypothesis with the least expected word errors, with confidences, times and bins.

    The lattice's costs must contain their scales. The hypothesis begins as `words`, or as the best
    path's. With `decode_mbr` it is changed until its risk does not fall any more.
    """
    if words is None:
        words = [arc[0] for arcs in best_compact_path(lattice).arc_lists() for arc in arcs]
    arcs = _Arcs(lattice)
    for _ in range(_MOST_ROUNDS + 1):
        kept = [word for word in words if word]
        hypothesis = np.zeros(2 * len(kept) + 1, np.int64)
        hypothesis[1::2] = kept
        risk, bins = arcs.statistics(hypothesis)
        words = [one.words[0] for one in bins] if decode_mbr else hypothesis.tolist()
        if _gain(bins, hypothesis, words) <= 0.0:
            break
    else:
        log.warning("Iterating too many times in MbrDecode; stopping.")
    return _result(words, risk, bins)


def _gain(bins: Sequence[Bin], before: _Ints, after: Sequence[int]) -> float:
    """A bound on the decrease of the risk if the bins' words change from `before` to `after`."""
    gain = 0.0
    for one, old, new in zip(bins, before.tolist(), after, strict=True):
        if old != new:
            place = one.place_of(old)
            gain += one.posteriors[0] - (0.0 if place is None else one.posteriors[place])
    return gain


def _result(words: Sequence[int], risk: float, bins: Sequence[Bin]) -> BayesRisk:
    times: list[tuple[float, float]] = []
    confidences: list[float] = []
    for word, one in zip(words, bins, strict=True):
        if word:
            place = one.place_of(word)
            confidences.append(0.0 if place is None else one.posteriors[place])
            times.append(one.times[place or 0])
            _separate(times)
    return BayesRisk(
        tuple(word for word in words if word), tuple(confidences), tuple(times), risk, tuple(bins)
    )


def _separate(times: list[tuple[float, float]]) -> None:
    """If the last two (begin, end) overlap, split their span in proportion to lengths, in place."""
    if len(times) < 2 or times[-2][1] <= times[-1][0]:
        return
    (begin, end), (next_begin, next_end) = times[-2:]
    left = max(times[-3][1] if len(times) > 2 else 0.0, min(begin, next_begin))
    right = max(end, next_end)
    middle = left
    if end > begin:
        middle += (right - left) * (end - begin) / (end - begin + next_end - next_begin)
    times[-2:] = [(left, middle), (middle, right)]


class _Arcs:
    """A lattice's arcs in levels: arcs into an arc's source state are in earlier levels."""

    def __init__(self, lattice: CompactLattice) -> None:
        self._is_empty = lattice.fst.start == NO_STATE
        if self._is_empty:
            return
        lattice = top_sorted(lattice.connected())
        fst, lengths = lattice.fst, lattice.strings.lengths
        final = np.flatnonzero(fst.is_final)
        # The final weights become epsilon arcs to a new state, the last.
        sources = np.concatenate([fst.sources, final])
        targets = np.concatenate([fst.nextstates, np.full(len(final), fst.num_states)])
        words = np.concatenate([fst.ilabels, np.zeros(len(final), np.int32)])
        costs = np.concatenate(
            [fst.weights + lattice.acoustic, (fst.finals + lattice.final_acoustic)[final]]
        )
        lengths = np.concatenate([lengths[: fst.num_arcs], lengths[fst.num_arcs :][final]])
        self._num_states = fst.num_states + 1
        levels = [0] * self._num_states
        times = np.zeros(self._num_states, np.int64)
        for source, target, length in zip(
            sources.tolist(), targets.tolist(), lengths.tolist(), strict=True
        ):
            levels[target] = max(levels[target], levels[source] + 1)
            times[target] = times[source] + length
        level = np.array(levels)[targets]
        order = np.argsort(level, kind="stable")
        ends = np.searchsorted(level[order], np.arange(1, level.max() + 2))
        self._groups = [slice(first, last) for first, last in pairwise(ends.tolist())]
        self._sources, self._targets = sources[order], targets[order]
        self._words, self._times = words[order].astype(np.int64), times
        loglikes = -costs[order].astype(np.float64)
        self._shares = self._shares_of(loglikes)

    def _shares_of(self, loglikes: _Floats) -> _Floats:
        """Each arc's share, (arcs,), of the probability of all paths into its target state.

        `loglikes` (arcs,) are the log-likelihoods of the arcs themselves.
        """
        alpha = np.full(self._num_states, -np.inf)
        alpha[0] = 0.0
        for group in self._groups:
            scores = alpha[self._sources[group]] + loglikes[group]
            np.logaddexp.at(alpha, self._targets[group], scores)
        return np.exp(alpha[self._sources] + loglikes - alpha[self._targets])

    def statistics(self, hypothesis: _Ints) -> tuple[float, list[Bin]]:
        """(expected edit distance of the lattice from the hypothesis, one Bin per position)."""
        if self._is_empty:
            return 0.0, [Bin((0,), (1.0,), ((0.0, 0.0),)) for _ in hypothesis]
        risk, choices = self._distances(hypothesis)
        return risk, self._bins(hypothesis, choices)

    def _distances(self, hypothesis: _Ints) -> tuple[float, NDArray[np.int8]]:
        """(expected edit distance, choice for each arc and each of the Q positions, (arcs, Q)).

        A choice aligns an arc's word with a hypothesis position: _MATCH, _INSERTION or _DELETION.
        """
        is_word = (hypothesis != 0).astype(np.float64)
        deleted = np.concatenate([[0.0], np.cumsum(is_word)])
        distances = np.zeros((self._num_states, len(hypothesis) + 1))
        """Expected edit distance of paths to a state from the first q positions."""
        distances[0] = deleted
        choices = np.empty((len(self._words), len(hypothesis)), np.int8)
        for group in self._groups:
            words = self._words[group, None]
            before = distances[self._sources[group]]
            match = before[:, :-1] + (words != hypothesis)
            insertion = before + (words != 0) * (1.0 + _DELTA)
            best = insertion.copy()
            np.minimum(best[:, 1:], match, out=best[:, 1:])
            best = np.minimum.accumulate(best - deleted, axis=1) + deleted
            limit = best[:, 1:] + _ROUNDING
            choices[group] = np.where(
                match <= limit, _MATCH, np.where(insertion[:, 1:] <= limit, _INSERTION, _DELETION)
            )
            np.add.at(distances, self._targets[group], self._shares[group, None] * best)
        return float(distances[-1, -1]), choices

    def _bins(self, hypothesis: _Ints, choices: NDArray[np.int8]) -> list[Bin]:
        size = len(hypothesis)
        counts = np.zeros((self._num_states, size + 1))
        """Probability that a path's words up to a state belong to the first q positions."""
        counts[-1, -1] = 1.0
        found: list[tuple[_Ints, _Ints, _Floats, _Ints, _Ints]] = []
        ends_of_deletions = _ends_of_deletions(choices == _DELETION)
        for group in self._groups[::-1]:
            chosen, sources, targets = choices[group], self._sources[group], self._targets[group]
            arcs = _carried(self._shares[group, None] * counts[targets], ends_of_deletions[group])
            moved = np.zeros((2, len(arcs), size + 1))
            matched = np.multiply(arcs[:, 1:], chosen == _MATCH, out=moved[0, :, :-1])
            moved[1, :, 0] = arcs[:, 0]
            np.multiply(arcs[:, 1:], chosen == _INSERTION, out=moved[1, :, 1:])
            np.add.at(counts, np.concatenate([sources, sources]), moved.reshape(-1, size + 1))
            number, place = np.nonzero(matched)
            begins, ends = self._times[sources], self._times[targets]
            words = self._words[group]
            found.append(
                (place, words[number], matched[number, place], begins[number], ends[number])
            )
            number, place = np.nonzero((chosen == _DELETION) & (arcs[:, 1:] > 0.0))
            at = ends[number]
            found.append((place, 0 * place, arcs[number, place + 1], at, at))
        first = np.cumsum(counts[0, ::-1])[::-1][1:]
        place, zeros = np.arange(size), np.zeros(size, np.int64)
        found.append((place, zeros, first, zeros, zeros))
        return _binned(size, *(np.concatenate(part) for part in zip(*found, strict=True)))


def _ends_of_deletions(is_deletion: NDArray[np.bool_]) -> NDArray[np.int32]:
    """For each arc and position, the first later position after a non-deletion, (arcs, Q + 1)."""
    num_arcs, size = is_deletion.shape
    ends = np.full((num_arcs, size + 1), size + 1, np.int32)
    ends[:, :-1] = np.where(is_deletion, size + 1, np.arange(1, size + 1))
    return np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]


def _carried(counts: _Floats, ends: NDArray[np.int32]) -> _Floats:
    """For each position, the sum of `counts` (arcs, Q + 1) from it to the one before `ends`.

    Each is a difference of sums from the right.
    """
    sums = np.zeros((len(counts), counts.shape[1] + 1))
    np.cumsum(counts[:, ::-1], axis=1, out=sums[:, -2::-1])
    carried = sums[:, :-1] - sums[np.arange(len(counts))[:, None], ends]
    return np.where(carried > _LEAST, carried, 0.0)


def _binned(
    size: int, places: _Ints, words: _Ints, counts: _Floats, begins: _Ints, ends: _Ints
) -> list[Bin]:
    """Make `size` Bins from (position, word, probability) in `places`, `words` and `counts`.

    Each word is spoken from frame `begins[i]` to `ends[i]`; equal words of a position are merged.
    """
    keys, inverse = np.unique(places * (words.max() + 1) + words, return_inverse=True)
    total = np.bincount(inverse, counts)
    begin, end = (np.bincount(inverse, counts * time) for time in (begins, ends))
    place, word = np.divmod(keys, words.max() + 1)
    order = np.lexsort([-word, -total.astype(np.float32), place])
    cuts = np.searchsorted(place[order], np.arange(size + 1))
    bins = []
    for first, last in pairwise(cuts.tolist()):
        chosen = order[first:last]
        chosen = chosen[total[chosen] > 0.0]
        share = total[chosen]
        times = zip((begin[chosen] / share).tolist(), (end[chosen] / share).tolist(), strict=True)
        bins.append(Bin(tuple(word[chosen].tolist()), tuple(share.tolist()), tuple(times)))
    return bins

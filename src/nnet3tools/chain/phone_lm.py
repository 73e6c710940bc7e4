"""The denominator graph's phone language model: an n-gram without smoothing (language-model.h).

The model never backs off to a lower order at run time. Instead, histories with little effect on the
training data's likelihood are dropped, one after another, and their counts go to the history that
is one phone shorter.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.options import LanguageModelOptions
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.connect import connect
from nnet3tools.fst.fst import NOT_FINAL, ArcTuple, Fst
from nnet3tools.fst.properties import Property
from nnet3tools.fst.weights import single
from nnet3tools.io import log

History = tuple[int, ...]
_Counted = tuple[NDArray[np.int32], NDArray[np.int64]]
"""N-grams, (N, order), and how often each comes, (N,)."""

END = 0
"""The phone that ends a sentence, and begins the first histories."""

_NOT_THERE = -1
_MOST_ROWS = 1 << 20
"""The number of n-grams that are held before equal ones are counted together."""
_NUM_STAGES = 4
_SAME = 0.001
_NO_LOSS_PER_COUNT = 1e-15
"""The loss per count of dropping into an empty history: the smallest counts are dropped first."""


# -- counts


def _count_ngrams(
    sentences: Iterable[tuple[str, NDArray[np.int32]]], order: int
) -> dict[History, dict[int, int]]:
    """The counts of each phone, and of END, after each history, in order of first occurrence.

    The history is the last order - 1 phones, END at the beginning. DataError for phones below 1.
    """
    parts: list[_Counted] = []
    num_rows = 0
    for key, phones in sentences:
        if len(phones) and phones.min() <= 0:
            raise DataError(f"key '{key}': found phone {phones.min()}, expected positive ones")
        padded = np.full(len(phones) + order, _NOT_THERE, np.int32)
        padded[order - 2], padded[-1] = END, END
        padded[order - 1 : -1] = phones
        rows = np.lib.stride_tricks.sliding_window_view(padded, order)
        parts.append((rows, np.ones(len(rows), np.int64)))
        num_rows += len(rows)
        if num_rows > _MOST_ROWS:
            parts, num_rows = [_collapsed(parts)], 0
    if not parts:
        raise DataError("found no phone sequences to estimate a language model of")
    rows, counts = _collapsed(parts)
    table: dict[History, dict[int, int]] = {}
    for (*history, phone), count in zip(rows.tolist(), counts.tolist(), strict=True):
        known = tuple(p for p in history if p != _NOT_THERE)
        table.setdefault(known, {})[phone] = count
    return table


def _collapsed(parts: list[_Counted]) -> _Counted:
    """The distinct rows of all (rows, counts), by first occurrence, with their summed counts."""
    rows = np.concatenate([part for part, _ in parts])
    numbers = np.concatenate([counts for _, counts in parts])
    order = np.lexsort(rows.T[::-1])
    in_order = rows[order]
    new = np.concatenate([[True], (in_order[1:] != in_order[:-1]).any(axis=1)])
    starts = np.flatnonzero(new)
    counts = np.add.reduceat(numbers[order], starts)
    firsts = np.minimum.reduceat(order, starts)
    by_first = np.argsort(firsts)
    return rows[firsts[by_first]], counts[by_first]


# -- states


@dataclass
class _State:
    """A history, the counts of the phones after it, and its backoff state `shorter` (-1: none).

    `total` is the sum of the counts, `total_with_longer` also of the counts of longer histories
    that may be dropped into this one.
    """

    history: History
    shorter: int = -1
    counts: dict[int, int] = field(default_factory=dict)
    total: int = 0
    total_with_longer: int = 0
    may_be_dropped: bool = False
    _log_like: float | None = None

    def add(self, counts: dict[int, int]) -> None:
        for phone, count in counts.items():
            self.counts[phone] = self.counts.get(phone, 0) + count
            self.total += count
        self._log_like = None

    def clear(self) -> None:
        self.counts, self.total, self.total_with_longer = {}, 0, 0
        self.may_be_dropped, self._log_like = False, None

    @property
    def log_like(self) -> float:
        """The log-likelihood of the counted phones under the state's own distribution."""
        if self._log_like is None:
            self._log_like = _log_like(self.counts, self.total)
        return self._log_like


def _log_like(counts: dict[int, int], total: int) -> float:
    return single(sum(math.log(n / total) * n for _, n in sorted(counts.items())))


class _Estimator:
    """Estimates a phone language model: counts phones by history, drops unimportant states."""

    def __init__(
        self, options: LanguageModelOptions, counts: dict[History, dict[int, int]]
    ) -> None:
        self._options = options
        self.states: list[_State] = []
        self._numbers: dict[History, int] = {}
        for history, of_history in counts.items():
            self.states[self._number_of(history)].add(of_history)
        for state in self.states:
            other = state
            while True:
                other.total_with_longer += state.total
                if other.shorter < 0:
                    break
                other = self.states[other.shorter]
        self.num_active = sum(state.total > 0 for state in self.states)
        basic = options.no_prune_ngram_order - 1
        self.num_basic = sum(len(state.history) == basic for state in self.states)
        self._queue: list[tuple[float, int]] = []

    def _number_of(self, history: History) -> int:
        """The number of the state of `history`; if new, its backoff states are created, too."""
        if (number := self._numbers.get(history)) is None:
            number = self._numbers[history] = len(self.states)
            self.states.append(_State(history))
            if len(history) >= self._options.no_prune_ngram_order:
                self.states[number].shorter = self._number_of(history[1:])
        return number

    def find_active(self, history: History) -> _State:
        """The state of the longest suffix of `history` that has counts."""
        while True:
            number = self._numbers.get(history)
            if number is not None and self.states[number].total:
                return self.states[number]
            assert history, "every history that is needed ends in one with counts"
            history = history[1:]

    # -- dropping

    def drop_states(self) -> None:
        """Drop states until as many as the options ask for are left, or none can be dropped."""
        initial = self.num_active
        target = self.num_basic + self._options.num_extra_lm_states
        for stage in range(_NUM_STAGES):
            self._fill_queue()
            wanted = initial + int((target - initial) * (stage + 1) / _NUM_STAGES)
            while self.num_active > wanted and self._queue:
                loss, negated = heapq.heappop(self._queue)
                change, number = -loss, -negated
                now = self._change_of_dropping(number)
                if change == now or abs(change - now) <= _SAME * (abs(change) + abs(now)):
                    self._drop(number)
                else:  # the loss has changed since the state was queued
                    self._enqueue(number, now)
        log.log(
            f"In LM [hard] backoff, target num states was {self.num_basic} + "
            f"--num-extra-lm-states={self._options.num_extra_lm_states} = {target}, pruned from "
            f"{initial} to {self.num_active}"
        )

    def _enqueue(self, number: int, change: float) -> None:
        """Queue state `number` for dropping; `change` is the change of the log-likelihood by it."""
        heapq.heappush(self._queue, (-change, -number))

    def _fill_queue(self) -> None:
        self._queue.clear()
        for number, state in enumerate(self.states):
            state.may_be_dropped = self._may_be_dropped(state)
            if state.may_be_dropped:
                self._enqueue(number, self._change_of_dropping(number))

    def _may_be_dropped(self, state: _State) -> bool:
        """Whether a history is long enough and has counts, and none with a phone added has any."""
        if len(state.history) < self._options.no_prune_ngram_order:
            return False
        if not state.total or state.total != state.total_with_longer:
            return False
        if len(state.history) == self._options.ngram_order - 1:
            return True
        followers = (self._numbers.get((*state.history, p)) for p in state.counts if p != END)
        return not any(n is not None and self.states[n].total_with_longer for n in followers)

    def _change_of_dropping(self, number: int) -> float:
        """The change of the log-likelihood, at most 0, if the state `number` is dropped."""
        state = self.states[number]
        shorter = self.states[state.shorter]
        if not shorter.total:
            return single(-_NO_LOSS_PER_COUNT * state.total)
        joined = dict(shorter.counts)
        for phone, count in state.counts.items():
            joined[phone] = joined.get(phone, 0) + count
        both = _log_like(joined, shorter.total + state.total)
        return min(single(single(both - state.log_like) - shorter.log_like), 0.0)

    def _drop(self, number: int) -> None:
        state = self.states[number]
        shorter = self.states[state.shorter]
        could_be_dropped = shorter.may_be_dropped
        self.num_active -= shorter.total != 0
        shorter.add(state.counts)
        state.clear()
        shorter.may_be_dropped = self._may_be_dropped(shorter)
        if shorter.may_be_dropped and not could_be_dropped:
            self._enqueue(state.shorter, self._change_of_dropping(state.shorter))


# -- the result


def estimate_phone_lm(
    sentences: Iterable[tuple[str, NDArray[np.int32]]], options: LanguageModelOptions
) -> Fst:
    """The phone language model of (key, phones) pairs, a deterministic epsilon-free acceptor."""
    options.check()
    counts = _count_ngrams(sentences, options.ngram_order)
    log.log("Estimating phone LM")
    log.log(
        f"Estimating language model with --no-prune-ngram-order={options.no_prune_ngram_order}, "
        f"--ngram-order={options.ngram_order}, "
        f"--num-extra-lm-states={options.num_extra_lm_states}"
    )
    estimator = _Estimator(options, counts)
    estimator.drop_states()
    return _acceptor(estimator)


def _acceptor(estimator: _Estimator) -> Fst:
    active = [state for state in estimator.states if state.total]
    numbers = {state.history: number for number, state in enumerate(active)}
    arcs: list[list[ArcTuple]] = []
    finals: list[float] = []
    total_count, total_log_prob = 0, 0.0
    for state in active:
        found: list[ArcTuple] = []
        final = NOT_FINAL
        for phone, count in sorted(state.counts.items()):
            log_prob = single(math.log(count / state.total))
            total_count += count
            total_log_prob += single(log_prob * count)
            if phone == END:
                final = -log_prob
                continue
            target = estimator.find_active((*state.history, phone))
            found.append((phone, phone, -log_prob, numbers[target.history]))
        arcs.append(found)
        finals.append(final)
    log.log(f"Total number of phone instances seen was {total_count}")
    perplexity = single(math.exp(-(total_log_prob / total_count)))
    log.log(f"Perplexity on training data is: {perplexity:g}")
    log.log(
        "Note: perplexity on unseen data will be infinity as there is no smoothing.  This is by "
        "design, to reduce the number of arcs."
    )
    start = estimator.find_active((END,))
    fst = connect(Fst.from_lists(numbers[start.history], finals, arcs))
    log.log(f"Created phone language model with {fst.num_states} states and {fst.num_arcs} arcs.")
    return fst.with_properties(_PROPERTIES)


_PROPERTIES = (
    Property.ACCEPTOR
    | Property.NO_EPSILONS
    | Property.NO_I_EPSILONS
    | Property.NO_O_EPSILONS
    | Property.I_LABEL_SORTED
    | Property.O_LABEL_SORTED
    | Property.ACCESSIBLE
    | Property.COACCESSIBLE
)

"""Forward-backward over one HMM shared by many sequences: the denominator of LF-MMI.

With arcs (i, j) of probability p and pdf n, and outputs y(t, n) of a sequence (Povey et al.,
"Purely sequence-trained neural networks for ASR based on lattice-free MMI", Interspeech 2016, and
the notes in Kaldi's chain/chain-denominator.h):

    x(t, n)     = exp(y(t, n)), y limited to +-30
    alpha(0, i) = init(i)
    total(t)    = sum_i alpha(t, i)
    alpha'(t, i) = alpha(t, i) + leak * init(i) * total(t)                      # the leaky HMM
    alpha(t + 1, j) = sum over arcs of alpha'(t, i) * p * x(t, n) / total(t)    # scaled as it grows
    log-probability = log(sum_i alpha'(T, i)) + sum over t < T of log(total(t))

and backwards, with beta'(T, i) = 1 / sum_i alpha'(T, i),

    beta(t, i) = beta'(t, i) + leak * sum_k init(k) * beta'(t, k)
    beta'(t, i) = sum over arcs of p * x(t, n) * beta(t + 1, j) / total(t)
    posterior(t, n) = sum over arcs with n of alpha'(t, i) * p * x(t, n) * beta(t + 1, j) / total(t)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

LIMIT = 30.0
"""Outputs are limited to +-LIMIT before exp, because sums are not in the log domain."""

LOG_PROB, ALPHA_BETA, POSTERIOR_SUM = 0, 1, 2
"""Indexes into the `results` of `leaky_hmm`."""


class _SumsByKey:
    """Adds up rows with equal keys (np.add.at would take some 10 times as long).

    Keys are sorted by their number of rows, largest first, and rows by their rank among the rows of
    their key. The rows of rank k are added to the first rows of the sums in one operation (as in
    sparse matrices in jagged diagonals, Saad, "Iterative methods for sparse linear systems", 3.4).
    """

    def __init__(self, keys: np.ndarray) -> None:
        by_key = np.argsort(keys, kind="stable")
        found, first, sizes = np.unique(keys[by_key], return_index=True, return_counts=True)
        rank = np.arange(len(keys)) - np.repeat(first, sizes)
        self.order: np.ndarray = by_key[np.lexsort((np.repeat(-sizes, sizes), rank))]
        self._keys = found[np.argsort(-sizes, kind="stable")]
        ends = np.cumsum(np.bincount(rank))
        self._ranks = [slice(begin, end) for begin, end in itertools.pairwise(ends)]

    def store(self, out: np.ndarray, rows: np.ndarray) -> None:
        """Set out[key] to the sum of the key's rows, 0 if it has none; `rows` is overwritten.

        `rows` must be sorted: rows[i] is the original row self.order[i].
        """
        for rank in self._ranks:
            rows[: rank.stop - rank.start] += rows[rank]
        out[...] = 0.0
        out[self._keys] = rows[: len(self._keys)]


class _ReferencePlan:
    """Orders of the arcs of an HMM, for adding their values by state or by pdf in NumPy."""

    def __init__(self, hmm: Hmm) -> None:
        self.to, self.of = _SumsByKey(hmm.destinations), _SumsByKey(hmm.sources)
        self.to_pdfs = _SumsByKey(hmm.pdfs[self.of.order])


@dataclass(frozen=True, eq=False)
class Hmm:
    """A hidden Markov model without epsilon arcs; paths may end in any state.

    Arc k leads from `sources[k]` to `destinations[k]` (int32 (A,)) with `pdfs[k]` and probability
    `probs[k]` (float32); `initial` (S,) float32 are the states' initial probabilities.
    """

    sources: np.ndarray
    destinations: np.ndarray
    pdfs: np.ndarray
    probs: np.ndarray
    initial: np.ndarray
    _plans: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def num_states(self) -> int:
        """The number of states of the HMM, S."""
        return len(self.initial)

    def plan(self, device: str, make: Callable[[Hmm], Any]) -> Any:
        """This HMM's tables for a device: the result of `make(self)`, called once for each."""
        if device not in self._plans:
            self._plans[device] = make(self)
        return self._plans[device]


@operator(writes=("results", "deriv"))
def leaky_hmm(
    results: Array,
    output: Array,
    hmm: Hmm,
    num_sequences: int,
    leak: float,
    deriv: Array | None = None,
    weight: float = 1.0,
) -> None:
    """Compute log-probabilities of sequences under a leaky HMM; add `weight` * derivative to deriv.

    It is computed in the type of `output`, sums over frames and sequences in float64. `output`
    (T * num_sequences, pdfs) has the first frame of all sequences first. `leak` is the
    leaky-HMM coefficient. `results` (3,) float64 receives the log-probability at index
    LOG_PROB. With `deriv` it also receives two sums that are `num_sequences` unless numbers
    overflowed: at ALPHA_BETA that of alpha' * beta' over the states of frame 0, at
    POSTERIOR_SUM that of the posteriors of frame 0.
    """
    real, shape = output.dtype, (-1, num_sequences, output.shape[1])
    x = np.exp(np.clip(output, -LIMIT, LIMIT)).reshape(shape).transpose(0, 2, 1).copy()
    plan: _ReferencePlan = hmm.plan("reference", _ReferencePlan)
    init, num_frames = hmm.initial.astype(real)[:, None], len(x)
    leaks = real.type(leak) * init
    totals = np.empty((num_frames, num_sequences))
    alpha = np.empty((num_frames + 1, len(init), num_sequences), real)
    terms, others = (np.empty((len(hmm.probs), num_sequences), real) for _ in range(2))

    def set_terms(values: np.ndarray, t: int, states: np.ndarray, order: np.ndarray) -> None:
        """Set terms[k] to prob(a) * x[t, pdf of a] * values[states[a]] for arc a = order[k]."""
        np.take(values, states[order], 0, terms, "clip")
        np.multiply(terms, hmm.probs[order, None], out=terms, casting="same_kind")
        np.take(x[t], hmm.pdfs[order], 0, others, "clip")
        np.multiply(terms, others, out=terms)

    alpha[0] = init
    for t in range(num_frames):
        totals[t] = alpha[t].sum(axis=0)
        alpha[t] = alpha[t] / totals[t].astype(real) + leaks
        set_terms(alpha[t], t, hmm.sources, plan.to.order)
        plan.to.store(alpha[t + 1], terms)
    final = alpha[-1].sum(axis=0, dtype=float) * (1.0 + leak * hmm.initial.sum(dtype=float))
    results[LOG_PROB] = np.log(final).sum() + np.log(totals).sum()
    if deriv is None:
        return
    beta = np.repeat((1.0 / final)[None].astype(real), hmm.num_states, axis=0)
    posteriors = np.empty_like(x)
    for t in reversed(range(num_frames)):
        beta += (leaks * beta).sum(axis=0)
        set_terms(beta, t, hmm.destinations, plan.of.order)
        np.take(alpha[t], hmm.sources[plan.of.order], 0, others, "clip")
        np.multiply(others, terms, out=others)
        plan.of.store(beta, terms)
        beta /= totals[t].astype(real)
        np.take(others, plan.to_pdfs.order, 0, terms, "clip")
        plan.to_pdfs.store(posteriors[t], terms)
    deriv += weight * posteriors.transpose(0, 2, 1).reshape(output.shape)
    results[ALPHA_BETA] = np.sum(alpha[0] * totals[0] * beta, dtype=float)
    results[POSTERIOR_SUM] = posteriors[0].sum(dtype=float)

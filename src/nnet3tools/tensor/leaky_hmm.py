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

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.registry import operator

__all__ = ["ALPHA_BETA", "LIMIT", "LOG_PROB", "POSTERIOR_SUM", "Hmm", "leaky_hmm"]

LIMIT = 30.0
"""Outputs are limited to +-LIMIT before exp: the sums are not in the log domain."""

LOG_PROB, ALPHA_BETA, POSTERIOR_SUM = 0, 1, 2
"""Places in the `results` of `leaky_hmm`."""


@dataclass(frozen=True, eq=False)
class Hmm:
    """States without epsilon arcs; any state may be the last.

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
        """The number of states."""
        return len(self.initial)

    def plan(self, device: str, make: Callable[[Hmm], Any]) -> Any:
        """What a device's implementation has prepared, made the first time."""
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
    """Total log-probability of all sequences and, into deriv, `weight` times its derivative.

    `output` (T * num_sequences, pdfs) has the first frame of all sequences first. `results` (3,)
    float64 receives the log-probability at LOG_PROB and, if there is a `deriv` to add to, two
    checks, each `num_sequences` if all went well: the sum of alpha' * beta' over the states of
    frame 0 at ALPHA_BETA, that of the posteriors of frame 0 at POSTERIOR_SUM.
    """
    shape = (-1, num_sequences, output.shape[1])
    x = np.exp(np.clip(output, -LIMIT, LIMIT, dtype=np.float64)).reshape(shape)
    init, probs = hmm.initial.astype(np.float64), hmm.probs.astype(np.float64)[:, None]
    alpha = [np.repeat(init[:, None], num_sequences, axis=1)]
    totals = []
    for frame in x:
        totals.append(alpha[-1].sum(axis=0))
        alpha[-1] = alpha[-1] + leak * init[:, None] * totals[-1]
        terms = alpha[-1][hmm.sources] * probs * frame.T[hmm.pdfs] / totals[-1]
        alpha.append(np.zeros_like(alpha[0]))
        np.add.at(alpha[-1], hmm.destinations, terms)
    alpha[-1] = alpha[-1] + leak * init[:, None] * alpha[-1].sum(axis=0)
    final = alpha[-1].sum(axis=0)
    results[LOG_PROB] = np.log(final).sum() + np.log(totals).sum()
    if deriv is None:
        return
    beta = np.repeat(1.0 / final[None, :], hmm.num_states, axis=0)
    posteriors = np.zeros_like(x)
    for t in reversed(range(len(x))):
        beta = beta + leak * (init[:, None] * beta).sum(axis=0)
        terms = probs * x[t].T[hmm.pdfs] * beta[hmm.destinations] / totals[t]
        beta = np.zeros_like(beta)
        np.add.at(beta, hmm.sources, terms)
        np.add.at(posteriors[t].T, hmm.pdfs, terms * alpha[t][hmm.sources])
    deriv += weight * posteriors.reshape(output.shape)
    results[ALPHA_BETA] = (alpha[0] * beta).sum()
    results[POSTERIOR_SUM] = posteriors[0].sum()

"""The leaky HMM's forward-backward on NumPy: frame by frame, for all sequences at once.

Arcs with one destination and pdf form a group, so that x(t, n) is multiplied once a group: in
phone-based graphs half as many. Groups' sums y(t, g) = sum of p * alpha' are what is kept of the
forward pass; posteriors are y(t, g) * x(t, n) * beta(t + 1, j), as both passes agree.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.leaky_hmm import ALPHA_BETA, LIMIT, LOG_PROB, POSTERIOR_SUM, Hmm
from nnet3tools.tensor.plain.jagged import JaggedSum
from nnet3tools.tensor.registry import implements


class _Plan:
    """Arcs and groups in the orders that the sums need, prepared once a graph.

    alpha has the states in the order of `to_states.present`, beta in that of `from_states.present`;
    states that no arc leads to, or from, come last.
    """

    def __init__(self, hmm: Hmm) -> None:
        key = hmm.destinations.astype(np.int64) * (int(hmm.pdfs.max(initial=0)) + 1) + hmm.pdfs
        _, first, group = np.unique(key, return_index=True, return_inverse=True)
        self.to_groups = JaggedSum(group)
        representative = first[self.to_groups.present]
        self.group_pdfs = hmm.pdfs[representative]
        destinations = hmm.destinations[representative]
        self.to_states = JaggedSum(destinations)
        forward = _completed(self.to_states.present, hmm.num_states)
        arcs = self.to_groups.members
        self.forward_sources = _inverse(forward)[hmm.sources[arcs]]
        self.forward_probs = hmm.probs[arcs][:, None]
        self.forward_initial = hmm.initial[forward][:, None]

        self.from_states = JaggedSum(hmm.sources)
        backward = _completed(self.from_states.present, hmm.num_states)
        self.group_destinations = _inverse(backward)[destinations]
        arcs = self.from_states.members
        self.arc_groups = _inverse(self.to_groups.present)[group[arcs]]
        self.backward_probs = hmm.probs[arcs][:, None]
        self.to_backward = _inverse(forward)[backward]
        self.to_pdfs = JaggedSum(self.group_pdfs)


def _completed(some: np.ndarray, count: int) -> np.ndarray:
    """A permutation of 0 .. count - 1 that begins with `some`."""
    return np.concatenate([some, np.setdiff1d(np.arange(count), some)])


def _inverse(permutation: np.ndarray) -> np.ndarray:
    inverse = np.empty(len(permutation), np.intp)
    inverse[permutation] = np.arange(len(permutation))
    return inverse


@implements("leaky_hmm", "numpy")
def leaky_hmm(
    results: np.ndarray,
    output: np.ndarray,
    hmm: Hmm,
    num_sequences: int,
    leak: float,
    deriv: np.ndarray | None = None,
    weight: float = 1.0,
) -> None:
    """In the type of `output`; sums over frames and sequences in float64."""
    _ForwardBackward(output, hmm, num_sequences, leak).run(results, deriv, weight)


class _ForwardBackward:
    """The matrices of one run, (something, num_sequences) a frame."""

    def __init__(self, output: np.ndarray, hmm: Hmm, num_sequences: int, leak: float) -> None:
        self.plan: _Plan = hmm.plan("numpy", _Plan)
        self.hmm, self.leak, self.num_sequences = hmm, leak, num_sequences
        self.num_frames = len(output) // num_sequences
        self.frames = output.reshape(self.num_frames, num_sequences, -1)
        self.pseudo_probs = np.empty((output.shape[1], num_sequences), output.dtype)
        """x of the present frame, pdf by pdf."""
        self.totals = np.empty((self.num_frames + 1, num_sequences), output.dtype)
        self.leaks = output.dtype.type(leak) * self.plan.forward_initial.astype(output.dtype)

    def run(self, results: np.ndarray, deriv: np.ndarray | None, weight: float) -> None:
        plan, like = self.plan, self.pseudo_probs
        kept = self.num_frames if deriv is not None else 1
        with (
            scratch((kept, len(plan.to_groups), self.num_sequences), like=like) as sums,
            scratch((len(self.hmm.probs), self.num_sequences), like=like) as arcs,
            scratch((len(plan.to_groups), self.num_sequences), like=like) as groups,
        ):
            final = self._forward(sums, arcs, groups)
            total = final.astype(float) * (1.0 + self.leak * self.hmm.initial.sum(dtype=float))
            results[LOG_PROB] = np.log(total).sum() + np.log(self.totals[:-1].astype(float)).sum()
            if deriv is not None:
                beta = self._backward(sums, arcs, groups, total, deriv, weight)
                alpha = plan.forward_initial * (1.0 + self.leak * self.totals[0])
                results[ALPHA_BETA] = np.vdot(alpha[plan.to_backward], beta)
                results[POSTERIOR_SUM] = sums[0].sum(dtype=float)

    def _load(self, t: int) -> None:
        """x of frame t."""
        np.copyto(self.pseudo_probs, self.frames[t].T)
        np.clip(self.pseudo_probs, -LIMIT, LIMIT, out=self.pseudo_probs)
        np.exp(self.pseudo_probs, out=self.pseudo_probs)

    def _forward(self, sums: np.ndarray, arcs: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Leave y of each frame in `sums`, if there is room, and totals; returns the last total."""
        plan = self.plan
        alpha = np.zeros((self.hmm.num_states, self.num_sequences), arcs.dtype)
        alpha += plan.forward_initial
        for t in range(self.num_frames):
            self._load(t)
            np.sum(alpha, axis=0, out=self.totals[t])
            alpha /= self.totals[t]
            alpha += self.leaks  # alpha' / total
            np.take(alpha, plan.forward_sources, axis=0, out=arcs, mode="clip")
            arcs *= plan.forward_probs
            y = sums[t % len(sums)]
            y[...] = plan.to_groups.sum(arcs)
            np.take(self.pseudo_probs, plan.group_pdfs, axis=0, out=groups, mode="clip")
            groups *= y
            terms = arcs[: len(groups)]
            np.take(groups, plan.to_states.members, axis=0, out=terms, mode="clip")
            alpha[: len(plan.to_states)] = plan.to_states.sum(terms)
            alpha[len(plan.to_states) :] = 0
        return np.sum(alpha, axis=0, out=self.totals[self.num_frames])

    def _backward(
        self,
        sums: np.ndarray,
        arcs: np.ndarray,
        groups: np.ndarray,
        final: np.ndarray,
        deriv: np.ndarray,
        weight: float,
    ) -> np.ndarray:
        """Add posteriors to `deriv`; returns beta' of frame 0."""
        plan = self.plan
        beta = np.empty((self.hmm.num_states, self.num_sequences), arcs.dtype)
        beta[...] = 1.0 / final
        leaks = self.leaks[plan.to_backward, 0]
        for t in reversed(range(self.num_frames)):
            self._load(t)
            beta += leaks @ beta
            np.take(self.pseudo_probs, plan.group_pdfs, axis=0, out=groups, mode="clip")
            terms = arcs[: len(groups)]
            np.take(beta, plan.group_destinations, axis=0, out=terms, mode="clip")
            groups *= terms
            sums[t] *= groups
            np.take(groups, plan.arc_groups, axis=0, out=arcs, mode="clip")
            arcs *= plan.backward_probs
            np.divide(plan.from_states.sum(arcs), self.totals[t], out=beta[: len(plan.from_states)])
            beta[len(plan.from_states) :] = 0
            np.take(sums[t], plan.to_pdfs.members, axis=0, out=terms, mode="clip")
            rows = deriv[t * self.num_sequences : (t + 1) * self.num_sequences]
            rows[:, plan.to_pdfs.present] += weight * plan.to_pdfs.sum(terms).T
        return beta

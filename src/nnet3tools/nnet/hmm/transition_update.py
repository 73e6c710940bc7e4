"""Estimation of transition probabilities from counts (Kaldi's TransitionModel::MleUpdate)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io import log
from nnet3tools.nnet.hmm.transition_model import TransitionModel

_FLOORINGS = 3
"""Flooring changes the sum, and normalizing it the floor; Kaldi repeats both three times."""


@dataclass(frozen=True)
class TransitionUpdate:
    """A re-estimated transition model, and its gain in log-likelihood over `count` transitions."""

    model: TransitionModel
    improvement: float
    count: float

    @property
    def average(self) -> float:
        """The gain in log-likelihood per frame; NaN if there are no frames."""
        return self.improvement / self.count if self.count else float("nan")


def count_transitions(
    model: TransitionModel, alignment: NDArray[np.int32], counts: NDArray[np.float64]
) -> None:
    """Add the transition ids of an alignment to `counts`, which is indexed by id."""
    model.check_transition_ids(alignment)
    counts += np.bincount(alignment, minlength=len(counts))


def update_transitions(
    model: TransitionModel,
    counts: NDArray[np.float64],
    floor: float = 0.01,
    min_count: float = 5.0,
    share_for_pdfs: bool = False,
) -> TransitionUpdate:
    """Estimate the probabilities that maximize the likelihood of counts by transition id.

    Probabilities are floored at about `floor`. States with counts below `min_count` keep their
    probabilities. With `share_for_pdfs`, transition states with one pdf get equal probabilities.
    """
    sizes = model.transitions_per_state()
    states, pools = _pools(model, share_for_pdfs)
    ids, exists = _ids(sizes, states)
    firsts = np.flatnonzero(np.diff(pools, prepend=-1))
    if (sizes[states] != sizes[states[firsts]][pools]).any():
        raise DataError(
            "Mismatch in #transition indices: you cannot use the --share-for-pdfs option with "
            "this topology and sharing scheme."
        )
    pooled = np.add.reduceat(np.where(exists, counts[ids], 0.0), firsts, axis=0)
    sums, several = pooled.sum(axis=1), sizes[states[firsts]] > 1
    chosen = several & (sums >= np.float32(min_count))
    real = exists[firsts[chosen]]
    seen = pooled[chosen] + (sums[chosen, None] == 0)  # states never seen become uniform
    new = (seen / seen.sum(axis=1, keepdims=True)).astype(np.float32)
    for _ in range(_FLOORINGS):
        new /= new.sum(axis=1, keepdims=True)
        new = np.where(real, np.maximum(new, np.float32(floor)), np.float32(0))
    new_logs = np.log(new, where=real, out=np.zeros_like(new))
    if not np.isfinite(new_logs).all():
        raise DataError("Log probs is inf or NaN: error in update or bad stats?")
    old_logs = np.log(np.exp(model.log_probs[ids[firsts[chosen]]]))
    improvement = float((pooled[chosen] * (new_logs - old_logs))[real].sum())
    updated, rows = chosen[pools], np.cumsum(chosen)[pools] - 1
    log_probs = model.log_probs.copy()
    log_probs[ids[updated][exists[updated]]] = new_logs[rows[updated]][exists[updated]]
    num_floored = int((new[real] == np.float32(floor)).sum())
    update = TransitionUpdate(
        replace(model, log_probs=log_probs), improvement, float(sums[several].sum())
    )
    _log(update, num_floored, int((several & ~chosen).sum()), share_for_pdfs)
    return update


def _pools(model: TransitionModel, share_for_pdfs: bool) -> tuple[NDArray, NDArray]:
    """Transition states, and for each its pool (from 0), sorted by pool.

    The states of a pool get the same probabilities: with `share_for_pdfs` those with a common pdf,
    otherwise each state is its own pool.
    """
    numbers = np.arange(len(model.tuples))
    if not share_for_pdfs:
        return numbers, numbers
    pdfs = model.tuples[:, 2:]
    pairs = np.unique(np.stack([pdfs.T.ravel(), np.tile(numbers, 2)], axis=1), axis=0)
    return pairs[:, 1], np.unique(pairs[:, 0], return_inverse=True)[1]


def _ids(sizes: NDArray[np.int32], states: NDArray) -> tuple[NDArray, NDArray]:
    """Transition ids of each of `states`, (len(states), S), padded with 0, and a mask of real ids.

    `sizes` has the number of transitions of each transition state; S is the largest.
    """
    steps = np.arange(sizes.max(initial=0))
    exists = steps < sizes[states, None]
    return np.where(exists, (np.cumsum(sizes) - sizes + 1)[states, None] + steps, 0), exists


def _log(update: TransitionUpdate, num_floored: int, num_skipped: int, shared: bool) -> None:
    change = f"{update.average:g} per frame over {update.count:g} frames"
    floored = f"{num_floored} probabilities floored, {num_skipped}"
    if shared:
        log.log(f"Objf change is {change}; {floored} pdf-ids skipped due to insuffient data.")
        return
    log.log(f"TransitionModel::Update, objf change is {change}. ")
    log.log(
        f"{floored} out of {len(update.model.tuples)} transition-states skipped due to insuffient "
        "data (it is normal to have some skipped.)"
    )

"""The numerator's forward-backward on NumPy: a few calls a frame, for all sequences together."""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.numerator import Grouping, Paths
from nnet3tools.tensor.registry import implements


@implements("numerator", "numpy")
def numerator(
    results: np.ndarray,
    output: np.ndarray,
    paths: Paths,
    deriv: np.ndarray | None = None,
    weight: float = 1.0,
) -> None:
    """In float64; (frames' arcs) numbers are kept from the forward pass."""
    posteriors = deriv
    if deriv is not None and not deriv.flags.c_contiguous:
        posteriors = np.zeros(deriv.shape, deriv.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):  # -inf where there is no path
        _run(results, output, paths, posteriors, weight)
    if deriv is not None and posteriors is not deriv:
        deriv += posteriors


def _run(
    results: np.ndarray,
    output: np.ndarray,
    paths: Paths,
    deriv: np.ndarray | None,
    weight: float,
) -> None:
    values = output.reshape(-1)
    alpha = np.full(int(paths.first_states[-1]), -np.inf)
    alpha[paths.starts] = 0.0
    scores = []
    for t, frame in enumerate(paths.frames):
        now, after, cell = _places(paths, t)
        scores.append(values[frame.cells + cell] - frame.costs)
        through = alpha[now][frame.sources] + scores[t]
        group = frame.by_destination
        alpha[after][group.values] = _log_sums(through, group)
    totals = np.full(paths.num_parts, -np.inf)
    np.logaddexp.at(totals, paths.final_parts, alpha[paths.finals] - paths.final_costs)
    results[0] = totals.sum()
    if deriv is None:
        return
    beta = np.full(len(alpha), -np.inf)
    beta[paths.finals] = -paths.final_costs - totals[paths.final_parts]
    by_cell = deriv.reshape(-1)
    for t in reversed(range(len(paths.frames))):
        frame = paths.frames[t]
        now, after, cell = _places(paths, t)
        through = scores[t] + beta[after][frame.destinations]
        group = frame.by_source
        beta[now][group.values] = _log_sums(through, group)
        through += alpha[now][frame.sources]
        group = frame.by_cell
        posteriors = np.add.reduceat(np.exp(through)[group.order], group.starts)
        by_cell[group.values + cell] += weight * posteriors


def _places(paths: Paths, t: int) -> tuple[slice, slice, int]:
    """States of frame t, states after it, and its first cell."""
    first, after, end = paths.first_states[t : t + 3]
    return slice(first, after), slice(after, end), int(paths.first_cells[t])


def _log_sums(values: np.ndarray, group: Grouping) -> np.ndarray:
    """Log of the sum of exp in each group."""
    values = values[group.order]
    largest = np.maximum.reduceat(values, group.starts)
    largest[largest == -np.inf] = 0.0
    values -= np.repeat(largest, group.sizes)
    return largest + np.log(np.add.reduceat(np.exp(values, out=values), group.starts))

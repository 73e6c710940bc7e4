"""Posteriors of pdfs in each frame of a supervision, from its weights alone."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.supervision import Supervision, state_times
from nnet3tools.errors import DataError
from nnet3tools.fst.connect import breadth_first_sorted
from nnet3tools.fst.epsilon import epsilon_arcs, remove_epsilons
from nnet3tools.fst.fst import Fst
from nnet3tools.io.sparse import SparseMatrix


def supervision_posteriors(supervision: Supervision) -> SparseMatrix:
    """The posteriors (frames, pdfs) of a supervision; if end-to-end, of its alignment.

    DataError for supervision of several sequences, or without the alignment.
    """
    if supervision.num_sequences != 1:
        raise DataError("expected supervision of one sequence, found a merged example")
    num_frames, num_pdfs = supervision.frames_per_sequence, supervision.label_dim
    if supervision.is_e2e:
        pdfs = supervision.alignment_pdfs
        if pdfs is None or len(pdfs) != num_frames:
            raise DataError("Alignment pdfs not present or wrong length.  Using e2e egs?")
        frames, weights = np.arange(num_frames, dtype=np.int32), np.ones(num_frames)
    else:
        fst = supervision.fst
        if epsilon_arcs(fst).any():
            fst = breadth_first_sorted(remove_epsilons(fst))
        times, length = state_times(fst)
        if length != num_frames:
            raise DataError(f"the supervision's FST is {length} frames long, expected {num_frames}")
        frames, pdfs, weights = times[fst.sources], fst.ilabels - 1, _arc_posteriors(fst, times)
    if pdfs.min() < 0 or pdfs.max() >= num_pdfs:
        raise DataError(f"the supervision has pdf {pdfs.max()}: expected 0 to {num_pdfs - 1}")
    # A dense matrix could be huge: only the file's header gives its width.
    cells, cell = np.unique(frames.astype(np.int64) * num_pdfs + pdfs, return_inverse=True)
    sums = np.bincount(cell, weights).astype(np.float32)
    rows, columns = np.divmod(cells[sums != 0], num_pdfs)
    counts = np.bincount(rows, minlength=num_frames)
    return SparseMatrix.from_counts(counts, columns, sums[sums != 0], num_pdfs)


def _arc_posteriors(fst: Fst, times: NDArray[np.int32]) -> NDArray[np.float64]:
    """The posterior of each arc, (A,), by forward-backward; `times` has the frame of each state."""
    probs = np.exp(-fst.weights.astype(np.float64))
    forward, backward = np.zeros(fst.num_states), np.exp(-fst.finals.astype(np.float64))
    forward[0] = 1.0
    # States are in order of time, so the arcs of a frame lie together.
    edges = fst.offsets[np.searchsorted(times, np.arange(int(times[-1]) + 1))]
    spans = [slice(begin, end) for begin, end in pairwise(edges.tolist())]
    for arcs in spans:
        moved = forward[fst.sources[arcs]] * probs[arcs]
        np.add.at(forward, fst.nextstates[arcs], moved / moved.sum())
    posteriors = np.zeros(fst.num_arcs)
    for arcs in reversed(spans):
        moved = backward[fst.nextstates[arcs]] * probs[arcs]
        moved /= moved.sum()
        np.add.at(backward, fst.sources[arcs], moved)
        whole = forward[fst.sources[arcs]] * moved
        posteriors[arcs] = whole / whole.sum()
    return posteriors

"""Converts a supervision's acceptors to the arcs of each frame, for tensor/numerator.py.

A plain supervision of several sequences is one acceptor with the sequences end to end. Kaldi
joins the sequences by states whose arcs differ only by a constant cost per state. Such sequences
are independent: the constants are final costs, and the sequences are computed side by side. Other
sequences stay joined.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import Fst
from nnet3tools.tensor.operators.numerator import FrameArcs, Paths

_Ints = NDArray[np.integer]

_SAME_COST = 1.0e-3
"""The largest difference between costs that rounding explains."""


def supervision_paths(supervision: Supervision, num_pdfs: int) -> Paths:
    """All paths through a supervision, for a network output of `num_pdfs` columns.

    DataError for another number of pdfs, or if the acceptors are not as Supervision says.
    """
    if supervision.label_dim != num_pdfs:
        raise DataError(
            f"the supervision is for {supervision.label_dim} pdfs, the network's output has "
            f"{num_pdfs}"
        )
    if supervision.is_e2e:
        return _end_to_end_paths(supervision, num_pdfs)
    return _plain_paths(supervision, num_pdfs)


def _end_to_end_paths(supervision: Supervision, num_pdfs: int) -> Paths:
    """The paths of end-to-end supervision: in each frame, all states of all sequences."""
    fsts = supervision.e2e_fsts
    num_frames = supervision.frames_per_sequence
    for fst in fsts:
        if not fst.num_arcs:
            raise DataError("an acceptor of the end-to-end supervision has no arcs")
        if (fst.ilabels == 0).any():
            raise DataError("the end-to-end supervision has an epsilon arc, expected none")
    first = np.cumsum([0, *(fst.num_states for fst in fsts)])
    num_states = int(first[-1])
    sequence = np.repeat(np.arange(len(fsts)), [fst.num_arcs for fst in fsts])
    arcs = FrameArcs(
        np.concatenate([fst.sources for fst in fsts]) + first[sequence],
        np.concatenate([fst.nextstates for fst in fsts]) + first[sequence],
        np.concatenate([fst.ilabels for fst in fsts]) - 1 + sequence * num_pdfs,
        np.concatenate([fst.weights for fst in fsts]).astype(np.float64),
        sequence,
    )
    costs = np.concatenate([fst.finals for fst in fsts]).astype(np.float64)
    finals = np.flatnonzero(np.isfinite(costs))
    return Paths(
        [arcs] * num_frames,
        np.arange(num_frames + 2) * num_states,
        np.arange(num_frames) * (len(fsts) * num_pdfs),
        first[:-1] + [fst.start for fst in fsts],
        finals + num_frames * num_states,
        costs[finals],
        np.searchsorted(first, finals, side="right") - 1,
    )


def _plain_paths(supervision: Supervision, num_pdfs: int) -> Paths:
    fst, length = supervision.fst, supervision.frames_per_sequence
    times = supervision.state_times().astype(np.int64)
    first_state = np.searchsorted(times, np.arange(supervision.num_frames + 2))
    borders = np.arange(1, supervision.num_sequences) * length
    cuts, cut_states, cut_costs = _independent(fst, first_state, borders)
    # The first frame of each part. A part is one sequence, or several joined ones.
    begins = np.array([0, *cuts])

    # States are numbered per frame of a part; a state between two parts belongs to the first.
    part = np.searchsorted(begins, times - 1, side="right") - 1
    local_time = times - begins[np.maximum(part, 0)]
    numbers, sizes = _numbered(local_time[1:])
    numbers = np.concatenate([[0], numbers])

    arc_times = times[fst.sources]
    arc_part = np.searchsorted(begins, arc_times, side="right") - 1
    local = arc_times - begins[arc_part]
    # All states between two parts have the arcs of the first of them.
    kept = np.flatnonzero((local > 0) | (fst.sources == first_state[begins[arc_part]]))
    kept = kept[np.argsort(local[kept], kind="stable")]
    arc_times, arc_part, local = arc_times[kept], arc_part[kept], local[kept]
    rows = arc_times % length * supervision.num_sequences + arc_times // length
    sources = np.where(local > 0, numbers[fst.sources[kept]], arc_part)
    columns = (
        sources,
        numbers[fst.nextstates[kept]],
        rows * num_pdfs + fst.ilabels[kept] - 1,
        fst.weights[kept].astype(np.float64),
        arc_part,
    )
    bounds = np.searchsorted(local, np.arange(len(sizes) + 1))
    frames = [
        FrameArcs(*(column[begin:end] for column in columns))
        for begin, end in itertools.pairwise(bounds)
    ]
    first_states = np.cumsum([0, len(begins), *sizes])
    last = np.flatnonzero(fst.is_final)
    finals = np.concatenate([cut_states, last]).astype(np.intp)
    return Paths(
        frames,
        first_states,
        np.zeros(len(frames), np.intp),
        np.arange(len(begins)),
        first_states[local_time[finals]] + numbers[finals],
        np.concatenate([cut_costs, fst.finals[last]]).astype(np.float64),
        part[finals],
    )


def _numbered(values: _Ints) -> tuple[_Ints, _Ints]:
    """Count equal values in an array of positive integers; return (places, counts).

    `places[i]` counts earlier elements equal to values[i], `counts[k]` all that are equal to k + 1.
    """
    order = np.argsort(values, kind="stable")
    sizes = np.bincount(values)[1:]
    places = np.empty(len(values), np.intp)
    places[order] = np.arange(len(values)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return places, sizes


def _independent(
    fst: Fst, first_state: _Ints, borders: _Ints
) -> tuple[list[int], NDArray[np.intp], NDArray[np.float64]]:
    """The times among `borders` at which the sequences before and after are independent.

    Returns (these times, the states at them, the states' final costs). `first_state` has the first
    state of each time.
    """
    cuts: list[int] = []
    states: list[_Ints] = []
    costs: list[NDArray[np.float64]] = []
    for border in borders.tolist():
        begin, end = first_state[border : border + 2]
        if (constants := _constant_costs(fst, int(begin), int(end))) is not None:
            cuts.append(border)
            states.append(np.arange(begin, end))
            costs.append(constants)
    none = np.zeros(0)
    return cuts, np.concatenate([none.astype(np.intp), *states]), np.concatenate([none, *costs])


def _constant_costs(fst: Fst, begin: int, end: int) -> NDArray[np.float64] | None:
    """For states `begin` to `end` - 1: the cost of the state's arcs minus that of `begin`'s arcs.

    None if the states' arcs do not differ by one constant per state.
    """
    if end == begin + 1:
        return np.zeros(1)
    offsets = fst.offsets[begin : end + 1]
    counts = np.diff(offsets)
    if (counts != counts[0]).any() or counts[0] == 0:
        return None
    labels, targets, weights = (
        column[offsets[0] : offsets[-1]].reshape(end - begin, -1)
        for column in (fst.ilabels, fst.nextstates, fst.weights.astype(np.float64))
    )
    more = weights - weights[0]
    constants = more.mean(axis=1)
    if (
        (labels != labels[0]).any()
        or (targets != targets[0]).any()
        or (abs(more - constants[:, None]) > _SAME_COST).any()
    ):
        return None
    return constants

"""Proto-supervisions: the allowed phones of an utterance, by frame.

The times come from an alignment or phone lattice and are widened
by the tolerances and then subsampled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.options import SupervisionOptions
from nnet3tools.errors import MAX_FRAMES, DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.fst.fst import Fst
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.fst.minimize import distances_to_end, push_to_initial, top_order
from nnet3tools.io.holder import Holder
from nnet3tools.io.stream import Reader


@dataclass(frozen=True)
class PhoneLattice:
    """A phone acceptor with graph costs, and the time that its arcs take.

    `lengths` (A,) are the arcs' numbers of frames, `final_lengths` (N,) those after a final state.
    """

    fst: Fst
    lengths: NDArray[np.int64]
    final_lengths: NDArray[np.int64]

    def times(self) -> tuple[NDArray[np.int64], int]:
        """The frame of each state, (N,), and the number of frames.

        DataError unless states are ordered by time, each arc has a phone, all paths to a state have
        one length, and final states are at the end.
        """
        fst = self.fst
        if not fst.num_states:
            raise DataError("the lattice is empty")
        if fst.start != 0 or (fst.nextstates <= fst.sources).any():
            raise DataError("the lattice is not in topological order from state 0 on")
        if (fst.ilabels == 0).any():
            raise DataError("the lattice has an epsilon arc, expected a phone on each")
        times = np.full(fst.num_states, -1, np.int64)
        times[0] = 0
        arcs = zip(
            fst.sources.tolist(), fst.nextstates.tolist(), self.lengths.tolist(), strict=True
        )
        for source, target, length in arcs:
            if times[target] < 0:
                times[target] = times[source] + length
            elif times[target] != times[source] + length:
                raise DataError(f"paths to state {target} of the lattice differ in length")
        finals = np.flatnonzero(fst.is_final & (times >= 0))
        if not len(finals):
            raise DataError("the lattice has no path to a final state")
        end = int((times[finals] + self.final_lengths[finals]).max())
        if (times[finals] != end).any():
            raise DataError(
                "the lattice has a final state before its end: is it aligned to phones?"
            )
        return times, end


def _read(reader: Reader) -> PhoneLattice:
    lattice = COMPACT_LATTICE.read(reader)
    lengths = lattice.strings.lengths
    num_arcs = lattice.fst.num_arcs
    return PhoneLattice(lattice.fst, lengths[:num_arcs], lengths[num_arcs:])


PHONE_LATTICE: Holder[PhoneLattice] = Holder("a lattice", _read, has_header=False)
"""The holder of tables of compact lattices, of which phones, costs and lengths are kept."""


@dataclass(frozen=True)
class ProtoSupervision:
    """An epsilon-free acceptor of phones, and the phones allowed in each subsampled frame.

    If `sequence` is not empty, the acceptor accepts this sequence of phones only, without costs.
    """

    fst: Fst
    allowed_phones: list[set[int]]
    sequence: list[int] = field(default_factory=list)


def _allowed(
    phones: list[int],
    begins: list[int],
    ends: list[int],
    num_frames: int,
    options: SupervisionOptions,
) -> list[set[int]]:
    """The phones allowed in each subsampled frame.

    Phone phones[i] has input frames begins[i] to ends[i] - 1, widened by the options' tolerances.
    """
    factor = options.frame_subsampling_factor
    allowed: list[set[int]] = [set() for _ in range(-(-num_frames // factor))]
    for phone, begin, end in zip(phones, begins, ends, strict=True):
        first = -(-max(0, begin - options.left_tolerance) // factor)
        last = -(-min(num_frames, end + options.right_tolerance) // factor)
        for of_frame in allowed[first:last]:
            of_frame.add(phone)
    if not all(allowed):
        raise DataError(f"no phone may be on frame {allowed.index(set())}: is there a gap in time?")
    return allowed


def of_alignment(pairs: NDArray[np.int32], options: SupervisionOptions) -> ProtoSupervision:
    """The proto-supervision of pairs (N, 2) of phone and duration; DataError unless positive."""
    if not len(pairs):
        raise DataError("expected phones with durations, found none")
    if pairs.min() <= 0:
        row = pairs[np.flatnonzero((pairs <= 0).any(axis=1))[0]]
        raise DataError(f"expected positive phones and durations, found {row[0]} {row[1]}")
    ends = np.cumsum(pairs[:, 1], dtype=np.int64)
    if ends[-1] > MAX_FRAMES:
        raise DataError(f"the phones last {ends[-1]} frames: expected at most {MAX_FRAMES}")
    begins, num_frames = ends - pairs[:, 1], int(ends[-1])
    phones = pairs[:, 0].tolist()
    allowed = _allowed(phones, begins.tolist(), ends.tolist(), num_frames, options)
    return ProtoSupervision(Fst.linear(phones), allowed, phones)


def of_lattice(lattice: PhoneLattice, options: SupervisionOptions) -> ProtoSupervision:
    """The proto-supervision of a phone lattice, its graph costs scaled by --lm-scale.

    DataError if the lattice is not ordered by time or its paths differ in length.
    """
    times, num_frames = lattice.times()
    fst = lattice.fst
    begins = times[fst.sources]
    ends = begins + lattice.lengths
    allowed = _allowed(fst.ilabels.tolist(), begins.tolist(), ends.tolist(), num_frames, options)
    fst = fst.scaled(options.lm_scale)
    if options.lm_scale:
        order = top_order(fst)
        assert order is not None, "a lattice in order of time has no cycles"
        fst = push_to_initial(fst, distances_to_end(fst, order), remove_total_weight=True)
    return ProtoSupervision(fst, allowed)

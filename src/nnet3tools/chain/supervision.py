"""Supervision of chain training: acceptors of the allowed sequences (chain-supervision.h)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.chain.example_format import SUPERVISION_RECORD
from nnet3tools.chain.sequences import SequenceSupervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.holders import Holder
from nnet3tools.nnet.indexes import sorted_unique


@dataclass(frozen=True)
class Supervision(SequenceSupervision):
    """Acceptors of pdfs plus one (or transition ids) for `num_sequences` sequences of one length.

    Plain supervision is one acyclic epsilon-free acceptor `fst`, all of whose paths have
    `num_sequences` x `frames_per_sequence` arcs: the sequences follow one another. In end-to-end
    supervision `e2e_fsts` has one acceptor per sequence, with cycles, and `fst` is empty.
    `label_dim` is the largest label. `alignment_pdfs`, if not None, are one path's pdfs, for LDA.
    """

    label_dim: int
    fst: Fst
    e2e_fsts: tuple[Fst, ...] = ()
    alignment_pdfs: NDArray[np.int32] | None = None

    RECORD = SUPERVISION_RECORD

    @property
    def is_e2e(self) -> bool:
        """Whether this is end-to-end supervision."""
        return bool(self.e2e_fsts)

    @property
    def acceptors(self) -> Fst | tuple[Fst, ...]:
        """The one acceptor or, for end-to-end supervision, a tuple of one acceptor per sequence."""
        return self.e2e_fsts or self.fst

    @classmethod
    def of_fields(cls, values: dict[str, Any]) -> Supervision:
        """A supervision from `values`: name of a field of SUPERVISION_RECORD -> its value.

        The names are those of the attributes, but `is_e2e` and `acceptors` (an Fst or, if `is_e2e`,
        a tuple of Fsts) replace `fst` and `e2e_fsts`. Only `alignment_pdfs` may be absent.
        """
        rest = dict(values)
        acceptors = rest.pop("acceptors")
        if rest.pop("is_e2e"):
            return cls(**rest, fst=Fst.empty(), e2e_fsts=acceptors)
        return cls(**rest, fst=acceptors)

    def check(self) -> None:
        """Raise DataError unless the acceptors' labels are epsilon or from 1 to `label_dim`."""
        for fst in self.e2e_fsts or (self.fst,):
            fst.check_labels(self.label_dim, "the supervision's FST", allow_epsilon=True)

    def state_times(self) -> NDArray[np.int32]:
        """The frame of each state of `fst`, (N,); the sequences follow one another.

        DataError if paths to a state differ in length, or a final state's time is not the
        number of frames, or there are epsilons, or states are not in order of time.
        """
        times, length = state_times(self.fst)
        if length != self.num_frames:
            raise DataError(
                f"the supervision's FST is {length} frames long, expected {self.num_sequences} x "
                f"{self.frames_per_sequence}"
            )
        return times


def state_times(fst: Fst) -> tuple[NDArray[np.int32], int]:
    """(arcs from start to each state, (N,); arcs from start to final states).

    DataError unless the FST has no epsilons or cycles, states in order of time from state 0 on, and
    one length for all paths to a state, and to final ones (Kaldi's ComputeFstStateTimes).
    """
    if fst.start != 0:
        raise DataError(f"the supervision's FST starts in state {fst.start}, expected state 0")
    if (fst.ilabels == 0).any():
        raise DataError("the supervision's FST has an epsilon arc, expected none")
    back = np.flatnonzero(fst.nextstates <= fst.sources)
    if len(back):
        raise DataError(
            f"the supervision's FST has an arc back from state {fst.sources[back[0]]} to "
            f"{fst.nextstates[back[0]]}: expected no cycles and states in order of time"
        )
    times = _times_of_sorted(fst)
    before, after = times[fst.sources], times[fst.nextstates]
    if (times < 0).any() or (after != before + 1).any() or (np.diff(times) < 0).any():
        raise DataError(
            "the supervision's FST has paths of different lengths to a state, expected states in "
            "order of time"
        )
    lengths = sorted_unique(times[fst.is_final])
    if len(lengths) != 1:
        raise DataError(
            f"the supervision's FST has final states at {len(lengths)} times, expected one"
        )
    return times, int(lengths[0])


def _times_of_sorted(fst: Fst) -> NDArray[np.int32]:
    """The number of arcs from the start to each state, (states,); -1 if it cannot be reached.

    The states of a frame must have successive numbers, and their arcs' targets the next ones.
    """
    times = np.full(fst.num_states, -1, np.int32)
    times[0] = 0
    # furthest[s] is the largest target of the arcs of states 0 to s.
    furthest = np.full(fst.num_states, 0, np.int64)
    np.maximum.at(furthest, fst.sources, fst.nextstates)
    np.maximum.accumulate(furthest, out=furthest)
    begin, end, time = 0, 1, 0
    while begin < end:
        times[begin:end] = time
        begin, end, time = end, int(furthest[end - 1]) + 1, time + 1
    return times


class SupervisionCutter:
    """Cuts a supervision of one sequence, not end-to-end (else DataError), to chunks' frames."""

    def __init__(self, supervision: Supervision) -> None:
        if supervision.is_e2e or supervision.num_sequences != 1:
            raise DataError("expected plain supervision of one sequence, to be cut to chunks")
        self._supervision = supervision
        self._times = supervision.state_times()

    def cut(self, first_frame: int, num_frames: int) -> Supervision:
        """The supervision of the `num_frames` frames from `first_frame` on.

        Its FST has epsilon arcs from a new start state to all states of the first frame. All paths
        end in one new final state.
        """
        ends = [first_frame, first_frame + num_frames]
        begin, end = np.searchsorted(self._times, ends).tolist()
        if begin == end:
            raise DataError(f"supervision has no frames from {first_frame} to {ends[1] - 1}")
        fst = self._supervision.fst
        firsts = np.flatnonzero(self._times[begin:end] == first_frame) + 1
        arcs = slice(fst.offsets[begin], fst.offsets[end])
        final = end - begin + 1
        targets = fst.nextstates[arcs]
        nothing = np.zeros(len(firsts), np.int32)
        finals = np.full(final + 1, NOT_FINAL, np.float32)
        finals[final] = 0.0
        piece = Fst.from_arcs(
            0,
            finals,
            np.concatenate([nothing, fst.sources[arcs] - begin + 1]),
            np.concatenate([nothing, fst.ilabels[arcs]]),
            np.concatenate([nothing.astype(np.float32), fst.weights[arcs]]),
            np.concatenate([firsts, np.where(targets >= end, final, targets - begin + 1)]),
        )
        return replace(self._supervision, fst=piece, frames_per_sequence=num_frames)


EncodedSupervision = EncodedRecord[Supervision]
"""The bytes of a supervision."""

SUPERVISION: Holder[Supervision] = Holder(
    "a supervision", Supervision.read, lambda writer, supervision: supervision.write(writer)
)
"""The holder of tables of supervisions."""

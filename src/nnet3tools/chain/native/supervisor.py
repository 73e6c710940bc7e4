"""Normalizer, SupervisionCutter and pdf_acceptor in C, from bytes to bytes."""

from __future__ import annotations

import ctypes
import enum
import functools
import itertools
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fst.file_header import ARC
from nnet3tools.fst.fst import Fst
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.library import load_files

_FILES = (
    "acceptor.h", "epsilons.c", "local_epsilons.c", "determinize.c", "minimize.c", "compose.c",
    "properties.c", "supervise.c",
)  # fmt: skip

_JOBS_AT_A_TIME = 8
"""Signals are heeded between calls of C only: of 256 that take 2.5 s so many take 80 ms."""


class JobKind(enum.IntEnum):
    """The kinds of jobs of NativeSupervisor.make, which differ in the FST that a job converts.

    The FSTs of GRAPHS are in OpenFst's vector format, all others are compact acceptors.
    """

    WHOLE = 0
    """Plain supervision with weights."""
    PIECES = 1
    """Some frames of plain supervision, with weights if there are any."""
    END_TO_END = 2
    """End-to-end supervision with weights."""
    GRAPHS = 3
    """The acceptor of a training graph in a vector file, with weights if there are any."""


class Job(NamedTuple):
    """The position of an FST in a byte string, and a range of frames (`job` in supervise.c)."""

    at: int
    """Where the FST begins in the data."""
    first_frame: int = 0
    num_frames: int = 0
    """Of a piece."""
    size: int = 0
    """How many frames a piece is cut from; how many arcs the best path of a graph may have."""


@functools.cache
def compiled_library() -> ctypes.CDLL | None:
    """The C library, even if NumPy kernels are chosen; None if it cannot be compiled."""
    return load_files(Path(__file__).parent, _FILES, "supervisions' acceptors")


def native_supervisor(
    normalization: Fst | None, labels: NDArray[np.int32] | None = None
) -> NativeSupervisor | None:
    """A NativeSupervisor; None if NumPy kernels are chosen or there is no compiler."""
    library = compiled_library() if are_native() else None
    return None if library is None else NativeSupervisor(library, normalization, labels)


class NativeSupervisor:
    """Makes supervision acceptors in C; adds the weights of the `normalization` FST, if given.

    `labels` (L,) maps the labels of graphs (transition ids) to labels of acceptors.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        normalization: Fst | None,
        labels: NDArray[np.int32] | None = None,
    ) -> None:
        self._library: Any = library
        fst = normalization or Fst.empty()
        order = np.lexsort((fst.ilabels, fst.sources))  # which keeps the order of like ones
        arcs = np.empty(fst.num_arcs, ARC)
        arcs["ilabel"] = arcs["olabel"] = fst.ilabels[order]
        arcs["weight"], arcs["nextstate"] = fst.weights[order], fst.nextstates[order]
        offsets = np.ascontiguousarray(fst.offsets, np.int64)
        finals = np.ascontiguousarray(fst.finals, np.float32)
        of_labels = np.ascontiguousarray(np.zeros(0) if labels is None else labels, np.int32)
        new = self._library.nn_supervisor_new
        new.restype, long, pointer = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        new.argtypes = (long, long, pointer, pointer, pointer, long, pointer)
        handle = new(
            *(fst.start, fst.num_states, finals.ctypes.data, offsets.ctypes.data),
            *(arcs.ctypes.data, len(of_labels), of_labels.ctypes.data),
        )
        if not handle:
            raise MemoryError
        self._handle = ctypes.c_void_p(handle)
        self._library.nn_supervisor_output.restype = ctypes.c_void_p
        weakref.finalize(self, self._library.nn_supervisor_free, self._handle)

    def make(self, kind: JobKind, data: bytes, jobs: Sequence[Job]) -> list[bytes | None]:
        """The encoded acceptor that each job makes from its FST in `data`; None if C cannot.

        The bytes must have been checked by `fst.file_walks`. Python modules have to handle the
        None cases: the result is empty or too big, or the FST is faulty.
        """
        wanted = np.array(jobs, np.int64).reshape(-1, len(Job._fields))
        ends = np.empty(len(wanted) + 1, np.int64)
        ends[-1] = 0
        for begin in range(0, len(wanted), _JOBS_AT_A_TIME):
            self._library.nn_supervise(
                self._handle,
                int(kind),
                ctypes.c_char_p(data),
                ctypes.c_int64(begin),
                ctypes.c_int64(min(begin + _JOBS_AT_A_TIME, len(wanted))),
                ctypes.c_void_p(wanted.ctypes.data),
                ctypes.c_void_p(ends.ctypes.data),
            )
        if not ends[-1]:
            return [None] * len(wanted)
        made = ctypes.string_at(self._library.nn_supervisor_output(self._handle), int(ends[-1]))
        return [made[a:b] if a < b else None for a, b in itertools.pairwise(ends.tolist())]

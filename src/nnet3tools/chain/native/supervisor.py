"""Normalizer, SupervisionCutter and pdf_acceptor in C, from bytes to bytes."""

from __future__ import annotations

import ctypes
import enum
import functools
import itertools
import os
import weakref
from collections.abc import Sequence
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
    """The kinds of jobs of NativeSupervisor.make, by what the FST of a job is.

        WHOLE       acceptor of a plain supervision, to which weights are added
        PIECES      acceptor of a plain supervision, from which a range of frames is cut
        END_TO_END  acceptor of an end-to-end supervision, to which weights are added
        GRAPHS      training graph of transition ids, in OpenFst's vector format
        MERGED      acceptor of a plain supervision, one of a group that is merged

    Weights are those of the normalization FST. FSTs of the other kinds are compact acceptors.
    """

    WHOLE = 0
    PIECES = 1
    END_TO_END = 2
    GRAPHS = 3
    MERGED = 4


class Job(NamedTuple):
    """What to make of the FST at position `at` of a byte string; the rest depends on JobKind.

    PIECES: `num_frames` frames from `first_frame` on of a supervision of `size` frames. GRAPHS: a
    graph with a path of at most `size` arcs. MERGED: FST number `first_frame` of a group of `size`
    successive jobs, of which the last one makes the merged acceptor. Other kinds use only `at`.
    """

    at: int
    first_frame: int = 0
    num_frames: int = 0
    size: int = 0


@functools.cache
def compiled_library() -> ctypes.CDLL | None:
    """The C library that makes acceptors, also if NumPy kernels are chosen; None if it fails."""
    return load_files(os.path.dirname(__file__), _FILES, "supervisions' acceptors")


def native_supervisor(
    normalization: Fst | None, labels: NDArray[np.int32] | None = None
) -> NativeSupervisor | None:
    """A NativeSupervisor that adds the weights of `normalization`, if given.

    `labels` maps labels of training graphs to labels of acceptors. The result is None if NumPy
    kernels are chosen or there is no compiler.
    """
    library = compiled_library() if are_native() else None
    return None if library is None else NativeSupervisor(library, normalization, labels)


class NativeSupervisor:
    """Makes encoded acceptors of chain supervisions in C, from encoded FSTs of each JobKind.

    `normalization`: FST whose weights are added. `labels` (L,): transition id -> acceptor label.
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
        """The encoded acceptor that each job makes from its FST in `data`.

        The FSTs must have been checked by `fst.file_walks`. None stands for jobs that only
        Python can do, because the result is empty or too big, or the FST is faulty.
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

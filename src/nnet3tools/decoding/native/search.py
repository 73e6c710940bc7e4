"""The Viterbi search computed by the C library."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.frames import Links, TokenLattice
from nnet3tools.decoding.graph import DecodingGraph
from nnet3tools.decoding.native.library import OptionStruct, c_arrays
from nnet3tools.decoding.options import SearchOptions
from nnet3tools.errors import DataError, ProgramError

_EPSILON_LOOP = -2
_FRAMES_AT_A_TIME = 25
"""Frames of one call of C, 50 ms with a large graph: signals are handled between calls."""

_ROOM_FOR_ARCS = 4096
"""Arcs of the best path that the first call of C has room for: half a minute of speech."""


class _Graph(ctypes.Structure):
    """The C struct `search_graph` of search.c: pointers to a decoding graph's arrays."""

    _fields_ = (
        ("num_states", ctypes.c_int64),
        ("start", ctypes.c_int64),
        *(
            (name, ctypes.c_void_p)
            for name in (
                "finals", "offsets", "ilabels", "nextstates", "weights", "pdfs", "has_epsilon",
            )
        ),
    )  # fmt: skip


class _LinkArrays(ctypes.Structure):
    """The C struct `link_arrays` of search.c: pointers to the arrays of `Links`."""

    _fields_ = tuple((name, ctypes.c_void_p) for name in ("sources", "targets", "arcs", "acoustic"))


class NativeDecoder:
    """Beam search in C, with the same tokens and links as `decoder.Decoder`."""

    def __init__(self, library: ctypes.CDLL, graph: DecodingGraph, options: SearchOptions) -> None:
        """Prepare searches over `graph`, which decoders may share; MemoryError if memory ends."""
        self.graph = graph
        self._library: Any = library
        arrays = c_arrays(
            (graph.fst.finals, np.float32),
            (graph.fst.offsets, np.int64),
            (graph.fst.ilabels, np.int32),
            (graph.fst.nextstates, np.int32),
            (graph.fst.weights, np.float32),
            (graph.pdfs, np.int32),
            (graph.has_epsilon, np.bool_),
        )
        given = _Graph(graph.num_states, graph.fst.start, *(array.ctypes.data for array in arrays))
        self._alive = (given, arrays)  # C reads these arrays as long as the search exists
        new = self._library.nn_search_new
        new.restype, new.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_void_p)
        chosen = OptionStruct.of(options)
        handle = new(ctypes.addressof(given), ctypes.addressof(chosen))
        if not handle:
            raise MemoryError
        self._handle = ctypes.c_void_p(handle)
        self._has_begun = self._has_ended = False
        weakref.finalize(self, self._library.nn_search_free, self._handle)

    # -- running

    def start(self) -> None:
        """Begin a new utterance."""
        self._has_begun = self._has_ended = False
        _check(self._library.nn_search_start(self._handle))
        self._has_begun = True

    def advance(self, loglikes: NDArray[np.float32]) -> None:
        """Decode frames: `loglikes` (frames, pdfs) are log-likelihoods times the acoustic scale."""
        self._require_begun()
        if self._has_ended:
            raise ProgramError("a search that was finished does not go on")
        self.graph.check_outputs(loglikes)
        rows = np.ascontiguousarray(loglikes, np.float32)
        num_frames, num_columns = rows.shape
        for begin in range(0, num_frames, _FRAMES_AT_A_TIME):
            _check(
                self._library.nn_search_advance(
                    self._handle,
                    ctypes.c_void_p(rows.ctypes.data + begin * rows.strides[0]),
                    ctypes.c_int64(min(_FRAMES_AT_A_TIME, num_frames - begin)),
                    ctypes.c_int64(num_columns),
                )
            )

    def finish(self) -> None:
        """Prune tokens and links that are on no path within the lattice beam (FinalizeDecoding).

        Paths end in final states if one has been reached; otherwise anywhere.
        """
        self._require_begun()
        self._has_ended = True
        _check(self._library.nn_search_finish(self._handle))

    def _require_begun(self) -> None:
        """Raise ProgramError if `start` was not called: C reads the last frame without a check."""
        if not self._has_begun:
            raise ProgramError("a search was used before it was started")

    # -- results

    @property
    def num_frames(self) -> int:
        """Number of frames decoded since `start`."""
        return self._sizes()[0] - 1

    @property
    def is_alive(self) -> bool:
        """Whether any token has survived the last frame."""
        return self._sizes()[4] > 0

    def reached_final(self) -> bool:
        """Whether a token of the last frame is in a final state of the graph."""
        return bool(self._sizes()[5])

    def token_lattice(self) -> TokenLattice:
        """All tokens and links of the utterance that have not been pruned."""
        self._require_begun()
        num_frames, _, num_emitting, num_epsilon, num_last, _ = self._sizes()
        num_tokens, last_states = np.empty(num_frames, np.int64), np.empty(num_last, np.int32)
        emitting, epsilon = _links(num_emitting), _links(num_epsilon)
        self._library.nn_search_export(
            self._handle,
            ctypes.c_void_p(num_tokens.ctypes.data),
            ctypes.c_void_p(last_states.ctypes.data),
            ctypes.byref(_link_pointers(emitting)),
            ctypes.byref(_link_pointers(epsilon)),
        )
        return TokenLattice(num_tokens, last_states, emitting, epsilon)

    def trace(self) -> tuple[NDArray[np.int64], float]:
        """(graph arcs on the best path so far, relative cost of final states).

        Final costs do not decide the path. The relative cost is that of the best path to a final
        state minus that of the best path to any state: infinite if no final state is reached.
        """
        self._require_begun()
        relative, room = ctypes.c_float(), _ROOM_FOR_ARCS
        run = self._library.nn_search_trace
        run.restype = ctypes.c_int64
        while True:
            arcs = np.empty(room, np.int64)
            count = run(
                self._handle,
                ctypes.c_void_p(arcs.ctypes.data),
                ctypes.c_int64(room),
                ctypes.byref(relative),
            )
            _check(count)
            if count <= room:
                return arcs[:count][::-1], relative.value
            room = count

    def _sizes(self) -> list[int]:
        """Numbers of frames (with frame 0), tokens, emitting links and epsilon links.

        Two more numbers follow: the last frame's tokens, and 1 if one of these is final, else 0.
        """
        sizes = np.zeros(6, np.int64)
        self._library.nn_search_sizes(self._handle, ctypes.c_void_p(sizes.ctypes.data))
        return sizes.tolist()


def _check(result: int) -> None:
    if result == _EPSILON_LOOP:
        raise DataError("the decoding graph has an epsilon loop that makes paths cheaper")
    if result < 0:
        raise MemoryError


def _links(count: int) -> Links:
    """Links (arcs between tokens) with uninitialized arrays of `count` elements."""
    sources, targets, arcs = (np.empty(count, np.int64) for _ in range(3))
    return Links(sources, targets, arcs, np.empty(count, np.float32))


def _link_pointers(links: Links) -> _LinkArrays:
    arrays = links.sources, links.targets, links.arcs, links.acoustic
    return _LinkArrays(*(array.ctypes.data for array in arrays))

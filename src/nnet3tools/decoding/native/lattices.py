"""Determinization, sorting and best paths of lattices by the C library."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.native.library import c_arrays
from nnet3tools.errors import ProgramError
from nnet3tools.fst.fst import NO_STATE, Fst
from nnet3tools.fst.lattice import CompactLattice, Lattice, Strings


class _Lattice(ctypes.Structure):
    """The C struct `lattice` of determinize.c: a lattice as arrays."""

    _fields_ = (
        ("num_states", ctypes.c_int64),
        ("num_arcs", ctypes.c_int64),
        ("first", ctypes.c_void_p),
        ("labels", ctypes.c_void_p),
        ("targets", ctypes.c_void_p),
        ("graph", ctypes.c_void_p),
        ("acoustic", ctypes.c_void_p),
        ("final_graph", ctypes.c_void_p),
        ("final_acoustic", ctypes.c_void_p),
        ("string_first", ctypes.c_void_p),
        ("ids", ctypes.c_void_p),
    )


def determinized_by(
    library: ctypes.CDLL, lattice: CompactLattice, beam: float, delta: float, max_memory: int
) -> tuple[CompactLattice, float]:
    """(lattice that is deterministic on its labels, beam that was reached), computed in C.

    `delta` is the tolerance between weights of equal subsets. The beam reached is smaller than
    `beam` if `max_memory` bytes were used up (0: no limit). MemoryError if the system's memory runs
    out.
    """
    if not lattice.is_top_sorted:
        raise ProgramError("a lattice to be determinized has states out of order")
    fst = lattice.fst
    arrays = c_arrays(
        (fst.offsets, np.int64),
        (fst.ilabels, np.int32),
        (fst.nextstates, np.int32),
        (fst.weights, np.float32),
        (lattice.acoustic, np.float32),
        (fst.finals, np.float32),
        (lattice.final_acoustic, np.float32),
        (lattice.strings.ends, np.int64),
        (lattice.strings.ids, np.int32),
    )
    given = _Lattice(fst.num_states, fst.num_arcs, *(array.ctypes.data for array in arrays))
    made, reached = _Lattice(), ctypes.c_double()
    run: Any = library.nn_determinize
    run.argtypes = (
        ctypes.c_void_p, ctypes.c_double, ctypes.c_double, ctypes.c_int64, ctypes.c_void_p,
        ctypes.c_void_p,
    )  # fmt: skip
    if run(
        ctypes.addressof(given), beam, delta, max_memory, ctypes.addressof(made),
        ctypes.addressof(reached),
    ) < 0:  # fmt: skip
        raise MemoryError
    try:
        return _copied(made), reached.value
    finally:
        library.nn_free_lattice(ctypes.byref(made))


def _copied(made: _Lattice) -> CompactLattice:
    """Copy the arrays that C allocated for a lattice to a CompactLattice."""
    states, arcs = made.num_states, made.num_arcs
    ends = _copy(made.string_first, np.int64, arcs + states + 1)
    labels = _copy(made.labels, np.int32, arcs)
    fst = Fst(
        0 if states else NO_STATE,
        _copy(made.final_graph, np.float32, states),
        _copy(made.first, np.int64, states + 1),
        labels,
        labels,
        _copy(made.graph, np.float32, arcs),
        _copy(made.targets, np.int32, arcs),
    )
    acoustic = _copy(made.acoustic, np.float32, arcs)
    final_acoustic = _copy(made.final_acoustic, np.float32, states)
    final_acoustic[~fst.is_final] = 0.0
    strings = Strings(ends, _copy(made.ids, np.int32, int(ends[-1])))
    return CompactLattice(fst, acoustic, final_acoustic, strings)


def _copy(place: int, kind: type, size: int) -> NDArray:
    data = ctypes.string_at(place, size * np.dtype(kind).itemsize)
    return np.frombuffer(bytearray(data), kind)


def top_order_by(library: ctypes.CDLL, lattice: CompactLattice) -> NDArray[np.int32] | None:
    """The states in topological order, computed in C; None for a cycle."""
    fst, size = lattice.fst, lattice.fst.num_states
    order, way = np.empty(size, np.int32), np.empty(size, np.int32)
    after = np.empty(size, np.int64)
    given = c_arrays((fst.offsets, np.int64), (fst.nextstates, np.int32))
    run: Any = library.nn_top_order
    run.argtypes = (ctypes.c_int64, *[ctypes.c_void_p] * 5)
    arrays = (*given, after, way, order)
    return order if run(size, *(array.ctypes.data for array in arrays)) else None


def best_arcs_by(library: ctypes.CDLL, lattice: Lattice) -> tuple[memoryview, int]:
    """(last arc of the best path to each state, -1 for none; the best final state), computed in C.

    The final state is -1 if a loop makes paths cheaper.
    """
    fst, size = lattice.fst, lattice.fst.num_states
    costs, entered = np.empty((size, 2), np.float32), np.empty(size, np.int64)
    arrays = c_arrays(
        (fst.offsets, np.int64),
        (fst.nextstates, np.int32),
        (fst.weights, np.float32),
        (lattice.acoustic, np.float32),
        (fst.finals, np.float32),
    )
    run: Any = library.nn_best_path
    run.restype, run.argtypes = ctypes.c_int64, (ctypes.c_int64, *[ctypes.c_void_p] * 7)
    last = run(size, *(array.ctypes.data for array in (*arrays, costs, entered)))
    return entered.data, int(last)

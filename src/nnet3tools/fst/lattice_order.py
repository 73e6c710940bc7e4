"""Topological order of a lattice's states, and the frame at which each state lies."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import replace
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.epsilon import concatenate
from nnet3tools.fst.fst import NO_STATE, NOT_FINAL, Fst
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.properties import Property, concatenated_properties

_NOWHERE = -1

_IS_SORTED = Property.ACYCLIC | Property.INITIAL_ACYCLIC | Property.TOP_SORTED


def in_top_order(lattice: Lattice) -> Lattice:
    """The lattice with its states in the order of OpenFst's TopSort, even if already sorted.

    DataError if the lattice has a cycle.
    """
    if lattice.fst.start == NO_STATE:
        return lattice
    found = lattice.in_order(np.array(top_order(lattice.fst)))
    settled = _IS_SORTED | Property.CYCLIC | Property.INITIAL_CYCLIC
    properties = (found.fst.properties & ~settled) | _IS_SORTED
    return replace(found, fst=found.fst.with_properties(properties))


def lattice_state_times(lattice: Lattice) -> NDArray[np.int32]:
    """The frame of each state, (N,): the number of transition ids on paths from the start.

    The lattice is top-sorted. DataError if paths to a state differ in this number, or if a state is
    unreachable.
    """
    fst = lattice.fst
    times = [_NOWHERE] * fst.num_states
    if times:
        times[fst.start] = 0
    steps = (fst.ilabels != 0).tolist()
    pairs = zip(fst.sources.tolist(), fst.nextstates.tolist(), steps, strict=True)
    for source, target, step in pairs:
        time = times[source] + step
        if times[target] == _NOWHERE:
            times[target] = time
        elif times[target] != time:
            raise DataError(
                f"the lattice has paths of {times[target]} and of {time} frames to state {target}"
            )
    if _NOWHERE in times:
        raise DataError(f"state {times.index(_NOWHERE)} of the lattice cannot be reached")
    return np.array(times, np.int32)


def concatenated(lattices: Sequence[Lattice]) -> Lattice:
    """The lattice whose paths join a path of each of `lattices`; top-sorted.

    Epsilons join the lattices. As in Kaldi, states of the last lattice come first before sorting.
    """
    graph = concatenate([lattice.fst for lattice in lattices])
    acoustic = concatenate([_acoustic_fst(lattice) for lattice in lattices])
    final_acoustic = np.where(graph.is_final, acoustic.finals, np.float32(0.0))
    said = functools.reduce(
        lambda later, earlier: concatenated_properties(earlier, later),
        [lattice.fst.properties for lattice in lattices[::-1]],
    )
    return in_top_order(Lattice(graph.with_properties(said), acoustic.weights, final_acoustic))


def _acoustic_fst(lattice: Lattice) -> Fst:
    """An FST with the arcs of a lattice and its acoustic costs as weights."""
    finals = np.where(lattice.fst.is_final, lattice.final_acoustic, np.float32(NOT_FINAL))
    return replace(lattice.fst, weights=lattice.acoustic, finals=finals)

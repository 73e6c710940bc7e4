"""The lattice of what a decoder kept, with a transition id an arc (GetRawLattice)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.decoder import Decoder
from nnet3tools.decoding.frames import Links
from nnet3tools.decoding.graph import ArcTable
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import Lattice

__all__ = ["raw_lattice"]

_Ints = NDArray[np.intp]


def raw_lattice(decoder: Decoder, use_final: bool = True) -> Lattice:
    """All paths that the decoder's frames have, states in topological order."""
    frames, graph = decoder.frames, decoder.graph
    sizes = np.array([len(frame.states) for frame in frames])
    firsts = np.cumsum(sizes) - sizes
    before = np.concatenate([[0], firsts[:-1]])
    epsilon = _Arcs.of([frame.epsilon for frame in frames], firsts, firsts, graph.epsilon)
    emitting = _Arcs.of([frame.emitting for frame in frames], before, firsts, graph.emitting)
    frame_of_token = np.repeat(np.arange(len(sizes)), sizes)
    numbers = _topological_numbers(frame_of_token, epsilon.sources, epsilon.targets)
    acoustic = [frame.emitting.acoustic - frame.offset for frame in frames]
    acoustic.append(np.zeros(len(epsilon.sources), np.float32))
    finals = np.full(len(numbers), NOT_FINAL, np.float32)
    finals[numbers[firsts[-1] :]] = _final_costs(decoder, use_final)
    arcs = emitting.with_others(epsilon)
    sources = numbers[arcs.sources]
    fst = Fst.from_arcs(
        int(numbers[0]),
        finals,
        sources,
        arcs.ilabels,
        arcs.weights,
        numbers[arcs.targets],
        arcs.olabels,
    )
    order = np.argsort(sources, kind="stable")
    return Lattice(fst, np.concatenate(acoustic)[order], np.zeros(len(finals), np.float32))


class _Arcs(NamedTuple):
    """Arcs of one kind, tokens counted over all frames."""

    sources: _Ints
    targets: _Ints
    ilabels: NDArray[np.int32]
    olabels: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, links: list[Links], before: _Ints, firsts: _Ints, table: ArcTable) -> _Arcs:
        """Of each frame's links; what counts their sources and targets begins at these numbers."""
        counts = [len(link.arcs) for link in links]
        places = np.concatenate([link.arcs for link in links])
        return cls(
            np.concatenate([link.sources for link in links]) + np.repeat(before, counts),
            np.concatenate([link.targets for link in links]) + np.repeat(firsts, counts),
            table.ilabels[places],
            table.olabels[places],
            table.weights[places],
        )

    def with_others(self, others: _Arcs) -> _Arcs:
        """These and then the others."""
        return _Arcs(
            np.concatenate([self.sources, others.sources]),
            np.concatenate([self.targets, others.targets]),
            np.concatenate([self.ilabels, others.ilabels]),
            np.concatenate([self.olabels, others.olabels]),
            np.concatenate([self.weights, others.weights]),
        )


def _final_costs(decoder: Decoder, use_final: bool) -> NDArray[np.float32]:
    """The final costs of the last frame's tokens: 0 each if no final state has been reached."""
    states = decoder.frames[-1].states
    if use_final and decoder.reached_final():
        return decoder.graph.finals[states]
    return np.zeros(len(states), np.float32)


def _topological_numbers(frames: _Ints, sources: _Ints, targets: _Ints) -> _Ints:
    """The number of each token, given its frame: in a frame, epsilon links lead to higher ones."""
    depths = np.zeros(len(frames), np.intp)
    for _ in range(len(frames)):
        deeper = depths.copy()
        np.maximum.at(deeper, targets, depths[sources] + 1)
        if (deeper == depths).all():
            break
        depths = deeper
    else:
        raise DataError("the decoding graph has an epsilon loop: lattices must have none")
    numbers = np.empty(len(frames), np.intp)
    numbers[np.lexsort((depths, frames))] = np.arange(len(frames))
    return numbers

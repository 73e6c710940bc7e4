"""The best path through a decoder's lattice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.native.lattices import best_arcs_by
from nnet3tools.decoding.native.library import decoding_library
from nnet3tools.decoding.search import Search
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.weights import single_sum

_ZERO, _INFINITY = np.float32(0.0), np.float32(np.inf)


@dataclass(frozen=True)
class BestPath:
    """A path through a graph: arrays with one element for each arc, in order of time.

    `ilabels` are transition ids, 0 for an epsilon arc; `words` are words or 0; `graph` and
    `acoustic` are costs, float32; `final` is the cost of the final weight.
    """

    ilabels: NDArray[np.int32]
    words: NDArray[np.int32]
    graph: NDArray[np.float32]
    acoustic: NDArray[np.float32]
    final: float = 0.0

    @property
    def alignment(self) -> NDArray[np.int32]:
        """The transition id of each frame, (frames,)."""
        return self.ilabels[self.ilabels != 0]

    @property
    def transcript(self) -> NDArray[np.int32]:
        """The words of the path, (words,), in order."""
        return self.words[self.words != 0]

    @property
    def word_starts(self) -> NDArray[np.intp]:
        """The frame at which the path outputs each word, (words,)."""
        frames = np.cumsum(self.ilabels != 0) - (self.ilabels != 0)
        return frames[self.words != 0]

    @property
    def frame_costs(self) -> NDArray[np.float32]:
        """The acoustic cost of each frame, (frames,)."""
        return self.acoustic[self.ilabels != 0]

    @property
    def costs(self) -> tuple[float, float]:
        """Graph and acoustic cost of the whole path, summed in float32 as in Kaldi."""
        graph = np.append(self.graph, np.float32(self.final))
        return single_sum(graph), single_sum(self.acoustic)


def path_so_far(search: Search) -> tuple[BestPath, float]:
    """(best path so far, relative cost of final states) of a search that goes on.

    Final costs do not decide the path, and it has no acoustic costs (0). The relative cost is that
    of the best path to a final state minus that of the best path to any state.
    """
    arcs, relative_cost = search.trace()
    fst = search.graph.fst
    none = np.zeros(len(arcs), np.float32)
    path = BestPath(fst.ilabels[arcs], fst.olabels[arcs], fst.weights[arcs], none)
    return path, relative_cost


def best_path(lattice: Lattice) -> BestPath:
    """The best path of a decoder's lattice; of equal paths, the one that ShortestPath returns.

    Graph and acoustic costs are summed separately in single precision, state by state. DataError
    for a loop of epsilon arcs that makes paths cheaper, even if only by rounding.
    """
    library = decoding_library()
    entered, last = _best_arcs(lattice) if library is None else best_arcs_by(library, lattice)
    path: list[int] = []
    state = last
    sources = lattice.fst.sources.data  # its elements are read faster than an array's
    while state >= 0 and (arc := entered[state]) >= 0 and len(path) <= lattice.fst.num_states:
        path.append(arc)
        state = sources[arc]
    if state < 0 or len(path) > lattice.fst.num_states:
        raise DataError("the decoding graph has an epsilon loop that makes paths cheaper")
    arcs = np.array(path[::-1], np.intp)
    fst = lattice.fst
    return BestPath(
        fst.ilabels[arcs],
        fst.olabels[arcs],
        fst.weights[arcs],
        lattice.acoustic[arcs],
        float(fst.finals[last]),
    )


def _best_arcs(lattice: Lattice) -> tuple[Sequence[int], int]:
    """(last arc of the best path to each state, -1 for none; the best final state).

    The final state is -1 if a loop makes paths cheaper.
    """
    fst = lattice.fst
    graph, acoustic = list(fst.weights), list(lattice.acoustic)
    targets, ends, finals = fst.nextstates.tolist(), fst.offsets.tolist(), list(fst.finals)
    none = (_INFINITY, _INFINITY, _INFINITY)
    costs = [none] * fst.num_states  # total cost, which decides, then graph cost and acoustic cost
    costs[0] = (_ZERO, _ZERO, _ZERO)
    entered = [-1] * fst.num_states
    best, last = none, 0
    is_better, passes = True, 0
    while is_better:  # one pass suffices if states are in topological order
        if passes > fst.num_states:
            return entered, -1
        is_better, passes = False, passes + 1
        for state, (_, so_far, heard) in enumerate(costs):
            for arc in range(ends[state], ends[state + 1]):
                new = _costs(so_far + graph[arc], heard + acoustic[arc])
                if new[:2] < costs[targets[arc]][:2]:
                    costs[targets[arc]] = new
                    entered[targets[arc]] = arc
                    is_better |= targets[arc] <= state
            whole = _costs(so_far + finals[state], heard)
            if whole[:2] < best[:2]:
                best, last = whole, state
    return entered, last


def _costs(graph: np.float32, acoustic: np.float32) -> tuple[np.float32, np.float32, np.float32]:
    return graph + acoustic, graph, acoustic

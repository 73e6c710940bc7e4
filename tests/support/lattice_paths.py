"""Small lattices, of which every path can be written down."""

import itertools

import numpy as np

from nnet3tools.discriminative.supervision import DiscriminativeSupervision
from nnet3tools.fst.lattice import CompactLattice, Lattice
from support.tiny_chain import BIPHONE_TREE, CHAIN_TOPOLOGY, model_of

MODEL = model_of(BIPHONE_TREE, CHAIN_TOPOLOGY)[1]

Path = tuple[tuple[int, ...], float]
"""The arcs of a path, by number, and its cost."""


def random_lattice(rng, num_frames, epsilons=False):
    """Two states a frame, all ways between them, of unlike ids.

    With `epsilons` there is also a way within each frame.
    """
    ids = np.stack([1 + rng.permutation(MODEL.num_transition_ids)[:4] for _ in range(num_frames)])

    def costs() -> tuple[float, float]:
        return tuple(np.float32(rng.uniform(-1, 2, 2)).tolist())

    arcs: list[list[tuple[int, int, float, float, int]]] = []
    for frame in range(num_frames):
        first = 2 * frame
        for state in range(2 if frame else 1):
            found = [
                (int(ids[frame, 2 * state + way]), int(rng.integers(0, 3)), *costs(), target)
                for way, target in enumerate((first + 1, first + 2))
            ]
            if epsilons and frame and state == 0:
                found.append((0, 0, *costs(), first))
            arcs.append(found)
    arcs += [[], []]
    finals = [None] * (len(arcs) - 2) + [costs(), costs()]
    return Lattice.from_lists(0, finals, arcs)


def random_supervision(rng, num_frames, weight=1.0):
    """With an alignment that is a path of the lattice."""
    lattice = random_lattice(rng, num_frames)
    arcs, _ = all_paths(lattice)[int(rng.integers(0, 3))]
    return DiscriminativeSupervision.of(lattice.fst.ilabels[list(arcs)], lattice, weight)


def all_paths(lattice: Lattice) -> list[Path]:
    """Every path from the start to a final state."""
    fst, found = lattice.fst, []
    costs = fst.weights.astype(float) + lattice.acoustic

    def go(state: int, arcs: tuple[int, ...], cost: float) -> None:
        if fst.is_final[state]:
            found.append((arcs, cost + float(fst.finals[state]) + lattice.final_acoustic[state]))
        for arc in itertools.chain(range(fst.offsets[state], fst.offsets[state + 1])):
            go(int(fst.nextstates[arc]), (*arcs, arc), cost + costs[arc])

    go(fst.start, (), 0.0)
    return found


def every_path(lattice: CompactLattice) -> list[tuple[tuple, tuple, float, float]]:
    """Words (epsilons included), transition ids, graph and acoustic cost of every path, sorted."""
    arcs, finals, found = lattice.arc_lists(), lattice.final_list(), []

    def walk(state: int, words: tuple, ids: tuple, graph: float, acoustic: float) -> None:
        if (final := finals[state]) is not None:
            found.append((words, ids + final[2], graph + final[0], acoustic + final[1]))
        for word, more_graph, more_acoustic, more, target in arcs[state]:
            walk(target, (*words, word), ids + more, graph + more_graph, acoustic + more_acoustic)

    walk(lattice.fst.start, (), (), 0.0, 0.0)
    return sorted(found)

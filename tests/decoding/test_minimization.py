"""Minimized lattices have the same paths, and no two states that could be one."""

import random

import numpy as np
import pytest

from nnet3tools.decoding.determinization import determinized
from nnet3tools.decoding.minimization import minimized
from nnet3tools.fst.lattice import CompactLattice
from support.lattice_paths import every_path


def random_lattice(seed: int) -> CompactLattice:
    """Deterministic, with an id a frame: states have times, and arcs are as long as they take."""
    draw = random.Random(seed)
    times = [0, *sorted(draw.randrange(1, 8) for _ in range(9)), 9]
    arcs = []
    for state, time in enumerate(times[:-1]):
        later = [n for n in range(state + 1, len(times)) if times[n] > time]
        arcs.append(
            [
                (
                    label,
                    draw.choice((0.5, 1.0)),
                    draw.choice((-1.0, 2.0)),
                    tuple(draw.choices((1, 2), k=times[target] - time)),
                    target,
                )
                for label, target in enumerate(draw.choices(later, k=draw.randrange(1, 4)))
            ]
        )
    finals = [None] * (len(times) - 1) + [(0.25, 0.0, ())]
    labelled = CompactLattice.from_lists(0, finals, [*arcs, []])
    return determinized(labelled, 1e6, 1 / 1024, 0)[0].connected()


@pytest.mark.parametrize("seed", range(40))
def test_paths_stay(seed):
    lattice = random_lattice(seed)
    small = minimized(lattice)
    before, after = every_path(lattice), every_path(small)
    assert [path[:2] for path in after] == [path[:2] for path in before]
    np.testing.assert_allclose(
        [path[2:] for path in after], [path[2:] for path in before], atol=1e-4
    )
    assert small.fst.num_states <= lattice.fst.num_states
    assert minimized(small).fst.num_states == small.fst.num_states


def test_states_that_differ_only_in_where_ids_and_weights_stand_become_one():
    lattice = CompactLattice.from_lists(
        0,
        [None, None, None, (0.5, 0.0, (7,)), (0.0, 0.0, ())],
        [
            [(1, 1.0, 0.0, (4,), 1), (2, 1.0, 0.0, (5, 6), 2)],
            [(3, 2.0, 1.0, (6, 7, 8), 3)],
            [(3, 0.5, 1.0, (7, 8, 7), 4)],
            [],
            [],
        ],
    )
    small = minimized(lattice)
    assert small.fst.num_states == 3
    assert every_path(small) == every_path(lattice)
    assert small.arc_lists() == [
        [(1, 3.5, 1.0, (4, 6, 7, 8, 7), 1), (2, 1.5, 1.0, (5, 6, 7, 8, 7), 1)],
        [(3, 0.0, 0.0, (), 2)],
        [],
    ]


def test_a_lattice_without_states_stays():
    assert minimized(CompactLattice.empty()).fst.num_states == 0

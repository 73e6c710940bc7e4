"""The C determinization against the Python one: equal lattices, with ties and limits of memory."""

import math
import random

import numpy as np
import pytest

from nnet3tools.decoding.determinization import Determinizer
from nnet3tools.decoding.native.lattices import determinized_by, top_order_by
from nnet3tools.decoding.native.library import compiled_library
from nnet3tools.errors import ProgramError
from nnet3tools.fst.depth_first import top_order
from nnet3tools.fst.lattice import CompactLattice

LIBRARY = compiled_library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="there is no C compiler")


def random_lattice(seed: int, size: int, num_labels: int, cost) -> CompactLattice:
    """Arcs forwards, many of them side by side, some without labels or ids; dead ends, too."""
    draw = random.Random(seed)
    arcs, finals = [], []
    for state in range(size):
        count = draw.randrange(0, 5) if state < size - 1 else 0
        arcs.append(
            [
                (
                    draw.randrange(num_labels),
                    cost(draw),
                    cost(draw),
                    tuple(draw.choices((1, 2, 3), k=draw.choice((0, 1, 1, 1, 3)))),
                    min(size - 1, state + draw.randrange(1, 4)),
                )
                for _ in range(count)
            ]
        )
        ids = tuple(draw.choices((1, 2), k=draw.choice((0, 0, 2))))
        is_final = state == size - 1 or draw.random() < 0.15
        finals.append((cost(draw), cost(draw), ids) if is_final else None)
    return CompactLattice.from_lists(0, finals, arcs)


def assert_equal(one: CompactLattice, other: CompactLattice) -> None:
    for name in ("offsets", "ilabels", "weights", "nextstates", "finals"):
        ours, theirs = getattr(one.fst, name), getattr(other.fst, name)
        assert ours.tobytes() == theirs.tobytes(), name
    assert one.acoustic.tobytes() == other.acoustic.tobytes()
    assert one.final_acoustic.tobytes() == other.final_acoustic.tobytes()
    assert one.strings.ends.tolist() == other.strings.ends.tolist()
    assert one.strings.ids.tolist() == other.strings.ids.tolist()


COSTS = {
    "costs that differ": lambda draw: draw.uniform(-2, 5),
    "equal costs": lambda draw: draw.choice((0.0, 0.5, 1.0)),
    "nearly equal costs": lambda draw: draw.choice((0.0, 1.0)) + draw.choice((0.0, 4e-4)),
    "no costs": lambda draw: 0.0,
}


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize(("size", "num_labels"), [(6, 3), (25, 2), (60, 5)])
def test_lattices_are_those_of_python(costs, size, num_labels):
    cut = 0
    for seed in range(25):
        lattice = random_lattice(seed, size, num_labels, COSTS[costs])
        beam = random.Random(seed).choice((0.5, 2.0, 6.0))
        for max_memory in (0, 4000):
            python = Determinizer(lattice, beam, 1 / 1024, max_memory)
            reached = python.run()
            found, native = determinized_by(LIBRARY, lattice, beam, 1 / 1024, max_memory)
            assert native == reached
            assert_equal(found, python.result())
            cut += reached < beam
    assert cut or size < 60  # the limit of memory has been met


@pytest.mark.parametrize("seed", range(10))
def test_an_endless_beam_does_not_lead_into_dead_ends(seed):
    lattice = random_lattice(seed, 25, 3, COSTS["costs that differ"])
    python = Determinizer(lattice, math.inf, 1 / 1024, 0)
    assert python.run() == math.inf
    assert_equal(determinized_by(LIBRARY, lattice, math.inf, 1 / 1024, 0)[0], python.result())
    wide = Determinizer(lattice, 1e6, 1 / 1024, 0)
    wide.run()
    assert_equal(wide.result(), python.result())


def test_long_sequences_and_wide_lattices():
    """Tables grow several times: 3,000 states, sequences of thousands of ids."""
    draw = random.Random(1)
    size = 3000
    arcs = [
        [(draw.choice((0, 0, 0, 7)), draw.random(), 0.0, (draw.randrange(9),) * 3, s + 1)]
        for s in range(size - 1)
    ]
    for state in range(0, size - 3, 5):
        arcs[state].append((draw.randrange(1, 4), draw.random(), 0.0, (4, state), state + 3))
    lattice = CompactLattice.from_lists(0, [None] * (size - 1) + [(0.0, 0.0, (5,))], [*arcs, []])
    python = Determinizer(lattice, 1.0, 1 / 1024, 200_000)
    reached = python.run()
    found, native = determinized_by(LIBRARY, lattice, 1.0, 1 / 1024, 200_000)
    assert native == reached
    assert_equal(found, python.result())


@pytest.mark.parametrize(
    ("arcs", "finals"),
    [
        ([], []),
        ([[]], [None]),
        ([[]], [(1.0, 2.0, (3,))]),
        ([[(1, 1.0, 1.0, (), 1)], []], [None] * 2),
    ],
)
def test_lattices_with_hardly_anything(arcs, finals):
    lattice = CompactLattice.from_lists(0, finals, arcs)
    python = Determinizer(lattice, 4.0, 1 / 1024, 0)
    python.run()
    assert_equal(determinized_by(LIBRARY, lattice, 4.0, 1 / 1024, 0)[0], python.result())


def test_states_out_of_order_never_get_to_c():
    lattice = CompactLattice.from_lists(0, [(0.0, 0.0, ()), None], [[], [(1, 0.0, 0.0, (), 0)]])
    with pytest.raises(ProgramError, match="out of order"):
        determinized_by(LIBRARY, lattice, 1.0, 1 / 1024, 0)


@pytest.mark.parametrize("seed", range(30))
def test_topological_order_is_that_of_python(seed):
    draw = np.random.default_rng(seed)
    numbers = np.concatenate([[0], draw.permutation(np.arange(1, 20))])
    lattice = random_lattice(seed, 20, 3, COSTS["no costs"]).in_order(numbers.astype(np.int32))
    assert top_order_by(LIBRARY, lattice).tolist() == top_order(lattice.fst)


def test_a_cycle_has_no_order():
    lattice = CompactLattice.from_lists(
        0, [(0.0, 0.0, ()), None], [[(1, 0.0, 0.0, (), 1)], [(1, 0.0, 0.0, (), 0)]]
    )
    assert top_order_by(LIBRARY, lattice) is None

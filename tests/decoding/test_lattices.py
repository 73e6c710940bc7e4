"""Lattice files and changes of lattices: there and back, other forms, paths against enumeration."""

import io
import random

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.fst.lattice import CompactLattice, Lattice
from nnet3tools.fst.lattice_conversion import compacted, expanded, top_sorted
from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
from nnet3tools.fst.shortest_paths import best_compact_path, best_paths, random_paths
from nnet3tools.io.stream import Reader
from support.lattice_paths import every_path
from support.streams import bytes_of

SMALL = CompactLattice.from_lists(
    0,
    [None, None, (0.25, 0.0, (9, 8)), (1.5, -1.0, ())],
    [
        [(5, 1.5, -2.25, (2, 1, 1), 1), (6, 0.5, 3.0, (), 2)],
        [(0, 0.0, 0.0, (), 2), (7, 0.0, -1.0, (4,), 3)],
        [],
        [(7, 2.0, 0.5, (3, 3), 2)],
    ],
)


def random_lattice(seed: int, size: int = 7) -> CompactLattice:
    """States in topological order, every one final or not, costs that make no ties."""
    draw = random.Random(seed)
    arcs, finals = [], []
    for state in range(size):
        count = draw.randrange(1, 4) if state < size - 1 else 0
        arcs.append(
            [
                (
                    draw.randrange(4),
                    draw.uniform(0, 5),
                    draw.uniform(-5, 0),
                    tuple(draw.choices(range(1, 9), k=draw.randrange(3))),
                    draw.randrange(state + 1, size),
                )
                for _ in range(count)
            ]
        )
        is_final = state == size - 1 or draw.random() < 0.2
        finals.append((draw.uniform(0, 2), 0.0, ()) if is_final else None)
    return CompactLattice.from_lists(0, finals, arcs)


def paths(lattice: CompactLattice) -> list[tuple[float, tuple, tuple]]:
    """Cost, words and transition ids of every path."""
    found = every_path(lattice)
    return sorted((g + a, tuple(filter(None, words)), ids) for words, ids, g, a in found)


def assert_same_paths(one: CompactLattice, other: CompactLattice) -> None:
    ours, theirs = paths(one), paths(other)
    assert [path[1:] for path in ours] == [path[1:] for path in theirs]
    np.testing.assert_allclose([p[0] for p in ours], [p[0] for p in theirs], rtol=1e-5, atol=1e-5)


def through_file(lattice, holder, binary: bool):
    data = bytes_of(holder.write_object, lattice, binary=binary)
    return holder.read_object(Reader(io.BytesIO(data)))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("lattice", [SMALL, random_lattice(3), CompactLattice.empty()])
def test_files_come_back(lattice, binary):
    again = through_file(lattice, COMPACT_LATTICE, binary)
    assert again.fst.num_states == lattice.fst.num_states
    if lattice.fst.num_states:
        assert_same_paths(again, lattice)
        plain = expanded(lattice)
        assert_same_paths(compacted(through_file(plain, LATTICE, binary)), compacted(plain))


def test_each_reader_takes_the_other_kind():
    data = bytes_of(COMPACT_LATTICE.write_object, SMALL, binary=False)
    plain = LATTICE.read_object(Reader(io.BytesIO(data)))
    assert isinstance(plain, Lattice)
    assert_same_paths(compacted(plain), SMALL)


def test_text_is_kaldis():
    text = bytes_of(COMPACT_LATTICE.write_object, SMALL, binary=False).decode()
    assert text.splitlines() == [
        "",
        "0\t1\t5\t1.5,-2.25,2_1_1",
        "0\t2\t6\t0.5,3,",
        "1\t2\t0",
        "1\t3\t7\t0,-1,4",
        "2\t0.25,0,9_8",
        "3\t2\t7\t2,0.5,3_3",
        "3\t1.5,-1,",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "\n0\t1\t5\t1,2,3\n0\t1\t5\t6\t1,2\n1\n\n",  # an arc of each kind
        "\n0\t1\t5\t1,2,x\n1\n\n",
        "\n0\t1\t5\tnan,2,\n1\n\n",
        "\n0\t99999999\t5\t1,2,\n\n",
        "\n0\t1\t5\t6\t7\t8\n\n",
    ],
)
def test_bad_text_is_refused(text):
    with pytest.raises(DataError):
        COMPACT_LATTICE.read_object(Reader(io.BytesIO(text.encode())))


def test_truncated_and_absurd_binary_files_are_refused():
    whole = bytes_of(COMPACT_LATTICE.write_object, SMALL)
    for end in range(0, len(whole), 7):
        with pytest.raises(DataError):
            COMPACT_LATTICE.read_object(Reader(io.BytesIO(whole[:end])))


@pytest.mark.parametrize("seed", range(20))
def test_best_paths_are_those_of_enumeration(seed):
    lattice = random_lattice(seed)
    every = paths(lattice)
    found = [compacted(path) for path in best_paths(expanded(lattice), 5)]
    assert len(found) == min(5, len(every))
    for path, expected in zip(found, every, strict=False):
        assert paths(path)[0][1:] == expected[1:]
    assert_same_paths(best_compact_path(lattice), compacted(best_paths(expanded(lattice), 1)[0]))


def test_random_paths_are_paths():
    lattice = random_lattice(5)
    words = {path[1] for path in paths(lattice)}
    for path in random_paths(expanded(lattice), 20, random.Random(1)):
        ((cost, said, _),) = paths(compacted(path))
        assert said in words
        assert cost == 0.0


def test_states_out_of_order_are_sorted_and_cycles_refused():
    shuffled = CompactLattice.from_lists(
        2,
        [(0.0, 0.0, ()), None, None],
        [[], [(4, 1.0, 1.0, (), 0)], [(3, 1.0, 1.0, (), 1)]],
    )
    assert top_sorted(shuffled).is_top_sorted
    assert_same_paths(top_sorted(shuffled), shuffled)
    cyclic = CompactLattice.from_lists(0, [(0.0, 0.0, ())], [[(3, 1.0, 1.0, (), 0)]])
    with pytest.raises(DataError, match="cycle"):
        top_sorted(cyclic)


def test_costs_are_mixed_and_words_penalized():
    scaled = SMALL.scaled(0.5, 2.0, 0.25, -1.0)
    graph, acoustic = scaled.arc_lists()[0][0][1:3]
    assert graph == pytest.approx(0.5 * 1.5 + 0.25 * -2.25)
    assert acoustic == pytest.approx(2.0 * -2.25 - 1.0 * 1.5)
    assert scaled.final_list()[0] is None
    penalized = SMALL.with_penalty(0.5).arc_lists()
    assert [arc[1] for arc in penalized[1]] == [0.0, 0.5]  # epsilon is no word

"""Lattices with a phone an arc: the same paths as before, cut where phones end."""

import random
from itertools import pairwise

import numpy as np
import pytest

from nnet3tools.decoding.phone_alignment import PhoneAligner
from nnet3tools.errors import DataError
from nnet3tools.fst.lattice import CompactArc, CompactLattice
from nnet3tools.fst.lattice_files import COMPACT_LATTICE
from nnet3tools.io.files import open_output
from nnet3tools.nnet.hmm.alignment import phone_ends
from support.lattice_paths import every_path
from support.programs import read_table, run, write_table
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, STATES_TOPOLOGY, model_of

_, MODEL = model_of(MONO_TREE, STATES_TOPOLOGY)
TRANSITIONS = MODEL.transitions()
Path = tuple[float, tuple[int, ...], tuple[int, ...]]


def phone_ids(phone: int, draw: random.Random) -> list[int]:
    """A phone's transition ids, loops after the transition that leaves their state."""
    first = 4 * (phone - 1) + 1  # loop and next, for each of two states
    parts = ([first + 2 * s + 1, *[first + 2 * s] * draw.randrange(3)] for s in range(2))
    return [i for part in parts for i in part]


def random_lattice(seed: int) -> CompactLattice:
    """Three ways with the same end; words and transition ids stand anywhere on their arcs."""
    draw = random.Random(seed)
    arcs: list[list[CompactArc]] = [[], []]
    for _ in range(3):
        ids = [
            i for _ in range(draw.randrange(1, 4)) for i in phone_ids(draw.randrange(1, 3), draw)
        ]
        cuts = sorted(draw.choices(range(len(ids) + 1), k=3))
        states = [0, *range(len(arcs), len(arcs) + 3), 1]
        arcs += [[], [], []]
        for (source, target), (begin, end) in zip(
            pairwise(states), pairwise([0, *cuts, len(ids)]), strict=True
        ):
            costs = draw.uniform(0, 5), draw.uniform(-5, 0)
            arcs[source].append((draw.randrange(3), *costs, tuple(ids[begin:end]), target))
    finals = [None, (0.5, -0.25, ()), *[None] * (len(arcs) - 2)]
    return CompactLattice.from_lists(0, finals, arcs)


def paths(lattice: CompactLattice) -> list[Path]:
    """Cost, words and transition ids of every path, sorted by words and ids."""
    found = [(g + a, tuple(filter(None, words)), ids) for words, ids, g, a in every_path(lattice)]
    return sorted(found, key=lambda path: path[1:])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("removes_epsilons", [True, False])
def test_paths_keep_words_costs_and_transition_ids(seed: int, removes_epsilons: bool) -> None:
    lattice = random_lattice(seed)
    aligned = PhoneAligner(MODEL, removes_epsilons=removes_epsilons).align(lattice)
    assert not aligned.problem
    assert aligned.lattice.is_top_sorted
    before, after = paths(lattice), paths(aligned.lattice)
    assert [path[1:] for path in before] == [path[1:] for path in after]
    np.testing.assert_allclose([p[0] for p in after], [p[0] for p in before], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_every_arc_is_a_phone_and_says_which(seed: int) -> None:
    lattice = random_lattice(seed)
    aligned = PhoneAligner(MODEL, has_phone_labels=True).align(lattice).lattice
    assert len(paths(aligned)) == len(paths(lattice))
    assert [p[2] for p in paths(aligned)] != []
    for arcs in aligned.arc_lists():
        for phone, _, _, ids, _ in arcs:
            assert set(TRANSITIONS.phones[list(ids)]) == {phone}
            assert phone_ends(TRANSITIONS, np.array(ids, np.int32)).tolist() == [len(ids)]
    assert {path[2] for path in paths(aligned)} == {path[2] for path in paths(lattice)}


def test_loops_come_first_where_they_were_not_reordered() -> None:
    ids = (1, 1, 2, 3, 4, 5, 6, 8)
    lattice = CompactLattice.from_lists(0, [None, (0.0, 0.0, ())], [[(7, 0.0, 0.0, ids, 1)], []])
    aligner = PhoneAligner(MODEL, is_reordered=False, has_phone_labels=True)
    arcs = [arc for arcs in aligner.align(lattice).lattice.arc_lists() for arc in arcs]
    assert [(arc[0], arc[3]) for arc in arcs] == [(1, ids[:5]), (2, ids[5:])]


def lattice_of(ids: tuple[int, ...]) -> CompactLattice:
    return CompactLattice.from_lists(0, [None, (0.0, 0.0, ())], [[(7, 0.0, 0.0, ids, 1)], []])


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ((2, 1), "the last phone has 0 final transitions, expected 1"),
        ((2, 4, 7), "the transition ids of the last phone are of several phones"),
        ((2, 6, 8, 2, 4), "phone 1 does not reach its final transition"),
    ],
)
def test_a_cut_off_phone_is_told_and_kept(ids: tuple[int, ...], problem: str) -> None:
    aligned = PhoneAligner(MODEL).align(lattice_of(ids))
    assert problem in aligned.problem
    assert [path[1:] for path in paths(aligned.lattice)] == [((7,), ids)]


def test_what_is_no_lattice_of_the_model_is_refused() -> None:
    with pytest.raises(DataError, match="transition id 99"):
        PhoneAligner(MODEL).align(lattice_of((2, 99)))
    circle: list[list[CompactArc]] = [[(7, 0.0, 0.0, (2,), 1)], [(7, 0.0, 0.0, (2,), 0)]]
    with pytest.raises(DataError, match="cycle"):
        PhoneAligner(MODEL).align(CompactLattice.from_lists(0, [None, (0.0, 0.0, ())], circle))


def test_the_program_goes_on_after_broken_lattices(tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    _, model = model_of(MONO_TREE, CHAIN_TOPOLOGY)
    with open_output("final.mdl") as writer:
        model.write(writer)
    good = {f"good{i}": lattice_of((2, 1, 1, 4, 3)) for i in range(3)}
    bad = {"bad": lattice_of((1, 1)), "empty": CompactLattice.empty()}
    write_table("ark:lats", bad | good, COMPACT_LATTICE)
    options = ("--replace-output-symbols=true", "--output-error-lats=false")
    assert run("lattice-align-phones", *options, "final.mdl", "ark:lats", "ark:out") == 0
    log = capfd.readouterr().err
    assert "Successfully aligned 3 lattices; 2 had errors." in log
    assert "Lattice for bad did not align correctly: the last phone has 0 final" in log
    found = read_table("ark:out", COMPACT_LATTICE)
    assert sorted(found) == sorted(good)
    assert [arc[3] for arcs in found["good0"].arc_lists() for arc in arcs] == [(2, 1, 1), (4, 3)]
    assert run("lattice-align-phones", "final.mdl", "ark:lats", "ark:out") == 0
    assert set(read_table("ark:out", COMPACT_LATTICE)) == {*good, "bad"}

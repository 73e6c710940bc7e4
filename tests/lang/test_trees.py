"""Trees of a flat start: numbers of pdfs, pdfs of contexts, and files in both directions."""

from pathlib import Path

import pytest

from nnet3tools.errors import DataError
from nnet3tools.lang.gaussians import Gaussian
from nnet3tools.lang.lang_dir import chain_topology, left_to_right_topology
from nnet3tools.lang.trees import (
    PhoneCounts,
    biphone_tree,
    monophone_tree,
    read_shared_phones,
)
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.hmm.tree import ContextDependency
from support.streams import bytes_reader, to_bytes

CHAIN = chain_topology([1, 2, 3, 4])
ALL_APART = [[1], [2], [3], [4]]


def copied(tree: ContextDependency, binary: bool) -> ContextDependency:
    return ContextDependency.read(bytes_reader(to_bytes(tree, binary)))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("sets", [ALL_APART, [[1, 2], [3], [4]]])
def test_trees_survive_their_files(sets: list[list[int]], binary: bool) -> None:
    for tree in (monophone_tree(sets, CHAIN), biphone_tree(sets, CHAIN)):
        assert copied(tree, binary) == tree


def test_a_monophone_tree_is_kaldis_text() -> None:
    words = to_bytes(monophone_tree([[1], [2]], chain_topology([1, 2])), False).decode().split()
    expected = "ContextDependency 1 0 ToPdf TE 0 3 ( NULL TE -1 2 ( CE 0 CE 1 ) TE -1 2 ( CE 2 CE 3"
    assert words == [*expected.split(), ")", ")", "EndContextDependency"]


def test_phones_of_a_set_share_pdfs_and_others_do_not() -> None:
    tree = monophone_tree([[1, 3], [2], [4]], CHAIN)
    assert tree.num_pdfs == 6
    assert tree.pdf_of([1], 0) == tree.pdf_of([3], 0)
    assert len({tree.pdf_of([p], c) for p in (1, 2, 4) for c in (0, 1)}) == 6


def test_pdf_classes_of_phones_may_differ() -> None:
    topology = left_to_right_topology([1], [2, 3], 5, 3)
    assert monophone_tree([[1], [2], [3]], topology).num_pdfs == 11
    with pytest.raises(DataError, match=r"\[3, 5\] pdf classes"):
        biphone_tree([[1], [2], [3]], topology)


def test_all_biphones_have_pdfs_and_edges_too() -> None:
    tree = biphone_tree(ALL_APART, CHAIN, context_independent=[1])
    # 2 for phone 1; for each of 3 phones: one edge (or phone 1 before it) and 3 left phones.
    assert tree.num_pdfs == 2 + 3 * 4 * 2
    assert tree.pdf_of([0, 2], 0) == tree.pdf_of([1, 2], 0)
    assert tree.pdf_of([3, 1], 0) == tree.pdf_of([4, 1], 0) == 0


def test_rare_biphones_back_off_to_the_phone_then_to_all() -> None:
    counts = PhoneCounts({1: 500, 2: 500, 3: 20, 4: 0}, {(1, 2): 60, (2, 1): 59})
    tree = biphone_tree(ALL_APART, CHAIN, (), counts, 60, 20)
    assert tree.pdf_of([1, 2], 0) not in (tree.pdf_of([2, 2], 0), tree.pdf_of([2, 1], 0))
    assert tree.pdf_of([2, 1], 1) == tree.pdf_of([3, 1], 1)  # 59 are too few
    assert tree.pdf_of([1, 3], 0) == tree.pdf_of([2, 4], 0)  # and 20, which must be exceeded
    # 4 edges, the pair (1, 2), phones 1 and 2 alone, and the one of all
    assert tree.num_pdfs == 2 * (4 + 1 + 2 + 1)


def test_the_transition_model_has_what_the_tree_answers() -> None:
    tree = biphone_tree(ALL_APART, CHAIN)
    model = TransitionModel.from_tree(tree, CHAIN)
    assert model.num_pdfs == tree.num_pdfs
    assert len(model.tuples) == 4 * 5


def test_bad_lines_are_told_with_their_places(tmp_path: Path) -> None:
    sets = tmp_path / "sets.int"
    for text, message in (
        ("1 2\n3 x\n", "sets.int:2"),
        ("1\n9\n", "phone 9"),
        ("1\n1\n", "one of"),
    ):
        sets.write_text(text)
        with pytest.raises(DataError, match=message):
            read_shared_phones(str(sets), CHAIN)
    counts = tmp_path / "counts"
    counts.write_text("1 2 3\n1 2 3 4\n")
    with pytest.raises(DataError, match="counts:2: Bad line"):
        PhoneCounts.load(str(counts))


def test_the_gaussians_constant_is_the_density_at_zero() -> None:
    import numpy as np

    gaussian = Gaussian(np.array([0.5, -8.0], np.float32), np.array([0.5, 4.0], np.float32))
    density = 1.0
    for mean, inverse in ((1.0, 0.5), (-2.0, 4.0)):
        density *= np.sqrt(inverse / (2 * np.pi)) * np.exp(-0.5 * inverse * mean**2)
    assert gaussian.constant == pytest.approx(np.log(density), rel=1e-6)

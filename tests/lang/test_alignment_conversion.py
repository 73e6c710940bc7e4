"""convert-ali: phones, lengths and HMM states stay, pdfs become those of the new tree."""

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.lang.trees import monophone_tree
from nnet3tools.nnet.hmm.alignment import AlignmentConverter
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from support.shell import Shell
from support.two_models import NEW, NEW_TREE, OLD, OLD_TREE, SETS, alignment, save


def test_pdfs_are_those_of_the_new_tree_in_context() -> None:
    phones, lengths = [1, 2, 2, 3, 1], [3, 1, 2, 4, 1]
    old = alignment(phones, lengths)
    new = AlignmentConverter(OLD, NEW, NEW_TREE).convert(old)
    before, after = OLD.transitions(), NEW.transitions()
    assert (after.phones[new] == before.phones[old]).all()
    assert (after.is_self_loop[new] == before.is_self_loop[old]).all()
    expected = []
    for left, phone, length in zip([0, *phones], phones, lengths, strict=False):
        forward, loop = (NEW_TREE.pdf_of([left, phone], pdf_class) for pdf_class in (0, 1))
        expected += [forward, *[loop] * (length - 1)]
    assert after.pdfs[new].tolist() == expected


def test_back_and_forth_is_the_same() -> None:
    old = alignment([3, 1, 1, 2], [1, 5, 2, 3])
    new = AlignmentConverter(OLD, NEW, NEW_TREE).convert(old)
    assert (AlignmentConverter(NEW, OLD, OLD_TREE).convert(new) == old).all()


def test_ids_of_another_model_are_refused() -> None:
    converter = AlignmentConverter(OLD, NEW, NEW_TREE)
    with pytest.raises(DataError, match="transition id 99"):
        converter.convert(np.array([1, 99], np.int32))
    assert len(converter.convert(np.zeros(0, np.int32))) == 0


def test_another_topology_is_refused() -> None:
    from nnet3tools.lang.lang_dir import left_to_right_topology

    topology = left_to_right_topology([1], [2, 3], 5, 3)
    tree = monophone_tree(SETS, topology)
    converter = AlignmentConverter(OLD, TransitionModel.from_tree(tree, topology), tree)
    with pytest.raises(DataError, match="phone 1 has another topology"):
        converter.convert(alignment([1], [2]))


def test_the_program(shell: Shell) -> None:
    for name, item in (("old", OLD), ("new", NEW), ("tree", NEW_TREE)):
        save(name, item)
    old = alignment([1, 2], [2, 2])
    with open("ali", "w") as file:
        file.write("u1 " + " ".join(map(str, old)) + "\nu2\n")
    shell("convert-ali", "old", "new", "tree", "ark:ali", "ark:out")
    found = shell.read("out", INT32_VECTOR)
    assert (found["u1"] == AlignmentConverter(OLD, NEW, NEW_TREE).convert(old)).all()
    assert len(found["u2"]) == 0

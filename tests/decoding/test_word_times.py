"""Times of words by phones, confidences by the lattice's paths."""

import numpy as np
import pytest

from nnet3tools.decoding.traceback import BestPath
from nnet3tools.decoding.word_times import Lexicon, spoken_words
from nnet3tools.fst.lattice import CompactLattice
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

_, MODEL = model_of(MONO_TREE, CHAIN_TOPOLOGY)
TRANSITIONS = MODEL.transitions()


def ids_of(phones: list[tuple[int, int]]) -> list[int]:
    """The alignment of phones with their lengths: in, then self-loops."""
    ids = []
    for phone, length in phones:
        of_phone = np.flatnonzero(TRANSITIONS.phones == phone)
        loop = of_phone[TRANSITIONS.is_self_loop[of_phone]][0]
        enter = of_phone[~TRANSITIONS.is_self_loop[of_phone]][0]
        ids += [enter] + [loop] * (length - 1)
    return ids


def path_of(ids: list[int], words: dict[int, int]) -> BestPath:
    """Words at the frames in which the graph says them."""
    said = np.zeros(len(ids), np.int32)
    for frame, word in words.items():
        said[frame] = word
    zeros = np.zeros(len(ids), np.float32)
    return BestPath(np.array(ids, np.int32), said, zeros, zeros)


def test_times_are_those_of_the_lexicons_phones():
    ids = ids_of([(1, 4), (2, 3), (2, 2), (1, 1)])
    lexicon = Lexicon({7: [(2,)], 8: [(2, 2), (2,)]}, frozenset([1]))
    lattice = CompactLattice.from_lists(
        0,
        [None, None, (0.0, 0.0, ())],
        [
            [
                (7, -np.log(0.75), 0.0, tuple(ids[:7]), 1),
                (9, -np.log(0.25), 0.0, tuple(ids[:7]), 1),
            ],
            [(8, 0.0, 0.0, tuple(ids[7:]), 2)],
            [],
        ],
    )
    path = path_of(ids, {5: 7, 9: 8})  # the graph says them late
    first, second = spoken_words(path, lattice, TRANSITIONS, lexicon)
    assert (first.begin, first.end, second.begin, second.end) == (4, 7, 7, 9)
    assert first.confidence == pytest.approx(0.75)
    assert second.confidence == pytest.approx(1.0)
    loose = spoken_words(path, lattice, TRANSITIONS, None)
    assert [(word.begin, word.end) for word in loose] == [(5, 9), (9, 10)]
    other = Lexicon({7: [(1, 2)]}, frozenset())
    assert spoken_words(path, lattice, TRANSITIONS, other)[0].begin == 5

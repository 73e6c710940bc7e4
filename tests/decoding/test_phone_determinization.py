"""Lattices with the largest word numbers, and with cycles, by both determinizations."""

import numpy as np
import pytest

from nnet3tools.decoding import determinization, phone_determinization
from nnet3tools.decoding.options import DeterminizeOptions
from nnet3tools.decoding.phone_determinization import PhoneDeterminizer
from nnet3tools.errors import DataError
from nnet3tools.fst.lattice import Lattice

LARGEST = 2**31 - 1


@pytest.fixture(params=["native", "NumPy"])
def determinize(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """A function that determinizes a lattice; transition id i enters phone i."""
    if request.param == "NumPy":
        for module in (determinization, phone_determinization):
            monkeypatch.setattr(module, "decoding_library", lambda: None)

    def run(lattice: Lattice, **options: bool):
        determinizer = object.__new__(PhoneDeterminizer)
        determinizer._options, determinizer._beam = DeterminizeOptions(**options), 10.0
        determinizer._phones = np.arange(8)
        return determinizer.determinize(lattice)[0]

    return run


def lattice_of(words: tuple[int, int]) -> Lattice:
    """Two ways through three frames, each with one of the words; phones 1 to 4."""
    one, other = words
    arcs = [
        [(1, 0, 0.0, 1.0, 1), (1, other, 0.5, 1.0, 2)],
        [(2, one, 0.25, 1.0, 3)],
        [(3, 0, 0.5, 1.0, 3)],
        [(4, 0, 0.0, 1.0, 4)],
        [],
    ]
    return Lattice.from_lists(0, [None] * 4 + [(0.0, 0.0)], arcs)


@pytest.mark.parametrize(
    "words", [(7, LARGEST), (LARGEST, 7), (LARGEST - 1, LARGEST), (LARGEST - 4, LARGEST - 5)]
)
def test_the_largest_words_are_not_taken_for_phones(words, determinize) -> None:
    expected, found = determinize(lattice_of((5, 6))), determinize(lattice_of(words))
    assert set(found.fst.ilabels.tolist()) - {0} == set(words)
    if words[0] < words[1]:
        numbers = {5: words[0], 6: words[1]}
        assert [numbers.get(x, x) for x in expected.fst.ilabels] == found.fst.ilabels.tolist()
    assert found.fst.num_arcs == expected.fst.num_arcs
    assert sorted(found.fst.weights) == sorted(expected.fst.weights)


@pytest.mark.parametrize("phones", [True, False])
@pytest.mark.parametrize("by_words", [True, False])
def test_a_cycle_of_epsilons_is_one_clear_error(phones, by_words, determinize) -> None:
    looped = Lattice.from_lists(
        0, [None, (0.0, 0.0)], [[(0, 0, 0.5, 0.0, 0), (1, 5, 0.0, 1.0, 1)], []]
    )
    with pytest.raises(DataError, match="cycle"):
        determinize(looped, phone_determinize=phones, word_determinize=by_words)

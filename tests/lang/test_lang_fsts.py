"""Determinization of transducers and the steps after it, compared with sums over all paths."""

import math
import random
from collections import defaultdict

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.fst.determinize_star import determinize_star
from nnet3tools.fst.encode import decoded, encoded
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.fst.minimize import merged_acyclic, top_order
from nnet3tools.lang.graphs import minimized

Pair = tuple[tuple[int, ...], tuple[int, ...]]


def relation(fst: Fst) -> dict[Pair, float]:
    """The probability of each input and output: the sum over the paths of an acyclic FST."""
    found: dict[Pair, float] = defaultdict(float)
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    waiting = [(fst.start, (), (), 1.0)] if fst.num_states else []
    while waiting:
        state, read, written, prob = waiting.pop()
        if finals[state] != NOT_FINAL:
            found[read, written] += prob * math.exp(-finals[state])
        for ilabel, olabel, weight, target in lists[state]:
            after = (*read, ilabel) if ilabel else read, (*written, olabel) if olabel else written
            waiting.append((target, *after, prob * math.exp(-weight)))
    return found


def functional_fst(seed: int, size: int = 7) -> Fst:
    """An acyclic FST with epsilons, whose output depends only on the number of labels read."""
    rng = random.Random(seed)
    arcs: list[list[tuple[int, int, float, int]]] = [[] for _ in range(size)]
    steps = [0] * size
    for target in range(1, size):
        steps[target] = target // 2
    for source in range(size):
        for target in range(source + 1, size):
            if steps[target] == steps[source]:
                arcs[source].append((0, 0, rng.random(), target))
            elif steps[target] == steps[source] + 1:
                for label in (1, 2):
                    if rng.random() < 0.6:
                        arcs[source].append((label, 5 + steps[source], rng.random(), target))
    finals = [NOT_FINAL] * (size - 1) + [0.5]
    return Fst.from_lists(0, finals, arcs)


def is_deterministic(fst: Fst) -> bool:
    pairs = [(s, i) for s, i in zip(fst.sources, fst.ilabels, strict=True) if i]
    return len(set(pairs)) == len(pairs)


@pytest.mark.parametrize("seed", range(12))
def test_determinizing_keeps_the_sum_over_paths(seed: int) -> None:
    fst = functional_fst(seed)
    result = determinize_star(fst)
    before, after = relation(fst), relation(result)
    assert before.keys() == after.keys()
    for key, prob in before.items():
        assert after[key] == pytest.approx(prob, rel=3e-3)
    assert is_deterministic(result)


def test_outputs_owed_at_the_end_are_written_behind_epsilons() -> None:
    arcs = [[(1, 7, 0.25, 1)], [(2, 8, 0.0, 2), (3, 9, 0.0, 2)], []]
    owed = Fst.from_lists(0, [NOT_FINAL, NOT_FINAL, 0.0], arcs)
    split = Fst.from_lists(  # two ways for label 1, told apart only by what comes after
        0,
        [NOT_FINAL] * 3 + [0.5],
        [[(1, 7, 1.0, 1), (1, 8, 2.0, 2)], [(2, 0, 0.0, 3)], [(3, 4, 0.0, 3)], []],
    )
    for fst in (owed, split):
        result = determinize_star(fst)
        assert relation(result).keys() == relation(fst).keys()
        assert is_deterministic(result)


def test_two_outputs_of_one_input_are_an_error() -> None:
    fst = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1, 7, 0.0, 1), (1, 8, 0.0, 1)], []])
    with pytest.raises(DataError, match="not functional"):
        determinize_star(fst)


def test_a_limit_of_states_ends_endless_determinizing() -> None:
    twins = [[(1, 0, 0.0, 1), (1, 0, 0.0, 2)], [(1, 0, 0.1, 1)], [(1, 0, 0.9, 2), (2, 0, 0.0, 3)]]
    fst = Fst.from_lists(0, [NOT_FINAL, 0.0, NOT_FINAL, 0.0], [*twins, []])
    with pytest.raises(DataError, match="more than 50 states"):
        determinize_star(fst, max_states=50)


def test_encoding_keeps_both_labels_apart() -> None:
    arcs = [[(1, 2, 0.5, 1), (2, 1, 0.5, 1), (1, 0, 0.5, 1)], []]
    fst = Fst.from_lists(0, [NOT_FINAL, 0.25], arcs)
    whole, codes = encoded(fst)
    assert len(set(whole.ilabels.tolist())) == 4  # with that of the final weight
    assert relation(decoded(whole, codes)) == relation(fst)


@pytest.mark.parametrize("seed", range(6))
def test_minimizing_keeps_the_relation(seed: int) -> None:
    fst = determinize_star(functional_fst(seed, size=9))
    small = minimized(fst)
    assert small.num_states <= fst.num_states
    for key, prob in relation(fst).items():
        assert relation(small)[key] == pytest.approx(prob, rel=1e-2)


def test_states_of_one_height_are_merged_if_alike() -> None:
    # numbered as fstminimize of OpenFst 1.7.9 leaves them
    arcs = [
        [(1, 1, 0.0, 1), (2, 2, 0.0, 2), (3, 3, 0.0, 3)],
        [(1, 1, 0.0, 4)],
        [(1, 1, 0.0, 5)],
        [(2, 2, 0.0, 5)],
        [],
        [],
    ]
    fst = Fst.from_lists(0, [NOT_FINAL] * 4 + [0.0, 0.0], arcs)
    order = top_order(fst)
    assert order is not None
    small = merged_acyclic(fst, order)
    assert small.num_states == 4
    assert small.nextstates.tolist() == [1, 1, 2, 3, 3]


def test_moved_weights_keep_total_probability_if_asked() -> None:
    # State 1 has one arc in; its epsilon arc moves, the others' total must stay what it was.
    third = math.log(3.0)
    arcs = [[(0, 7, 0.0, 1)], [(1, 8, third, 2), (1, 0, third, 2), (2, 9, third, 2)], []]
    fst = Fst.from_lists(0, [NOT_FINAL, NOT_FINAL, 0.0], arcs)
    result = remove_epsilons_locally(fst, stochastic_in_log=True)
    totals = np.bincount(result.sources, np.exp(-result.weights), result.num_states)
    totals += np.exp(-result.finals)
    assert totals == pytest.approx(1.0, abs=1e-6)
    assert relation(result) == pytest.approx(relation(fst), rel=1e-5)

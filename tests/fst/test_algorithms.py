"""FST algorithms keep all sequences and costs and number states like OpenFst.

tests/fst/openfst.json has random acceptors and what OpenFst 1.8.4 (pynini's pywrapfst) made of
them, as [start, final weights or null, arcs of each state].
"""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.errors import DataError
from nnet3tools.fst import determinize as determinization
from nnet3tools.fst import epsilon
from nnet3tools.fst.compose import compose, compose_with_loops
from nnet3tools.fst.connect import (
    accessible,
    breadth_first_sorted,
    coaccessible,
    connect,
    steps_from_start,
)
from nnet3tools.fst.determinize import determinize
from nnet3tools.fst.encode import decoded, encoded
from nnet3tools.fst.epsilon import concatenate, epsilon_arcs, remove_epsilons
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.local_epsilon import remove_epsilons_locally
from nnet3tools.fst.minimize import distances_to_end, minimize_acyclic, push_to_initial, top_order
from nnet3tools.fst.partition import minimize_encoded
from nnet3tools.fst.push_special import push_special
from nnet3tools.fst.reverse import reversed_fst
from nnet3tools.fst.std_sort import std_sort_order

LONGEST = 5
SEEDS = range(30)


def random_acceptor(
    seed: int, epsilons: float = 0.2, acyclic: bool = False, num_labels: int = 2
) -> Fst:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    count = int(rng.integers(size, 3 * size))
    sources, targets = rng.integers(0, size, (2, count))
    if acyclic:
        sources, targets = np.minimum(sources, targets), np.maximum(sources, targets)
        keep = sources < targets
        sources, targets, count = sources[keep], targets[keep], int(keep.sum())
    labels = rng.integers(1, num_labels + 1, count) * (rng.random(count) >= epsilons)
    # At least one path leads to the end.
    sources, targets = np.append(sources, 0), np.append(targets, size - 1)
    labels, count = np.append(labels, 1), count + 1
    finals = np.where(rng.random(size) < 0.4, rng.random(size), NOT_FINAL)
    finals[-1] = 0.5
    return Fst.from_arcs(0, finals, sources, labels, rng.random(count), targets)


def costs(fst: Fst, longest: int = LONGEST) -> dict[tuple[int, ...], float]:
    """The least cost of each sequence of up to `longest` input labels, by trying all paths."""
    found: dict[tuple[int, ...], float] = defaultdict(lambda: np.inf)
    if not fst.num_states:
        return found
    lists, finals = fst.arc_lists(), fst.finals.tolist()
    best: dict[tuple[int, tuple[int, ...]], float] = {(fst.start, ()): 0.0}
    waiting = [(fst.start, ())]
    for state, read in waiting:  # the list grows in the loop
        cost = best[state, read]
        if finals[state] != NOT_FINAL:
            found[read] = min(found[read], cost + finals[state])
        for ilabel, _, weight, target in lists[state]:
            key = (target, (*read, ilabel) if ilabel else read)
            if len(key[1]) <= longest and cost + weight < best.get(key, np.inf) - 1e-9:
                best[key] = cost + weight
                waiting.append(key)
    return found


def assert_same_costs(a: Fst, b: Fst, tolerance: float = 1e-5) -> None:
    first, second = costs(a), costs(b)
    assert first.keys() == second.keys()
    for read, cost in first.items():
        assert second[read] == pytest.approx(cost, abs=tolerance), read


@pytest.mark.parametrize("seed", SEEDS)
def test_sequences_keep_their_costs_without_epsilons(seed):
    fst = random_acceptor(seed, epsilons=0.4)
    without = remove_epsilons(fst)
    assert not epsilon_arcs(without).any()
    assert_same_costs(without, fst)
    fewer = remove_epsilons_locally(fst)
    assert epsilon_arcs(fewer).sum() <= epsilon_arcs(fst).sum()
    assert_same_costs(fewer, fst)


@pytest.mark.parametrize("seed", SEEDS)
def test_determinised_and_minimised_acceptors_mean_the_same(seed):
    fst = random_acceptor(seed, epsilons=0.0, acyclic=True)
    deterministic = determinize(fst)
    labels, sources = deterministic.ilabels, deterministic.sources
    pairs = list(zip(sources.tolist(), labels.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert_same_costs(deterministic, fst, tolerance=LONGEST / 1024)  # rounding of residuals
    small = minimize_acyclic(deterministic)
    assert small.num_states <= max(connect(deterministic).num_states, 0)
    assert_same_costs(small, deterministic, tolerance=1e-4)


def test_minimal_means_minimal():
    """Two states with equal futures must be merged, whatever weights lead to them."""
    twice = Fst.from_lists(
        0,
        [NOT_FINAL] * 5 + [0.0],
        [
            [(1, 1, 0.5, 1), (2, 2, 1.5, 2)],
            [(3, 3, 1.0, 3)],
            [(3, 3, 0.25, 4)],
            [(1, 1, 0.5, 5)],
            [(1, 1, 1.25, 5)],
            [],
        ],
    )
    assert minimize_acyclic(twice).num_states == 4


@pytest.mark.parametrize("seed", SEEDS)
def test_encoded_minimisation_keeps_costs_and_weights(seed):
    fst = connect(random_acceptor(seed))
    codes_of, codes = encoded(fst)
    assert_same_costs(decoded(minimize_encoded(codes_of), codes), fst)


@pytest.mark.parametrize("seed", SEEDS)
def test_reversed_acceptors_read_backwards(seed):
    fst = random_acceptor(seed)
    backwards = {read[::-1]: cost for read, cost in costs(fst).items()}
    assert costs(reversed_fst(fst)).keys() == backwards.keys()
    for read, cost in costs(reversed_fst(fst)).items():
        assert cost == pytest.approx(backwards[read], abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_composition_adds_costs(seed):
    first, second = random_acceptor(seed, 0.0), random_acceptor(seed + 100, 0.0)
    both, costs1, costs2 = costs(compose(first, second)), costs(first), costs(second)
    assert both.keys() == costs1.keys() & costs2.keys()
    for read, cost in both.items():
        assert cost == pytest.approx(costs1[read] + costs2[read], abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_composition_with_a_loop_translates(seed):
    """Input 1 becomes 10 or 11 12, and 2 becomes 20, with costs; the second FST's epsilons stay."""
    loop = Fst.from_lists(
        0,
        [0.0, NOT_FINAL],
        [[(10, 1, 0.5, 0), (11, 1, 0.25, 1), (20, 2, 1.0, 0)], [(12, 0, 0.125, 0)]],
    )
    second = random_acceptor(seed, epsilons=0.3)
    expected: dict[tuple[int, ...], float] = {}
    for read, cost in costs(second, 3).items():
        translations = [((), cost)]
        for label in read:
            parts = [((10,), 0.5), ((11, 12), 0.375)] if label == 1 else [((20,), 1.0)]
            translations = [(t + p, c + w) for t, c in translations for p, w in parts]
        for translation, total in translations:
            expected[translation] = min(expected.get(translation, np.inf), total)
    found = costs(compose_with_loops(loop, second), 6)
    for translation, total in expected.items():
        assert found[translation] == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_concatenation_joins_sequences(seed):
    parts = [random_acceptor(seed + k, 0.0, acyclic=True) for k in (0, 50, 99)]
    a, b, c = (costs(part, 7) for part in parts)
    expected: dict[tuple[int, ...], float] = defaultdict(lambda: np.inf)
    for x in a:
        for y in b:
            for z in c:
                whole = x + y + z
                expected[whole] = min(expected[whole], a[x] + b[y] + c[z])
    joined = costs(remove_epsilons(concatenate(parts)), 21)
    assert joined.keys() == expected.keys()
    for read, cost in joined.items():
        assert cost == pytest.approx(expected[read], abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_pushed_weights_come_as_early_as_they_can(seed):
    fst = connect(random_acceptor(seed, 0.0, acyclic=True))
    order = top_order(fst)
    assert order is not None
    pushed = push_to_initial(fst, distances_to_end(fst, order))
    assert_same_costs(pushed, fst)
    left = distances_to_end(pushed, order)
    np.testing.assert_allclose(np.delete(left, fst.start), 0.0, atol=1e-5)
    without = push_to_initial(fst, distances_to_end(fst, order), remove_total_weight=True)
    assert distances_to_end(without, order)[fst.start] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_special_pushing_gives_every_state_the_same_total(seed):
    fst = connect(random_acceptor(seed))
    pushed = push_special(fst, 1e-6)
    assert_same_costs(pushed, fst, tolerance=1e-4)
    totals = np.exp(-pushed.finals.astype(float))
    totals += np.bincount(pushed.sources, np.exp(-pushed.weights.astype(float)), fst.num_states)
    np.testing.assert_allclose(totals, totals[0], rtol=1e-4)


def test_epsilons_of_infinite_cost_lead_nowhere():
    fst = Fst.from_lists(0, [0.0, 0.0], [[(0, 0, NOT_FINAL, 1), (1, 1, 0.5, 0)], [(2, 2, 0, 1)]])
    assert_same_costs(remove_epsilons(fst), fst)


def test_states_that_matter():
    """State 3 does not reach the end, state 4 is not reachable: both must be removed."""
    fst = Fst.from_lists(
        0,
        [NOT_FINAL, NOT_FINAL, 0.0, NOT_FINAL, NOT_FINAL],
        [[(1, 1, 0, 1), (2, 2, 0, 3)], [(1, 1, 0, 2)], [], [], [(1, 1, 0, 2)]],
    )
    assert accessible(fst).tolist() == [True, True, True, True, False]
    assert coaccessible(fst).tolist() == [True, True, True, False, True]
    assert connect(fst).num_states == 3
    assert steps_from_start(fst).tolist() == [0, 1, 2, 1, -1]


def test_breadth_first_order_goes_by_arcs():
    fst = Fst.from_lists(
        2, [NOT_FINAL, 0.0, NOT_FINAL], [[(1, 1, 0, 1)], [], [(2, 2, 0, 0), (1, 1, 0, 1)]]
    )
    order = breadth_first_sorted(fst)
    assert order.start == 0
    assert order.nextstates.tolist() == [1, 2, 2]


def test_endless_determinisation_is_stopped():
    """Two loops with one label and different costs have no finite deterministic equivalent."""
    fst = Fst.from_lists(
        0, [NOT_FINAL, 0.0, 0.5], [[(1, 1, 0, 1), (1, 1, 0, 2)], [(1, 1, 1, 1)], [(1, 1, 2, 2)]]
    )
    with pytest.raises(DataError, match="more than 50 states"):
        determinize(fst, 50)


def test_sorting_as_cpp_does_is_sorting():
    rng = np.random.default_rng(1)
    for size in (0, 1, 16, 17, 100, 1000):
        keys = rng.integers(0, 5, size).tolist()
        order = std_sort_order(keys)
        assert sorted(order) == list(range(size))
        assert [keys[place] for place in order] == sorted(keys)


# -- OpenFst's numbers

FOUND = json.loads((Path(__file__).parent / "openfst.json").read_text())
ALGORITHMS = {
    "remove_epsilons": remove_epsilons,
    "determinize": determinize,
    "minimize_encoded": minimize_encoded,
    "reversed": reversed_fst,
    "encoded": lambda fst: encoded(fst)[0],
}


def fst_of(start: int, finals: list[float | None], arcs: list) -> Fst:
    weights = [NOT_FINAL if final is None else final for final in finals]
    return Fst.from_lists(start, weights, [[tuple(arc) for arc in of] for of in arcs])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_states_and_arcs_are_numbered_as_openfst_does(name):
    assert len(FOUND[name]) >= 6
    for before, after in FOUND[name]:
        result, expected = ALGORITHMS[name](fst_of(*before)), fst_of(*after)
        assert result.start == expected.start
        for column in ("offsets", "ilabels", "olabels", "nextstates"):
            np.testing.assert_array_equal(getattr(result, column), getattr(expected, column))
        np.testing.assert_allclose(result.weights, expected.weights, atol=1e-6)
        np.testing.assert_allclose(result.finals, expected.finals, atol=1e-6)


def ending_in_one_state(seed: int) -> Fst:
    """A random acceptor without epsilons, whose one final state has no outgoing arcs."""
    fst = random_acceptor(seed, 0.0, acyclic=True, num_labels=9)
    finals = np.full(fst.num_states, NOT_FINAL, np.float32)
    finals[-1] = seed / 7
    return replace(fst, finals=finals)


@pytest.mark.parametrize("last_first", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_joints_made_together_are_those_made_one_by_one(seed, last_first, monkeypatch) -> None:
    joined = concatenate([ending_in_one_state(seed + k) for k in range(5)], last_first)
    together = remove_epsilons(joined)
    monkeypatch.setattr(epsilon, "_single_steps", lambda *args: None)
    one_by_one = remove_epsilons(joined)
    for name in ("start", "finals", "offsets", "ilabels", "olabels", "weights", "nextstates"):
        np.testing.assert_array_equal(getattr(together, name), getattr(one_by_one, name))


@pytest.mark.parametrize("seed", SEEDS)
def test_numbers_of_joined_states_do_not_matter_to_what_is_sorted(seed) -> None:
    parts = [ending_in_one_state(seed + k) for k in range(5)]
    first, second = (
        breadth_first_sorted(remove_epsilons(concatenate(parts, last_first)))
        for last_first in (True, False)
    )
    assert first.arc_lists() == second.arc_lists()
    np.testing.assert_array_equal(first.finals, second.finals)


def test_ever_cheaper_epsilons_are_refused_and_cheap_detours_taken():
    def ring(weight):
        arcs = [
            [(0, 0, 0.5, 1), (0, 0, 5.0, 2)],
            [(0, 0, weight, 2)],
            [(0, 0, -1.0, 1), (7, 7, 0, 3)],
        ]
        return Fst.from_lists(0, [NOT_FINAL] * 3 + [0.0], [*arcs, []])

    with pytest.raises(DataError, match="cycle of epsilons with a negative weight"):
        remove_epsilons(ring(0.25))
    assert remove_epsilons(ring(2.0)).weights.tolist() == [2.5]


def test_cycles_are_not_minimized():
    loop = Fst.from_lists(0, [NOT_FINAL, 0.0], [[(1, 1, 0.0, 1)], [(2, 2, 0.0, 0)]])
    with pytest.raises(DataError, match="cycle"):
        minimize_acyclic(loop)


def test_few_states_of_very_many_are_stopped_too(monkeypatch):
    monkeypatch.setattr(determinization, "_MOST_MEMBERS", 1000)
    loops = [(1, 1, 0.0, 0), (2, 2, 0.0, 0), (1, 1, 0.0, 1)]
    chain = [[(1, 1, 0.0, i + 1), (2, 2, 0.0, i + 1)] for i in range(1, 30)]
    fst = Fst.from_lists(0, [NOT_FINAL] * 30 + [0.0], [loops, *chain, []])
    with pytest.raises(DataError, match="more than 1000 states into its subsets"):
        determinize(fst, 100_000)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_final_weight_that_overflows_is_none():
    big = 3e38
    lists = [[(0, 0, big, 1)], [], [(1, 1, 0, 0), (0, 0, 0, 0), (2, 2, 0, 3)], []]
    fst = Fst.from_lists(2, [NOT_FINAL, big, NOT_FINAL, 0.0], lists)
    assert remove_epsilons_locally(fst).arc_lists() == [[(2, 2, 0.0, 1)], []]

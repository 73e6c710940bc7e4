"""Forward and backward probabilities of lattices, against all of their paths written down."""

import numpy as np
import pytest

from nnet3tools.discriminative.lattice_levels import LevelledLattice
from nnet3tools.errors import DataError
from nnet3tools.fst.lattice import Lattice
from nnet3tools.fst.lattice_order import concatenated, in_top_order, lattice_state_times
from support.lattice_paths import all_paths, random_lattice


def posteriors_by_paths(lattice, values):
    """The log of all paths' probability, each arc's posterior, and expectations of `values`."""
    paths = all_paths(lattice)
    costs = np.array([cost for _, cost in paths])
    total = np.logaddexp.reduce(-costs)
    shares = np.exp(-costs - total)
    uses = np.zeros((len(paths), lattice.fst.num_arcs))
    for row, (arcs, _) in zip(uses, paths, strict=True):
        row[list(arcs)] = 1.0
    sums = uses @ values
    expected = float(shares @ sums)
    return total, shares @ uses, expected, (shares * (sums - expected)) @ uses


@pytest.mark.parametrize("num_frames", [1, 2, 5])
@pytest.mark.parametrize("epsilons", [False, True])
def test_probabilities_are_those_of_all_paths(num_frames, epsilons):
    rng = np.random.default_rng(num_frames)
    lattice = random_lattice(rng, num_frames, epsilons)
    values = rng.uniform(size=lattice.fst.num_arcs)
    levels = LevelledLattice(lattice)
    costs, final_costs = levels.costs(lattice)
    found = levels.probabilities(costs, final_costs)
    total, posteriors, expected, deriv = posteriors_by_paths(lattice, values)
    np.testing.assert_allclose(found.totals, [total], rtol=1e-12)
    np.testing.assert_allclose(found.beta[0], total, rtol=1e-12)
    np.testing.assert_allclose(levels.posteriors(costs, found), posteriors, atol=1e-12)
    average, by_arc = levels.expected(values, costs, final_costs, found)
    np.testing.assert_allclose(average, expected, rtol=1e-12)
    np.testing.assert_allclose(by_arc, deriv, atol=1e-12)


@pytest.mark.parametrize("epsilons", [False, True])
def test_sequences_side_by_side_are_as_one_after_the_other(epsilons):
    rng = np.random.default_rng(4)
    lattice = concatenated([random_lattice(rng, 4, epsilons) for _ in range(3)])
    values = rng.uniform(size=lattice.fst.num_arcs)
    totals, averages, derivs = [], [], []
    for num_sequences in (1, 3):
        levels = LevelledLattice(lattice, num_sequences)
        costs, final_costs = levels.costs(lattice)
        found = levels.probabilities(costs, final_costs)
        frames = levels.labels != 0
        average, by_arc = levels.expected(
            np.where(frames, values[levels.arcs], 0.0), costs, final_costs, found
        )
        totals.append(found.totals.sum())
        averages.append(average)
        derivs.append(by_arc[frames])
        assert len(found.totals) == num_sequences
    np.testing.assert_allclose(*totals, rtol=1e-12)
    np.testing.assert_allclose(*averages, rtol=1e-12)
    np.testing.assert_allclose(*derivs, atol=1e-12)


def test_paths_beside_the_start_of_a_sequence_make_it_no_piece_of_its_own():
    arcs = [[(1, 0, 0.1, 0.0, 1), (2, 0, 0.2, 0.0, 2)]]
    arcs += [[(0, 0, 0.3, 0.0, 2), (1, 0, 0.4, 0.0, 3)], [(3, 0, 0.5, 0.0, 3)], []]
    lattice = Lattice.from_lists(0, [None, None, None, (0.0, 0.0)], arcs)
    levels = LevelledLattice(lattice, 2)
    found = levels.probabilities(*levels.costs(lattice))
    total, *_ = posteriors_by_paths(lattice, np.zeros(5))
    assert len(found.totals) == 1
    np.testing.assert_allclose(found.totals, [total], rtol=1e-12)


def test_order_is_that_of_openfst_also_where_there_was_one():
    # Its depth-first walk leaves state 2 before state 1.
    arcs = [[(1, 1, 0.0, 0.0, 1), (2, 2, 0.0, 0.0, 2)], [(3, 3, 0.0, 0.0, 3)]]
    arcs += [[(4, 4, 0.0, 0.0, 3)], []]
    lattice = Lattice.from_lists(0, [None, None, None, (0.5, 0.25)], arcs)
    found = in_top_order(lattice)
    assert found.arc_lists()[0] == [(1, 1, 0.0, 0.0, 2), (2, 2, 0.0, 0.0, 1)]
    assert found.arc_lists()[1] == [(4, 4, 0.0, 0.0, 3)]
    assert found.final_list()[3] == (0.5, 0.25)


def test_paths_of_unlike_length_and_lost_states_are_refused():
    arcs = [[(1, 1, 0.0, 0.0, 1), (1, 1, 0.0, 0.0, 2)], [(1, 1, 0.0, 0.0, 2)], []]
    uneven = Lattice.from_lists(0, [None, None, (0.0, 0.0)], arcs)
    with pytest.raises(DataError, match="paths of 1 and of 2 frames to state 2"):
        lattice_state_times(uneven)
    lost = Lattice.from_lists(0, [(0.0, 0.0), (0.0, 0.0)], [[], []])
    with pytest.raises(DataError, match="state 1 of the lattice cannot be reached"):
        lattice_state_times(lost)

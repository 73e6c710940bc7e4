"""Numerators: sums over enumerated paths, plain and end-to-end, joined and apart."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from nnet3tools.chain.paths import supervision_paths
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.tensor.operators.numerator import numerator

PDFS = 4
WEIGHT = 0.7


def layered(rng, widths, joined_unlike=False, final_costs=True):
    """A random acceptor with `widths` states at each time; the last are final."""
    first = np.cumsum([0, *widths])
    arcs = [[] for _ in range(first[-1])]
    for t in range(len(widths) - 1):
        for source, after in itertools.product(range(widths[t]), range(widths[t + 1])):
            for label in rng.choice(PDFS, 2, replace=False) + 1:
                cost = float(rng.uniform(0, 2))
                arc = (int(label), int(label), cost, int(first[t + 1] + after))
                arcs[first[t] + source].append(arc)
    finals = [NOT_FINAL] * int(first[-2]) + [
        float(rng.uniform(0, 1)) if final_costs else 0.0 for _ in range(widths[-1])
    ]
    return Fst.from_lists(0, finals, arcs)


def joined(first: Fst, second: Fst) -> Fst:
    """One after the other as Kaldi does: final states get the second's first arcs, and pay more."""
    size = first.num_states - 1
    arcs, more = first.arc_lists(), second.arc_lists()
    moved = [[(i, o, w, n + size) for i, o, w, n in state] for state in more]
    for state in np.flatnonzero(first.is_final):
        arcs[state] = [(i, o, w + float(first.finals[state]), n) for i, o, w, n in moved[0]]
    finals = [NOT_FINAL] * first.num_states + list(second.finals[1:])
    return Fst.from_lists(0, finals, arcs + moved[1:])


def path_sums(fst: Fst, frames: np.ndarray) -> tuple[float, np.ndarray]:
    """Log-probability and posteriors of one sequence, (frames, PDFS), path by path."""
    arcs = fst.arc_lists()
    total, posteriors = 0.0, np.zeros(frames.shape)

    def walk(state, t, cost, labels):
        nonlocal total
        if t == len(frames):
            if np.isfinite(fst.finals[state]):
                prob = np.exp(-cost - float(fst.finals[state]))
                total += prob
                posteriors[np.arange(t), labels] += prob
            return
        for label, _, weight, after in arcs[state]:
            walk(after, t + 1, cost + weight - frames[t, label - 1], [*labels, label - 1])

    walk(fst.start, 0, 0.0, [])
    return np.log(total), posteriors / total


def check(supervision: Supervision, fsts, output):
    """The operator, its reference, and path sums agree; the derivative is added."""
    n = supervision.num_sequences
    paths = supervision_paths(supervision, PDFS)
    expected, posteriors = 0.0, np.zeros(output.shape)
    for k, fst in enumerate(fsts):
        log_prob, posteriors[k::n] = path_sums(fst, output[k::n])
        expected += log_prob
    for run in (numerator, numerator.reference):
        results, deriv = np.zeros(1), np.ones((len(output), PDFS + 1), output.dtype)
        run(results, output, paths, deriv[:, :PDFS], WEIGHT)
        np.testing.assert_allclose(results[0], expected, 1e-6)
        np.testing.assert_allclose(deriv[:, :PDFS], 1.0 + WEIGHT * posteriors, 1e-5)
        results = np.zeros(1)
        run(results, output, paths)
        np.testing.assert_allclose(results[0], expected, 1e-6)
    return paths


@pytest.mark.parametrize("num_last", [1, 3])
def test_joined_sequences_are_parted_where_they_are_independent(num_last):
    rng = np.random.default_rng(num_last)
    fsts = [layered(rng, [1, 2, 3, num_last]) for _ in range(3)]
    whole = joined(joined(fsts[0], fsts[1]), fsts[2])
    output = rng.normal(size=(9, PDFS)).astype(np.float32)
    supervision = Supervision(1.0, 3, 3, PDFS, whole)
    paths = check(supervision, fsts, output)
    assert paths.num_parts == 3
    assert len(paths.frames) == 3


def test_sequences_that_depend_on_each_other_stay_joined():
    """Two states between sequences whose arcs are unlike: no cut there, and the sum is right."""
    rng = np.random.default_rng(4)
    whole = layered(rng, [1, 2, 2, 3, 1, 2, 2])  # three sequences of two frames; unlike at 2
    supervision = Supervision(1.0, 3, 2, PDFS, whole)
    output = rng.normal(size=(6, PDFS)).astype(np.float32)
    paths = supervision_paths(supervision, PDFS)
    assert paths.num_parts == 2
    rows = np.concatenate([output[k::3] for k in range(3)])  # sequence by sequence
    expected, posteriors = path_sums(whole, rows)
    results, deriv = np.zeros(1), np.zeros_like(output)
    numerator(results, output, paths, deriv)
    np.testing.assert_allclose(results[0], expected, 1e-6)
    for k in range(3):
        np.testing.assert_allclose(deriv[k::3], posteriors[2 * k : 2 * k + 2], 1e-5, 1e-7)


def test_states_whose_arcs_differ_by_no_constant_cost_are_no_cut():
    """Equal labels and targets do not suffice: one arc's cost decides which path is likelier."""
    rng = np.random.default_rng(6)
    fsts = [layered(rng, [1, 2, 2]) for _ in range(2)]
    whole = joined(*fsts)
    supervision = Supervision(1.0, 2, 2, PDFS, whole)
    assert supervision_paths(supervision, PDFS).num_parts == 2
    weights = whole.weights.copy()
    state = int(np.flatnonzero(fsts[0].is_final)[-1])
    weights[whole.offsets[state]] += 0.5
    unlike = replace(supervision, fst=replace(whole, weights=weights))
    assert supervision_paths(unlike, PDFS).num_parts == 1


def test_end_to_end_acceptors_may_have_loops():
    rng = np.random.default_rng(5)
    loops = [
        Fst.from_lists(
            0,
            [NOT_FINAL, NOT_FINAL, 0.3],
            [
                [(1, 1, 0.4, 1), (2, 2, 0.1, 2)],
                [(2, 2, 0.2, 1), (3, 3, 0.5, 2)],
                [(k + 1, k + 1, 0.6, 2)],
            ],
        )
        for k in range(3)
    ]
    supervision = Supervision(1.0, 3, 4, PDFS, Fst.empty(), tuple(loops))
    check(supervision, loops, rng.normal(size=(12, PDFS)).astype(np.float32))


def test_an_acceptor_without_a_path_has_log_probability_minus_infinity():
    """Longer than the sequence."""
    supervision = Supervision(1.0, 1, 2, PDFS, Fst.empty(), (Fst.linear([1, 2, 3]),))
    results, deriv = np.zeros(1), np.zeros((2, PDFS), np.float32)
    paths = supervision_paths(supervision, PDFS)
    numerator(results, np.zeros((2, PDFS), np.float32), paths, deriv)
    assert results[0] == -np.inf


def test_a_supervision_of_another_tree_is_refused():
    supervision = Supervision(1.0, 1, 2, PDFS + 1, Fst.linear([1, 2]))
    with pytest.raises(DataError, match="is for 5 pdfs, the network's output has 4"):
        supervision_paths(supervision, PDFS)

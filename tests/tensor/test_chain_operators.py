"""Forward-backward of LF-MMI: against path sums, references and slopes."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.operators.leaky_hmm import (
    ALPHA_BETA,
    LOG_PROB,
    POSTERIOR_SUM,
    Hmm,
    leaky_hmm,
)

PDFS = 5
LEAK = 0.1


def random_hmm(rng, num_states=6, num_arcs=17):
    """Some states have no arcs out, some none in; some arcs are alike but for their pdf."""
    sources = rng.integers(0, num_states - 1, num_arcs)
    destinations = rng.integers(1, num_states, num_arcs)
    sources[0], destinations[0] = 0, 1
    initial = rng.uniform(0.1, 1.0, num_states)
    return Hmm(
        *(a.astype(np.int32) for a in (sources, destinations, rng.integers(0, PDFS, num_arcs))),
        rng.uniform(0.1, 0.9, num_arcs).astype(np.float32),
        (initial / initial.sum()).astype(np.float32),
    )


def matrices(hmm):
    """By pdf, the matrix of transition probabilities (states, states)."""
    found = np.zeros((PDFS, hmm.num_states, hmm.num_states))
    np.add.at(found, (hmm.pdfs, hmm.sources, hmm.destinations), hmm.probs)
    return found


def log_prob(hmm, output, num_sequences):
    """The model written out: a leak before each frame and after the last; no scaling."""
    init = hmm.initial.astype(float)
    leak = np.eye(hmm.num_states) + LEAK * init[None, :]
    steps = np.einsum("tp,pij->tij", np.exp(np.clip(output.astype(float), -30, 30)), matrices(hmm))
    total = 0.0
    for n in range(num_sequences):
        alpha = init @ leak
        for step in steps[n::num_sequences]:
            alpha = alpha @ step @ leak
        total += np.log(alpha.sum())
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_sequences", [1, 4])
def test_denominator_is_the_probability_of_all_paths(num_sequences, dtype):
    rng = np.random.default_rng(num_sequences)
    for _ in range(10):
        hmm = random_hmm(rng)
        output = rng.normal(size=(7 * num_sequences, PDFS), scale=2.0).astype(dtype)
        expected, deriv = np.zeros(3), np.zeros(output.shape)
        exactly = output.astype(np.float64)
        leaky_hmm.reference(expected, exactly, hmm, num_sequences, LEAK, deriv, -0.5)
        exact = log_prob(hmm, output, num_sequences)
        np.testing.assert_allclose(expected, [exact, num_sequences, num_sequences], 1e-10)
        results = np.zeros(3)
        wide = np.full((len(output), PDFS + 3), 0.25, dtype)
        leaky_hmm(results, output, hmm, num_sequences, LEAK, wide[:, :PDFS], -0.5)
        tolerance = 1e-9 if dtype == np.float64 else 2e-5
        np.testing.assert_allclose(results, expected, tolerance)
        np.testing.assert_allclose(wide[:, :PDFS], 0.25 + deriv, tolerance, tolerance)
        forward = np.zeros(3)
        leaky_hmm(forward, output, hmm, num_sequences, LEAK)
        assert forward[LOG_PROB] == results[LOG_PROB]
        assert forward[ALPHA_BETA] == forward[POSTERIOR_SUM] == 0.0


def test_denominator_derivative_is_the_slope():
    rng = np.random.default_rng(3)
    hmm = random_hmm(rng)
    output = rng.normal(size=(12, PDFS))
    deriv = np.zeros_like(output)
    leaky_hmm(np.zeros(3), output, hmm, 2, LEAK, deriv)
    direction = rng.normal(size=output.shape)
    step = 1e-6
    slope = log_prob(hmm, output + step * direction, 2) - log_prob(
        hmm, output - step * direction, 2
    )
    np.testing.assert_allclose((deriv * direction).sum(), slope / (2 * step), 1e-6)


def test_outputs_beyond_the_limit_do_not_overflow():
    hmm = random_hmm(np.random.default_rng(5))
    output = np.full((40, PDFS), 80.0, np.float32)
    results, deriv = np.zeros(3), np.zeros_like(output)
    leaky_hmm(results, output, hmm, 1, LEAK, deriv)
    assert np.isfinite(results).all()
    np.testing.assert_allclose(deriv.sum(axis=1), 1.0, 1e-4)


def test_outputs_that_are_not_finite_show_in_the_checks():
    hmm = random_hmm(np.random.default_rng(5))
    output = np.zeros((6, PDFS), np.float32)
    output[3, :] = np.nan
    results = np.zeros(3)
    leaky_hmm(results, output, hmm, 1, LEAK, np.zeros_like(output))
    assert not np.isfinite(results).any()


def test_scratch_is_given_back():
    """Twice the same: nothing of the first run is read by the second."""
    rng = np.random.default_rng(9)
    hmm = random_hmm(rng)
    output = rng.normal(size=(12, PDFS)).astype(np.float32)
    found = []
    for _ in range(2):
        deriv = tensor.zeros(output.shape, like=output)
        leaky_hmm(np.zeros(3), output, hmm, 3, LEAK, deriv)
        found.append(deriv)
    np.testing.assert_array_equal(*found)

"""LF-MMI's compiled kernels against the operators' references, whatever they are bound to."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu import choice
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.jobs import CompiledJobs
from nnet3tools.tensor.kernel_policy import run_compiled
from nnet3tools.tensor.operators.leaky_hmm import LOG_PROB, leaky_hmm
from nnet3tools.tensor.operators.numerator import numerator
from nnet3tools.tensor.plain import threads
from support.native_kernels import needs_compiler, unexpected
from support.random_acceptors import PDFS, random_hmm, random_paths

pytestmark = needs_compiler

LEAK, WEIGHT = 0.1, 0.4


def by_kernels(operator, *operands):
    jobs = jobs_of(Call.of(operator, *operands))
    assert jobs is not None
    CompiledJobs(jobs, lambda: unexpected)()


def outputs(rows, seed=0):
    found = np.random.default_rng(seed).normal(size=(rows, PDFS), scale=3.0).astype(np.float32)
    found[2, 3], found[1, 0] = 50.0, -70.0
    return found


@pytest.mark.parametrize("num_sequences", [1, 5, 16, 19, 35])
def test_denominator_of_few_and_many_sequences(num_sequences):
    """Vectors that are not full, more than one vector, rows that are parts of wider ones."""
    hmm = random_hmm(np.random.default_rng(num_sequences))
    wide = np.full((6 * num_sequences, PDFS + 2), np.nan, np.float32)
    output = wide[:, :PDFS]
    output[...] = outputs(len(wide))
    expected, expected_deriv = np.zeros(3), np.ones((len(output), PDFS + 3), np.float32)
    results, deriv = expected.copy(), expected_deriv.copy()
    rest = (hmm, num_sequences, LEAK)
    leaky_hmm.reference(expected, output, *rest, expected_deriv[:, :PDFS], -WEIGHT)
    by_kernels(leaky_hmm, results, output, *rest, deriv[:, :PDFS], -WEIGHT)
    np.testing.assert_allclose(results, expected, 1e-5)
    np.testing.assert_allclose(deriv, expected_deriv, 1e-4, 1e-5)
    forward = np.zeros(3)
    by_kernels(leaky_hmm, forward, output, *rest)
    assert forward[LOG_PROB] == results[LOG_PROB]


def test_denominator_does_not_depend_on_threads(monkeypatch):
    hmm, output, found = random_hmm(np.random.default_rng(2)), outputs(4 * 50), []
    for count in (1, 2):
        monkeypatch.setattr(threads, "_num_threads", count)
        results, deriv = np.zeros(3), np.zeros_like(output)
        by_kernels(leaky_hmm, results, output, hmm, 50, LEAK, deriv)
        found.append((results, deriv))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_sequence_that_is_not_finite_leaves_the_others_alone(value):
    """In one of two sequences, and in the checks, unless the limits on outputs mend it."""
    hmm, output = random_hmm(np.random.default_rng(3)), outputs(8)
    whole, deriv = np.zeros(3), np.zeros_like(output)
    by_kernels(leaky_hmm, whole, output, hmm, 2, LEAK, deriv)
    output[4, 1] = value
    results, found = np.zeros(3), np.zeros_like(output)
    by_kernels(leaky_hmm, results, output, hmm, 2, LEAK, found)
    np.testing.assert_array_equal(found[1::2], deriv[1::2])
    assert np.isfinite(results).all() == (not np.isnan(value))


@pytest.mark.parametrize("same", [False, True])
def test_numerator(same):
    rng = np.random.default_rng(same)
    paths, output = random_paths(rng, same=same), outputs(15)
    expected, expected_deriv = np.zeros(1), np.ones(output.shape)
    results, deriv = np.zeros(1), np.ones_like(output)
    numerator.reference(expected, output, paths, expected_deriv, WEIGHT)
    by_kernels(numerator, results, output, paths, deriv, WEIGHT)
    np.testing.assert_allclose(results, expected, 1e-14)
    np.testing.assert_allclose(deriv, expected_deriv, 1e-6)
    forward = np.zeros(1)
    by_kernels(numerator, forward, output, paths)
    assert forward[0] == results[0]


def test_numerator_of_terms_far_apart():
    """Terms that exp makes 0, and costs that are infinite, beside ones that count."""
    rng = np.random.default_rng(4)
    paths = random_paths(rng)
    for frame in paths.frames:
        frame.costs[::2] += 900.0
        frame.costs[::5] = np.inf
    output = outputs(15)
    expected, expected_deriv = np.zeros(1), np.zeros(output.shape)
    results, deriv = np.zeros(1), np.zeros_like(output)
    numerator.reference(expected, output, paths, expected_deriv)
    by_kernels(numerator, results, output, paths, deriv)
    np.testing.assert_allclose(results, expected, 1e-14)
    np.testing.assert_allclose(deriv, expected_deriv, 1e-6, 1e-30)


def test_numerator_without_a_path_and_with_outputs_that_are_no_numbers():
    rng = np.random.default_rng(5)
    paths, output = random_paths(rng), outputs(15)
    results = np.zeros(1)
    by_kernels(numerator, results, np.where(output > 99, output, np.float32(np.nan)), paths)
    assert np.isnan(results[0])
    paths.final_costs[...] = np.inf
    by_kernels(numerator, results, output, paths, np.zeros_like(output))
    assert results[0] == -np.inf


def test_what_kernels_do_not_take_is_numpys(monkeypatch):
    """float64, columns of a wider matrix for the numerator; --cpu-kernels=numpy."""
    paths, hmm = random_paths(np.random.default_rng(6)), random_hmm(np.random.default_rng(6))
    output = outputs(15)
    wide = np.zeros((15, PDFS + 1), np.float32)
    doubled = output.astype(np.float64)
    assert jobs_of(Call.of(leaky_hmm, np.zeros(3), doubled, hmm, 3, LEAK)) is None
    assert jobs_of(Call.of(numerator, np.zeros(1), output, paths, wide[:, :PDFS])) is None
    expected = np.zeros(1)
    numerator.reference(expected, output, paths)
    for kernels in choice.CpuKernels:
        monkeypatch.setattr(choice, "_chosen", kernels)
        results, deriv = np.zeros(1), tensor.zeros(wide.shape)[:, :PDFS]
        run_compiled(numerator, results, output, paths, deriv)
        np.testing.assert_allclose(results, expected, 1e-12)

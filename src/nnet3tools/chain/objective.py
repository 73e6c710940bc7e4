"""The LF-MMI objective: numerator minus denominator log-probability (Kaldi's chain-training.cc)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.paths import supervision_paths
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.tensor import recording
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.kernel_policy import run_compiled
from nnet3tools.tensor.operators.leaky_hmm import (
    ALPHA_BETA,
    LIMIT,
    LOG_PROB,
    POSTERIOR_SUM,
    leaky_hmm,
)
from nnet3tools.tensor.operators.numerator import PackedPaths, Paths, numerator
from nnet3tools.tensor.operators.random import rand_int

FAILED_PER_FRAME = -10.0
"""The objective per frame of a minibatch whose objective could not be computed."""


@dataclass(frozen=True)
class ChainObjective:
    """The objective of one output, summed over a minibatch.

    `weight` is the supervision's weight times its number of frames; logs show `objective` and
    `l2_term` divided by it. `numerator` and `denominator` are log-probabilities with the
    supervision's weight as a factor, but `denominator_log_prob` is without it.
    """

    objective: float
    l2_term: float
    weight: float
    numerator: float
    denominator: float
    denominator_log_prob: float


_penalize = tensor.element(f"_1 -= _3 * (_2 - clip(_2, {-LIMIT}, {LIMIT}))")
"""Derivative of the penalty on outputs beyond the limits."""


def compute_chain_objective(
    options: ChainTrainingOptions,
    graph: DenominatorGraph,
    supervision: Supervision,
    output: Array,
    deriv: Array | None = None,
    xent_deriv: Array | None = None,
) -> ChainObjective:
    """The LF-MMI objective of `output` (frames * sequences, pdfs), rows ordered by frame.

    `deriv`, if given, is set to the derivative; `xent_deriv` to the numerator's derivative: its
    posteriors times the supervision's weight. The penalty on outputs beyond +-30 is applied in
    half of the calls, at random, and twice as large. If the sums overflow, derivatives are
    zero, the objective is -10 per frame, and a warning is logged. DataError for a supervision
    or graph that does not fit the output.
    """
    if len(output) != supervision.num_frames:
        raise DataError(
            f"the supervision is for {supervision.num_frames} rows, the output has {len(output)}"
        )
    paths = supervision_paths(supervision, output.shape[1])
    if graph.num_pdfs != output.shape[1]:
        raise DataError(
            f"the denominator graph is for {graph.num_pdfs} pdfs, the output has {output.shape[1]}"
        )
    derivs = deriv, xent_deriv
    sums = compute_sums(options, graph, supervision, paths, output, derivs, _warn_of_range)
    den, num = (tensor.to_host(array) for array in sums)
    den_ok = deriv is None or are_near_sums(den, supervision.num_sequences)
    # Kaldi's end-to-end numerator lacks the factor.
    numerator_sum = float(num[0]) * (1.0 if supervision.is_e2e else supervision.weight)
    den_log_prob, weight = float(den[LOG_PROB]), supervision.weight * supervision.num_frames
    denominator_sum = supervision.weight * den_log_prob
    objective = numerator_sum - denominator_sum
    if not (den_ok and math.isfinite(objective)):
        log.warning(
            f"Objective function is {objective:g} and denominator computation (if done) returned "
            f"{str(den_ok).lower()}, setting objective function to {FAILED_PER_FRAME:g} per frame."
        )
        objective = FAILED_PER_FRAME * weight
        for matrix in derivs:
            if matrix is not None:
                tensor.fill(matrix, 0.0)
    l2_term, l2_scale = 0.0, supervision.weight * options.l2_regularize
    if l2_scale != 0.0 and (math.isfinite(numerator_sum) or not supervision.is_e2e):
        l2_term = -0.5 * l2_scale * float(tensor.dot(output, output))
        if deriv is not None:
            tensor.add(deriv, output, alpha=-l2_scale)
    log_probs = numerator_sum, denominator_sum, den_log_prob
    return ChainObjective(objective, l2_term, weight, *log_probs)


@dataclass(frozen=True)
class Facts:
    """The sizes and flags of an output's supervision that select a recorded GPU computation.

    `num_rows` are its frames of all sequences. `num_parts`, `num_states` and `num_frames` are the
    sizes of PackedPaths. `has_weights`: there are row weights.
    """

    weight: float
    num_sequences: int
    num_rows: int
    is_e2e: bool
    num_parts: int
    num_states: int
    num_frames: int
    has_weights: bool


def compute_sums(
    options: ChainTrainingOptions,
    graph: DenominatorGraph,
    supervision: Supervision | Facts,
    paths: Paths | PackedPaths,
    output: Array,
    derivs: tuple[Array | None, Array | None],
    look: Callable[[Array], None],
) -> tuple[Array, Array]:
    """(den, num): float64 arrays with the denominator's and the numerator's log-probability.

    den (3,) also has the check sums of `leaky_hmm`; num is (1,). `derivs`, unless None, are set to
    the derivative and the numerator's derivative. At random (1 in 100), `look(output)` is called,
    which may check the range. Random draws are in Kaldi's order.
    """
    deriv, xent_deriv = derivs
    for matrix in derivs:
        if matrix is not None:
            tensor.fill(matrix, 0.0)
    if supervision.is_e2e:
        _penalize_out_of_range(options, output, deriv)
    with recording.optional(lambda: rand_int(0, 99) == 0, output) as is_now:
        if is_now:
            look(output)
    den, num = (tensor.zeros((n,), like=output, dtype=np.float64) for n in (3, 1))
    factor = -supervision.weight
    if supervision.is_e2e:
        factor *= 1.0 + options.lwf_den_scale
    leak, num_sequences = options.leaky_hmm_coefficient, supervision.num_sequences
    run_compiled(leaky_hmm, den, output, graph.hmm, num_sequences, leak, deriv, factor)
    if not supervision.is_e2e:
        _penalize_out_of_range(options, output, deriv)
    target = deriv if xent_deriv is None else xent_deriv
    run_compiled(numerator, num, output, paths, target, supervision.weight)
    if deriv is not None and xent_deriv is not None:
        tensor.add(deriv, xent_deriv)
    return den, num


def are_near_sums(results: np.ndarray, num_sequences: int) -> bool:
    """Whether the denominator's two check sums, in `results` (3,), are near `num_sequences`.

    Near: within 0.001 (posterior sum: 0.01) of both numbers' sum or, with a warning, within 2.
    """
    product, posteriors = results[ALPHA_BETA], results[POSTERIOR_SUM]
    product_is = _is_near(f"alpha-beta product {product:g}", product, num_sequences)
    what = f"log-prob-deriv sum {posteriors:g}"
    return _is_near(what, posteriors, num_sequences, 0.01) and product_is


def _is_near(what: str, found: float, expected: int, tolerance: float = 0.001) -> bool:
    """Whether `found` is within 2 of `expected`; warns, calling it `what`, beyond the tolerance.

    The tolerance is relative to the sum of both.
    """
    difference = abs(found - expected)
    if difference <= tolerance * (abs(found) + expected):
        return True
    log.warning(f"On time 0, {what} != {expected}")
    if difference <= 2.0:
        return True
    log.warning("Excessive error detected, will abandon this minibatch")
    return False


_largest = tensor.aggregate("_1", "max", axis=None)
_smallest = tensor.aggregate("_1", "min", axis=None)


def _warn_of_range(output: Array) -> None:
    largest, smallest = _largest(output), _smallest(output)
    assert largest is not None
    assert smallest is not None
    if largest > LIMIT or smallest < -LIMIT:
        log.warning(
            f"Nnet outputs {smallest:g}, {largest:g} outside the range [-30,30], derivs may be "
            "inaccurate."
        )


def _penalize_out_of_range(
    options: ChainTrainingOptions, output: Array, deriv: Array | None
) -> None:
    """If `deriv` is given: with probability 1/2, add twice the derivative of the range penalty."""
    if deriv is None:
        return
    with recording.optional(lambda: rand_int(0, 1) == 0, deriv) as is_now:
        if is_now:
            _penalize(deriv, output, 2.0 * options.out_of_range_regularize)


def denominator_posteriors(
    graph: DenominatorGraph, output: NDArray[np.float32], leak: float
) -> tuple[float, NDArray[np.float32] | None]:
    """The log-probability and posteriors (frames, pdfs) of an utterance in the graph, on the host.

    `leak` is the leaky-HMM coefficient. The posteriors are None if a check sum is wrong.
    """
    rand_int(0, 99)  # Kaldi draws whether to check the range of outputs
    results, posteriors = np.zeros(3), np.zeros_like(output)
    run_compiled(leaky_hmm, results, output, graph.hmm, 1, leak, posteriors)
    log_prob = float(results[LOG_PROB])
    if not (are_near_sums(results, 1) and math.isfinite(log_prob)):
        return log_prob, None
    return log_prob, posteriors

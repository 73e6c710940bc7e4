"""The LF-MMI objective: numerator minus denominator log-probability (Kaldi's chain-training.cc)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.paths import supervision_paths
from nnet3tools.chain.supervision import Supervision
from nnet3tools.errors import DataError
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
from nnet3tools.tensor.operators.numerator import numerator
from nnet3tools.tensor.operators.random import rand_int

FAILED_PER_FRAME = -10.0
"""The objective per frame of a minibatch whose objective could not be computed."""


@dataclass(frozen=True)
class ChainObjective:
    """The objective of one output, summed over a minibatch.

    Logs show `objective` and `l2_term` divided by `weight`. `numerator` and
    `denominator` are log-probabilities with the supervision's weight as a factor, but
    `denominator_log_prob` is without it.
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
    """The LF-MMI objective of `output` (frames * sequences, pdfs), which runs frame by frame.

    `deriv`, if given, is set to the derivative; `xent_deriv` to that of the numerator alone: its
    posteriors, times the supervision's weight. The penalty on outputs beyond +-30 is applied every
    other time, at random, and twice as large. Where the sums overflow, derivatives are zero, the
    objective is -10 a frame, and a warning says so. DataError for a supervision or graph that does
    not fit the output.
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
    scale = supervision.weight
    for matrix in (deriv, xent_deriv):
        if matrix is not None:
            tensor.fill(matrix, 0.0)
    if supervision.is_e2e:
        # The order of random draws is Kaldi's, here and below.
        penalize_out_of_range(options, output, deriv)
    den, den_ok = _denominator(options, graph, supervision, output, deriv)
    if not supervision.is_e2e:
        penalize_out_of_range(options, output, deriv)

    results = tensor.zeros((1,), like=output, dtype=np.float64)
    target = deriv if xent_deriv is None else xent_deriv
    run_compiled(numerator, results, output, paths, target, scale)
    num = float(tensor.to_host(results)[0])
    if not supervision.is_e2e:
        num *= scale  # Kaldi's end-to-end numerator lacks the factor
    if deriv is not None and xent_deriv is not None:
        tensor.add(deriv, xent_deriv)
    return _finished(options, supervision, output, (deriv, xent_deriv), num, den, den_ok)


def _finished(
    options: ChainTrainingOptions,
    supervision: Supervision,
    output: Array,
    derivs: tuple[Array | None, Array | None],
    num: float,
    den_log_prob: float,
    den_ok: bool,
) -> ChainObjective:
    """The final objective from the sums: failed values are replaced and the l2 term is added."""
    weight = supervision.weight * supervision.num_frames
    den = supervision.weight * den_log_prob
    objective = num - den
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
    if l2_scale != 0.0 and (math.isfinite(num) or not supervision.is_e2e):
        l2_term = -0.5 * l2_scale * float(tensor.dot(output, output))
        if derivs[0] is not None:
            tensor.add(derivs[0], output, alpha=-l2_scale)
    return ChainObjective(objective, l2_term, weight, num, den, den_log_prob)


def _denominator(
    options: ChainTrainingOptions,
    graph: DenominatorGraph,
    supervision: Supervision,
    output: Array,
    deriv: Array | None,
) -> tuple[float, bool]:
    """The unweighted log-probability, and whether it is right; the derivative goes to `deriv`."""
    if rand_int(0, 99) == 0:
        _warn_of_range(output)
    results = tensor.zeros((3,), like=output, dtype=np.float64)
    num_sequences = supervision.num_sequences
    leak = options.leaky_hmm_coefficient
    factor = -supervision.weight
    if supervision.is_e2e:
        factor *= 1.0 + options.lwf_den_scale
    run_compiled(leaky_hmm, results, output, graph.hmm, num_sequences, leak, deriv, factor)
    found = tensor.to_host(results)
    if deriv is None:
        return float(found[LOG_PROB]), True
    return float(found[LOG_PROB]), are_near_sums(found, num_sequences)


def are_near_sums(results: np.ndarray, num_sequences: int) -> bool:
    """Whether the check sums of `leaky_hmm` are right; warns of each that is not."""
    product, posteriors = results[ALPHA_BETA], results[POSTERIOR_SUM]
    product_is = _is_near(f"alpha-beta product {product:g}", product, num_sequences)
    what = f"log-prob-deriv sum {posteriors:g}"
    return _is_near(what, posteriors, num_sequences, 0.01) and product_is


def _is_near(what: str, found: float, expected: int, tolerance: float = 0.001) -> bool:
    """Whether a sum `found` is near `expected`; if not, warns and names it `what`."""
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


def penalize_out_of_range(
    options: ChainTrainingOptions, output: Array, deriv: Array | None
) -> None:
    """Add to `deriv`, every other time at random, twice the derivative of the range penalty."""
    if deriv is None:
        return
    with recording.optional(lambda: rand_int(0, 1) == 0, deriv) as is_now:
        if is_now:
            _penalize(deriv, output, 2.0 * options.out_of_range_regularize)

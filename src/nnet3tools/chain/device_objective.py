"""The LF-MMI objective on a GPU, computed without the host so that it can be part of a CUDA graph.

objective.py checks sums on the host. This module checks them by formulas on the device and logs
warnings later. The acceptors (tensor/packed_paths.py) and row weights of a minibatch are inputs,
because they differ between minibatches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.minibatch import OutputSupervision
from nnet3tools.chain.objective import FAILED_PER_FRAME, Facts, compute_sums
from nnet3tools.chain.options import ChainTrainingOptions
from nnet3tools.chain.paths import supervision_paths
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.operators.leaky_hmm import ALPHA_BETA, LIMIT, LOG_PROB, POSTERIOR_SUM
from nnet3tools.tensor.operators.numerator import PackedPaths
from nnet3tools.tensor.operators.numerator.packed_paths import pack_paths

_FINITE = "abs({}) <= 1e300"

# objective (_1) and whether it is to be used (_2), minibatches that failed (_3), whose sums were
# not near (_4); by the numerator (_5), the denominator (_6) and its checks (_7, _8) of so many
# sequences (_9); factors of both (_10, _11), and what is taken where it failed (_12)
_judge = tensor.element(
    "product = abs(_7 - _9); posteriors = abs(_8 - _9); "
    "product_near = product <= 0.001 * (abs(_7) + _9); "
    "posteriors_near = posteriors <= 0.01 * (abs(_8) + _9); "
    "fair = (product_near or product <= 2.0) and (posteriors_near or posteriors <= 2.0); "
    f"found = _10 * _5 - _11 * _6; good = fair and {_FINITE.format('found')}; "
    "_1 = where(good, found, _12); _2 = where(good, 1.0, 0.0); "
    "_3 += where(good, 0.0, 1.0); _4 += where(product_near and posteriors_near, 0.0, 1.0)"
)
_l2_factor = tensor.element(f"_1 = where({_FINITE.format('_2')} or _3 == 0.0, _4, 0.0)")
_if_good = tensor.element("_1 = where(_3 != 0.0, _2, 0.0)")
# outputs may be infinite, which a factor of 0 would not mend
_FINISHED = "where(_3 != 0.0, _1, 0.0) - where(_4 != 0.0, _4 * _2, 0.0)"
_finish = tensor.element(f"_1 = {_FINISHED}")
_finish_rows = tensor.element(f"_1 = ({_FINISHED}) * _5")
_finish_xent = tensor.element("_1 = where(_2 != 0.0, _1 * _3, 0.0)")
_finish_xent_rows = tensor.element("_1 = where(_2 != 0.0, _1 * _3 * _4, 0.0)")
_widen = tensor.element("_1 = max(_1, _3); _2 = min(_2, _4)")
_largest = tensor.aggregate("_1", "max", axis=None)
_smallest = tensor.aggregate("_1", "min", axis=None)


@dataclass(frozen=True)
class Buffers:
    """The outputs of one LF-MMI objective and the arrays that receive their derivatives.

    `xent_output` and `xent_deriv` are those of the cross-entropy output (-xent), if there is one.
    """

    output: Array
    deriv: Array
    xent_output: Array | None = None
    xent_deriv: Array | None = None


def facts_of(
    supervision: OutputSupervision, num_pdfs: int, apply_weights: bool
) -> tuple[Facts, list[np.ndarray]]:
    """(sizes and flags, arrays for the device) of a supervision: acceptors, and row weights if any.

    Row weights, one per output row, are left out without `apply_weights`. DataError if the
    supervision does not fit `num_pdfs` or is too large for 32 bits.
    """
    chain, paths = supervision.chain.supervision, supervision.chain.supervision
    try:
        packed = pack_paths(supervision_paths(chain, num_pdfs), chain.num_sequences)
    except ValueError as error:
        raise DataError(f"{supervision.chain.name}: {error}") from None
    weights = supervision.chain.deriv_weights
    has_weights = apply_weights and len(weights) > 0
    arrays = [packed.ints, packed.costs]
    if has_weights:
        arrays.append(np.ascontiguousarray(weights, np.float32)[:, None])
    facts = Facts(
        chain.weight, chain.num_sequences, paths.num_frames, chain.is_e2e, packed.num_parts,
        packed.num_states, packed.num_frames, has_weights,
    )  # fmt: skip
    return facts, arrays


def on_device(facts: Facts, arrays: Sequence[Array]) -> tuple[PackedPaths, Array | None]:
    """(packed acceptors, row weights or None); `arrays`: device copies of those of `facts_of`."""
    ints, costs, *weights = arrays
    paths = PackedPaths(ints, costs, facts.num_parts, facts.num_states, facts.num_frames)
    return paths, weights[0] if facts.has_weights else None


class Tallies:
    """Counts of numerical failures, and the range of outputs, kept on the device until `warn`."""

    def __init__(self, like: Array) -> None:
        """Begin with zero counts on the device of the array `like`."""
        self._numbers = tensor.zeros((4,), like=like, dtype=np.float64)
        self.failed, self.not_near, self._largest, self._smallest = (
            self._numbers[i : i + 1] for i in range(4)
        )

    def widen(self, output: Array) -> None:
        """Extend the range of output values seen so far by those of `output`."""
        _widen(self._largest, self._smallest, _largest(output), _smallest(output))

    def warn(self) -> None:
        """Log warnings about the failures since the last call; waits for the device."""
        failed, not_near, largest, smallest = tensor.to_host(self._numbers).tolist()
        tensor.fill(self._numbers, 0.0)
        if not_near:
            log.warning(
                f"In {not_near:g} minibatches the alpha-beta product or the log-prob-deriv sum of "
                "time 0 was not the number of sequences"
            )
        if failed:
            log.warning(
                f"The objective function of {failed:g} minibatches was not finite or their "
                f"denominator computation failed: it was set to {FAILED_PER_FRAME:g} per frame."
            )
        if largest > LIMIT or smallest < -LIMIT:
            log.warning(
                f"Nnet outputs {smallest:g}, {largest:g} outside the range [-30,30], derivs may be "
                "inaccurate."
            )


class DeviceObjective:
    """The LF-MMI objective, on a GPU, for outputs with one denominator graph."""

    def __init__(
        self, options: ChainTrainingOptions, graph: DenominatorGraph, tallies: Tallies
    ) -> None:
        self._options, self._graph, self._tallies = options, graph, tallies

    def compute(
        self, facts: Facts, paths: PackedPaths, weights: Array | None, buffers: Buffers
    ) -> tuple[Number, Number, Number | None]:
        """The objective, l2 term and cross-entropy, as numbers on the GPU; writes derivatives.

        Values and random draws are those of `compute_chain_objective` on a CPU. `weights` (rows,)
        multiply the derivatives in `buffers`.
        """
        output, deriv = buffers.output, buffers.deriv
        den, num = compute_sums(
            self._options,
            self._graph,
            facts,
            paths,
            output,
            (deriv, buffers.xent_deriv),
            self._tallies.widen,
        )
        objective, good = (_number(output) for _ in range(2))
        per_log_prob = 1.0 if facts.is_e2e else facts.weight
        failed = FAILED_PER_FRAME * facts.weight * facts.num_rows
        checks = (den[k : k + 1] for k in (LOG_PROB, ALPHA_BETA, POSTERIOR_SUM))
        _judge(
            objective, good, self._tallies.failed, self._tallies.not_near, num, *checks,
            float(facts.num_sequences), per_log_prob, facts.weight, failed,
        )  # fmt: skip
        l2 = _number(output)
        scale = facts.weight * self._options.l2_regularize
        _l2_factor(l2, num, float(facts.is_e2e), scale)
        l2_term = tensor.dot(output, output) * Number(l2) * -0.5
        xent = self._finish(buffers, Number(good), Number(l2), weights)
        return Number(objective), l2_term, xent

    def _finish(
        self, buffers: Buffers, good: Number, l2: Number, weights: Array | None
    ) -> Number | None:
        """Zero the derivatives if `good` is 0, else add the l2 term; then multiply by `weights`.

        Returns the cross-entropy; None without cross-entropy output. `l2` is the l2 term's factor.
        """
        xent = None
        if buffers.xent_deriv is not None:
            found = tensor.dot(buffers.xent_output, buffers.xent_deriv)
            assert isinstance(found, Number)
            xent = found.mapped(_if_good, good)
            scale = self._options.xent_regularize
            finish = partial(_finish_xent, buffers.xent_deriv, good, scale)
            if weights is not None:
                finish = partial(_finish_xent_rows, buffers.xent_deriv, good, scale, weights)
            finish()
        if weights is None:
            _finish(buffers.deriv, buffers.output, good, l2)
        else:
            _finish_rows(buffers.deriv, buffers.output, good, l2, weights)
        return xent


def _number(like: Array) -> Array:
    return tensor.empty((1,), like=like, dtype=np.float64)

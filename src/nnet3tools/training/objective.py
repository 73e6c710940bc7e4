"""Objective functions of a network's output and their derivatives (Kaldi's nnet-training.cc).

linear: sum of output * supervision, which for log-softmax outputs and posteriors is the
log-likelihood; quadratic: -0.5 * |supervision - output|^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, UserError
from nnet3tools.io.general_matrix import GeneralMatrix, to_dense
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.components.base import Array

__all__ = ["Objective", "compute_objective"]


class Objective(NamedTuple):
    """Total weight and total objective of a minibatch, and the derivative if it was wanted."""

    weight: float
    total: float
    deriv: Array | None


def compute_objective(
    objective: str, supervision: GeneralMatrix, output: Array, name: str, need_deriv: bool
) -> Objective:
    """Objective of `output` (N, dim) given the supervision of the same shape.

    `objective` is what the output node's config line says, `name` the node, for messages. The
    derivative lies in a buffer that the next call overwrites.
    """
    if supervision.shape[1] != output.shape[1]:
        raise DataError(
            f"nnet versus example output dimension (num-classes) mismatch for '{name}': "
            f"{output.shape[1]} (nnet) vs. {supervision.shape[1]} (egs)"
        )
    if supervision.shape[0] != output.shape[0]:
        raise DataError(
            f"example has {supervision.shape[0]} rows of supervision for the "
            f"{output.shape[0]} rows of '{name}'"
        )
    function = _OBJECTIVES.get(objective)
    if function is None:
        raise UserError(f"output '{name}' has objective={objective}, which is not implemented")
    return function(supervision, output, need_deriv)


def _linear(supervision: GeneralMatrix, output: Array, need_deriv: bool) -> Objective:
    if isinstance(supervision, SparseMatrix):
        return _linear_sparse(supervision, output, need_deriv)
    posterior = tensor.asarray(to_dense(supervision), like=output)
    return Objective(_sum(posterior), tensor.dot(output, posterior), posterior)


def _linear_sparse(supervision: SparseMatrix, output: Array, need_deriv: bool) -> Objective:
    weight = float(supervision.values.sum(dtype=np.float64))
    if not need_deriv and isinstance(output, np.ndarray):
        chosen = output[supervision.row_numbers, supervision.indices]
        return Objective(weight, float(chosen.astype(np.float64) @ supervision.values), None)
    posterior = tensor.asarray(supervision.to_dense(), like=output)
    return Objective(weight, tensor.dot(output, posterior), posterior)


def _quadratic(supervision: GeneralMatrix, output: Array, need_deriv: bool) -> Objective:
    difference = tensor.empty(output.shape, like=output)
    tensor.copy(difference, tensor.asarray(to_dense(supervision), like=output))
    tensor.add(difference, output, alpha=-1.0)
    return Objective(float(len(output)), -0.5 * tensor.dot(difference, difference), difference)


def _sum(matrix: Array) -> float:
    return float(_TOTAL(matrix))


_TOTAL = tensor.aggregate("_1", reduce="sum", axis=None)

_OBJECTIVES: dict[str, Callable[[GeneralMatrix, Array, bool], Objective]] = {
    "linear": _linear,
    "quadratic": _quadratic,
}

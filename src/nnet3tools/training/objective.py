"""Objective functions of a network's output and their derivatives (Kaldi's nnet-training.cc).

`Objective` is the interface to trainers. FrameObjective implements the frame-level objectives:

linear: sum of output * supervision, which for log-softmax outputs and posteriors is the
log-likelihood; quadratic: -0.5 * |supervision - output|^2; expression (not in Kaldi): the sum of
a formula's elements, weighted by rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError, UserError
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.request import IoSpecification
from nnet3tools.io.compressed import CompressedMatrix
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.nnet.nodes import OutputNode
from nnet3tools.tensor.offsets import capacity
from nnet3tools.tensor.operators.sparse_targets import dot_elements, set_elements
from nnet3tools.tensor.registry import device_of
from nnet3tools.training.example import NnetExample, NnetIo


@dataclass(frozen=True)
class Measured:
    """Total weight, objective and regularization term of one output on one minibatch.

    On a device they may be Numbers, whose values are copied to the host when they are read.
    """

    name: str
    weight: Any
    objective: Any
    auxiliary: Any = 0.0


@dataclass(frozen=True)
class Evaluation:
    """A computation, not yet run, of the objective of an output (and of its -xent output).

    `run` returns the objective of each of the outputs `names` and writes `derivs`. `weight` is the
    weight of the outputs, None if only a device knows it. If `is_alike`, `run` does the same work
    for all examples with equal `facts` in the same memory: it can be recorded once and replayed.
    With `has_auxiliary`, `run` also measures a regularization term on a device.
    """

    names: tuple[str, ...]
    derivs: tuple[Array, ...]
    weight: float | None
    run: Callable[[], list[Measured]]
    is_alike: bool
    facts: Hashable = None
    has_auxiliary: bool = False


@dataclass(frozen=True)
class Ahead:
    """What an objective prepared for an example: arrays to send to the device, and host data."""

    arrays: list[Array]
    facts: Hashable


class Objective(ABC):
    """Interface of the objective functions that trainers and diagnostics use."""

    @abstractmethod
    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """The outputs to compute for an example; DataError if the network lacks one.

        `need_deriv` says whether a derivative of the model is needed.
        """

    @abstractmethod
    def evaluations(
        self, nnet: Nnet, example: NnetExample, computer: NnetComputer, need_deriv: bool
    ) -> list[Evaluation]:
        """One evaluation (not yet run) per output, for a `computer` that has run forward.

        With `need_deriv` an evaluation writes derivatives to the computer's `input_buffer` of each
        output.
        """

    def prepare(self, nnet: Nnet, example: NnetExample) -> Ahead | None:
        """Prepare an example ahead of its use on a GPU, in any thread.

        `evaluations` finds the result in the example's `ahead`, with device copies of the arrays.
        DataError if the example does not fit the network.
        """
        return None

    def report(self) -> None:  # noqa: B027 (optional)
        """Log the warnings that an objective on a GPU has delayed; waits for the device."""


class FrameObjective(Objective):
    """The objectives of output nodes with a target per row: linear, quadratic or a formula."""

    def outputs(self, nnet: Nnet, example: NnetExample, need_deriv: bool) -> list[IoSpecification]:
        """IoSpecifications of outputs with targets in the example; `need_deriv` is has_deriv."""
        return [
            IoSpecification(io.name, io.indexes, need_deriv)
            for io, _ in self.targets(nnet, example)
        ]

    def evaluations(
        self, nnet: Nnet, example: NnetExample, computer: NnetComputer, need_deriv: bool
    ) -> list[Evaluation]:
        """One Evaluation, not yet run, for each output with targets."""
        found = []
        for io, node in self.targets(nnet, example):
            output = computer.get_output(io.name)
            deriv = computer.input_buffer(io.name) if need_deriv else None
            weight = host_weight(node.criterion, io.features, len(output))
            run = partial(_measure, node.criterion, io, output, deriv)
            derivs = () if deriv is None else (deriv,)
            found.append(Evaluation((io.name,), derivs, weight, run, is_alike=True))
        return found

    @staticmethod
    def targets(nnet: Nnet, example: NnetExample) -> list[tuple[NnetIo, OutputNode]]:
        """The targets in an example, each with its output node."""
        nodes = [(io, nnet.nodes[nnet.node_index(io.name)]) for io in example.io]
        return [(io, node) for io, node in nodes if isinstance(node, OutputNode)]


def _measure(criterion: str, io: NnetIo, output: Array, deriv: Array | None) -> list[Measured]:
    weight, total = compute_objective(criterion, io.features, output, io.name, deriv)
    return [Measured(io.name, weight, total)]


@dataclass(frozen=True, eq=False)
class SparseTargets:
    """The elements of a sparse target matrix, on host or device, for the linear objective.

    No element occurs twice. `weight` is the sum of the values.
    """

    rows: Array
    cols: Array
    values: Array
    shape: tuple[int, int]
    weight: float

    @classmethod
    def of(cls, matrix: SparseMatrix) -> SparseTargets:
        """The targets with the elements of `matrix`, on the host."""
        weight = float(matrix.values.sum(dtype=float))
        return cls(matrix.row_numbers, matrix.indices, matrix.values, matrix.shape, weight)

    def padded(self) -> list[np.ndarray]:
        """`values`, `rows` and `cols`, padded to a round length by elements in row -1.

        Minibatches with slightly different numbers of elements then have arrays of the same sizes.
        """
        rest = (0, capacity(len(self.rows)) - len(self.rows))
        return [
            np.pad(self.values, rest),
            np.pad(np.asarray(self.rows, np.int32), rest, constant_values=-1),
            np.pad(np.asarray(self.cols, np.int32), rest),
        ]


Supervision = GeneralMatrix | SparseTargets | Array
"""Supervision of an example, or the same prepared (running.py): dense, or SparseTargets."""


def compute_objective(
    objective: str, supervision: Supervision, output: Array, name: str, deriv: Array | None = None
) -> tuple[float, float]:
    """Total weight and total objective of `output` (N, dim) given supervision of the same shape.

    `objective` is linear, quadratic or expression=FORMULA, as in the output node's config line
    (OutputNode.criterion); `name` is the node's name for messages. The derivative is written to
    `deriv` (N, dim), if given. On a device the total, and the weight of dense targets, are Numbers,
    which stay on the device until their value is read.
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
    kind, _, formula = objective.partition("=")
    if kind == "expression":
        return _expression(formula, supervision, output, deriv)
    if (function := _OBJECTIVES.get(objective)) is None:
        raise UserError(f"output '{name}' has objective={objective}, which is not implemented")
    return function(supervision, output, deriv)


def host_weight(objective: str, supervision: Supervision, num_rows: int) -> float | None:
    """The total weight of an output's supervision; None for dense targets of a linear objective.

    Only the device knows the weight of such targets.
    """
    if objective != "linear":
        return float(num_rows)
    if isinstance(supervision, SparseMatrix):
        supervision = SparseTargets.of(supervision)
    return supervision.weight if isinstance(supervision, SparseTargets) else None


def _dense(supervision: Supervision, like: Array) -> Array:
    """The supervision as a dense array on the device of the array `like`."""
    if isinstance(supervision, SparseTargets):
        raise ProgramError("targets for another objective were prepared as sparse ones")
    if isinstance(supervision, (CompressedMatrix, SparseMatrix)):
        supervision = supervision.to_dense()
    elif device_of(supervision) != "numpy":
        return supervision
    return tensor.asarray(supervision, like=like, dtype=np.float32)


def _linear(supervision: Supervision, output: Array, deriv: Array | None) -> tuple[float, float]:
    if isinstance(supervision, SparseMatrix):
        supervision = SparseTargets.of(supervision)
    if isinstance(supervision, SparseTargets):
        elements = supervision.rows, supervision.cols, supervision.values
        if deriv is not None:
            set_elements(deriv, *elements)
        return supervision.weight, dot_elements(output, *elements)
    posterior = _dense(supervision, output)
    if deriv is not None:
        tensor.copy(deriv, posterior)
    weight = _total(posterior)
    assert weight is not None
    return weight, tensor.dot(output, posterior)


def _quadratic(supervision: Supervision, output: Array, deriv: Array | None) -> tuple[float, float]:
    target = _dense(supervision, output)
    if deriv is None:
        deriv = tensor.empty(output.shape, like=output)
    tensor.copy(deriv, target)
    tensor.add(deriv, output, alpha=-1.0)
    return float(len(output)), -0.5 * tensor.dot(deriv, deriv)


def _expression(
    formula: str, supervision: Supervision, output: Array, deriv: Array | None
) -> tuple[float, float]:
    from nnet3tools.expression.objective import evaluate_objective  # seldom needed, slow to import

    target = _dense(supervision, output)
    return float(len(output)), evaluate_objective(formula, target, output, deriv)


_total = tensor.aggregate("_1", reduce="sum", axis=None)

_OBJECTIVES: dict[str, Callable[[Supervision, Array, Array | None], tuple[float, float]]] = {
    "linear": _linear,
    "quadratic": _quadratic,
}

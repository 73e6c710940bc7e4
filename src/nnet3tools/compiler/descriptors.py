"""Commands for descriptors: sums of rows forward, and their derivatives backward.

Kaldi's Compiler::CompileForwardSumDescriptor, CompileBackwardSumDescriptor and what they call
(nnet-compile.cc). Matrices start out zero, so that everything is an addition; the optimizer turns
what it can into copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nnet3tools.compiler.locations import (
    Column,
    push_left,
    row_runs,
    split_backward,
    split_locations,
)
from nnet3tools.compiler.node_facts import PartFacts
from nnet3tools.compiler.step_info import Locations, StepInfo
from nnet3tools.graph.tables import is_increasing
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    MatrixAdd,
    SetConst,
)
from nnet3tools.program.computation import Computation

__all__ = ["DescriptorCompiler"]


class DescriptorCompiler:
    """Makes the commands of descriptor steps; index lists go into the program's tables."""

    def __init__(self, infos: Sequence[StepInfo], computation: Computation) -> None:
        self._computation = computation
        # The last entry, -1, is for step -1.
        self._value_of = np.array([*(info.value for info in infos), -1], np.int32)
        self._deriv_of = np.array([*(info.deriv or -1 for info in infos), -1], np.int32)
        self._node_of = np.array([*(info.step.node for info in infos), -1], np.int32)

    def forward(self, info: StepInfo) -> Iterator[Command]:
        """Commands that compute the value of a descriptor step."""
        for part, value, locations in zip(
            info.facts.parts, info.value_parts, info.locations, strict=True
        ):
            if part.constant != 0.0:
                yield SetConst(value, part.constant)
            for alpha, steps, rows in self._by_scale(part, locations):
                submatrices, rows = push_left(self._value_of[steps], rows)
                for column in split_locations(submatrices, rows):
                    yield self._forward_column(value, alpha, column)

    def backward(self, info: StepInfo) -> Iterator[Command]:
        """Commands that add the derivative of a descriptor step to those of its inputs."""
        for part, deriv, locations in zip(
            info.facts.parts, info.deriv_parts, info.locations, strict=True
        ):
            for alpha, steps, rows in self._by_scale(part, locations):
                submatrices, rows = push_left(self._deriv_of[steps], rows)
                for column in split_backward(submatrices, rows):
                    yield self._backward_column(deriv, alpha, column)

    def _by_scale(
        self, part: PartFacts, locations: Locations
    ) -> Iterator[tuple[float, IntArray, IntArray]]:
        """The terms that have each scale: (scale, steps, rows)."""
        if len(part.nodes_of_scale) == 1:
            yield part.nodes_of_scale[0][0], locations.steps, locations.rows
            return
        nodes = self._node_of[locations.steps]
        for scale, of_scale in part.nodes_of_scale:
            steps = np.where(np.isin(nodes, list(of_scale)), locations.steps, np.int32(-1))
            yield scale, steps, locations.rows

    def _num_rows(self, submatrix: int) -> int:
        return self._computation.submatrices[submatrix].num_rows

    def _forward_column(self, value: int, alpha: float, column: Column) -> Command:
        computation = self._computation
        if column.submatrix == 0:
            pairs = np.stack([column.submatrices, column.rows], axis=1)
            return AddRowsMulti(value, computation.new_indexes_multi(pairs), alpha)
        if _is_identity(column.rows, self._num_rows(column.submatrix)):
            return MatrixAdd(value, column.submatrix, alpha)
        return AddRows(value, column.submatrix, computation.new_indexes(column.rows), alpha)

    def _backward_column(self, deriv: int, alpha: float, column: Column) -> Command:
        computation = self._computation
        if column.submatrix == 0:
            pairs = np.stack([column.submatrices, column.rows], axis=1)
            return AddToRowsMulti(deriv, computation.new_indexes_multi(pairs), alpha)
        num_rows, rows = self._num_rows(column.submatrix), column.rows
        if _is_identity(rows, num_rows):
            return MatrixAdd(column.submatrix, deriv, alpha)
        places, begins, ends = row_runs(rows)
        if num_rows >= len(rows) and int((ends - begins).max()) == 1:
            reverse = np.full(num_rows, -1, np.int32)
            reverse[places] = begins
            return AddRows(column.submatrix, deriv, computation.new_indexes(reverse), alpha)
        ranges = np.full((num_rows, 2), -1, np.int32)
        ranges[places, 0], ranges[places, 1] = begins, ends
        number = computation.new_indexes_ranges(ranges)
        return AddRowRanges(column.submatrix, deriv, number, alpha)


def _is_identity(rows: IntArray, num_rows: int) -> bool:
    """Whether rows is 0, 1 ... num_rows - 1."""
    return (
        len(rows) == num_rows and rows[0] == 0 and rows[-1] == num_rows - 1 and is_increasing(rows)
    )

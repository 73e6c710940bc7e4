"""Commands for descriptors: sums of rows forward, and their derivatives backward.

Kaldi's Compiler::CompileForwardSumDescriptor, CompileBackwardSumDescriptor and what they call
(nnet-compile.cc). Matrices start from zero, so each command is an addition; the optimizer turns
additions into copies where it can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nnet3tools.compiler.locations import (
    Column,
    push_left,
    reversible_columns,
    row_runs,
    split_locations,
)
from nnet3tools.compiler.step_info import SEVERAL, Constants, Locations, StepInfo
from nnet3tools.graph.computation_graph import is_increasing
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


class _PerStep(NamedTuple):
    """A number for each step, as a list and as an array; index -1 (no step) gives -1."""

    numbers: list[int]
    array: IntArray

    @classmethod
    def of(cls, numbers: Iterable[int]) -> _PerStep:
        listed = [*numbers, -1]
        return cls(listed, np.array(listed, np.int32))


class DescriptorCompiler:
    """Makes the commands that compute descriptors; adds their index lists to the program."""

    def __init__(self, infos: Sequence[StepInfo], computation: Computation) -> None:
        self._computation = computation
        self._values = _PerStep.of(info.value for info in infos)
        self._derivs = _PerStep.of(info.deriv or -1 for info in infos)
        self._nodes = _PerStep.of(info.step.node for info in infos)

    def forward(self, info: StepInfo) -> Iterator[Command]:
        """Commands that compute the value of a descriptor's step (`info.step`) from other nodes."""
        for value, constants, terms in zip(
            info.value_parts, info.constants, info.terms, strict=True
        ):
            for constant in constants:
                yield SetConst(self._rows(value, constant), constant.value)
            for alpha, nodes, locations in terms:
                for column in self._columns(locations, self._values, nodes):
                    if isinstance(column, int):
                        yield MatrixAdd(value, column, alpha)
                    else:
                        yield self._forward_column(value, alpha, column)

    def backward(self, info: StepInfo) -> Iterator[Command]:
        """Commands that add the derivative of a descriptor step to its inputs' derivatives."""
        for deriv, terms in zip(info.deriv_parts, info.terms, strict=True):
            for alpha, nodes, locations in terms:
                for column in self._columns(locations, self._derivs, nodes):
                    if isinstance(column, int):
                        yield MatrixAdd(column, deriv, alpha)
                        continue
                    for reversible in reversible_columns(column):
                        yield self._backward_column(deriv, alpha, reversible)

    def _columns(
        self, locations: Locations, submatrix_of: _PerStep, nodes: frozenset[int] | None
    ) -> Iterable[Column | int]:
        """Split the sum of a descriptor's terms into columns; each becomes one command.

        `locations` has the (step, row) of each term in each row. A column has one location for each
        row; an int is a submatrix, all rows in order. `submatrix_of`: step -> submatrix. Terms of
        nodes not in `nodes` (None: all) are left out.
        """
        if (simple := self._simple_columns(locations, submatrix_of, nodes)) is not None:
            return simple
        steps = locations.steps
        if nodes is not None:
            of_nodes = np.isin(self._nodes.array[steps], list(nodes))
            steps = np.where(of_nodes, steps, np.int32(-1))
        return split_locations(*push_left(submatrix_of.array[steps], locations.rows))

    def _simple_columns(
        self, locations: Locations, submatrix_of: _PerStep, nodes: frozenset[int] | None
    ) -> list[Column | int] | None:
        """The columns of a sum if each of its terms reads the same step in all rows; else None.

        A column is one of the terms in `locations`, a Column or, for a whole submatrix, its number.
        `submatrix_of`: step -> submatrix. Only terms of `nodes` (None: all) count.
        """
        if SEVERAL in locations.step_of_term:
            return None
        terms: dict[int, int] = {}
        for term, step in enumerate(locations.step_of_term):
            submatrix = submatrix_of.numbers[step]
            if submatrix >= 0 and (nodes is None or self._nodes.numbers[step] in nodes):
                if submatrix in terms:
                    return None
                terms[submatrix] = term
        # Kaldi lists them in the order of a hash table, which for a few small numbers is the
        # reverse of that in which they were met.
        return [
            submatrix
            if locations.is_whole[term]
            else Column(
                submatrix,
                np.full(len(locations.rows), submatrix, np.int32),
                locations.rows[:, term],
            )
            for submatrix, term in reversed(terms.items())
        ]

    def _rows(self, submatrix: int, constant: Constants) -> int:
        """The number of the submatrix of those rows of `submatrix` to which `constant` is added."""
        if constant.num_rows == self._num_rows(submatrix):
            return submatrix
        return self._computation.new_submatrix(submatrix, constant.first_row, constant.num_rows)

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
    """Whether `rows` is 0, 1, ... num_rows - 1."""
    return (
        len(rows) == num_rows and rows[0] == 0 and rows[-1] == num_rows - 1 and is_increasing(rows)
    )

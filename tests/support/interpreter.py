"""The plainest way to run a program: what tests of compiler and executor compare with."""

from collections.abc import Iterator

import numpy as np

from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program import commands as c
from nnet3tools.program.computation import Computation


class Interpreter:
    """Each matrix is an array of its own, at first NaN; each command is a loop over rows."""

    def __init__(self, nnet: Nnet, computation: Computation) -> None:
        self.nnet, self.computation = nnet, computation
        self.matrices: dict[int, np.ndarray] = {}
        self.memos: dict[int, object] = {}

    def view(self, submatrix: int) -> np.ndarray | None:
        if submatrix == 0:
            return None
        m, row, rows, col, cols = self.computation.submatrices[submatrix]
        return self.matrices[m][row : row + rows, col : col + cols]

    def run(self, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run forward and backward. `given` maps node names to inputs and output derivatives;
        what comes back maps them to outputs and input derivatives.
        """
        provided = {}
        for command in self.computation.commands:
            match command:
                case c.AcceptInput(submatrix, node):
                    self.allocate(submatrix)
                    self.view(submatrix)[:] = given[self.nnet.node_names[node]]
                case c.ProvideOutput(submatrix, node):
                    provided[self.nnet.node_names[node]] = self.view(submatrix).copy()
                case _:
                    self.execute(command)
        return provided

    def allocate(self, submatrix: int) -> None:
        matrix = self.computation.matrix_of(submatrix)
        assert matrix not in self.matrices
        info = self.computation.matrices[matrix]
        self.matrices[matrix] = np.full((info.num_rows, info.num_cols), np.nan, np.float32)

    def row_pairs(self, one: int, indexes: int) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """(row of submatrix `one`, row of another submatrix, or None) for indexes_multi."""
        for i, (submatrix, row) in enumerate(self.computation.indexes_multi[indexes].tolist()):
            yield self.view(one)[i], None if submatrix < 0 else self.view(submatrix)[row]

    def execute(self, command: c.Command) -> None:
        computation, view = self.computation, self.view
        alpha = np.float32(getattr(command, "alpha", 1.0))
        match command:
            case c.AllocMatrix(submatrix):
                self.allocate(submatrix)
            case c.DeallocMatrix(submatrix):
                del self.matrices[computation.matrix_of(submatrix)]
            case c.SwapMatrix(a, b):
                self.matrices[computation.matrix_of(a)] = self.matrices.pop(
                    computation.matrix_of(b)
                )
            case c.SetConst(submatrix, value):
                view(submatrix)[:] = value
            case c.MatrixCopy(dest, src):
                view(dest)[:] = alpha * view(src)
            case c.MatrixAdd(dest, src):
                view(dest)[:] += alpha * view(src)
            case c.CopyRows(dest, src, indexes):
                for i, row in enumerate(computation.indexes[indexes]):
                    view(dest)[i] = 0 if row < 0 else alpha * view(src)[row]
            case c.AddRows(dest, src, indexes):
                for i, row in enumerate(computation.indexes[indexes]):
                    view(dest)[i] += 0 if row < 0 else alpha * view(src)[row]
            case c.CopyRowsMulti(dest, indexes):
                for own, other in self.row_pairs(dest, indexes):
                    own[:] = 0 if other is None else alpha * other
            case c.AddRowsMulti(dest, indexes):
                for own, other in self.row_pairs(dest, indexes):
                    own += 0 if other is None else alpha * other
            case c.CopyToRowsMulti(src, indexes):
                for own, other in self.row_pairs(src, indexes):
                    if other is not None:
                        other[:] = own
            case c.AddToRowsMulti(src, indexes):
                for own, other in self.row_pairs(src, indexes):
                    if other is not None:
                        other += alpha * own
            case c.AddRowRanges(dest, src, ranges):
                for i, (begin, end) in enumerate(computation.indexes_ranges[ranges]):
                    for row in range(begin, end):
                        view(dest)[i] += alpha * view(src)[row]
            case c.CompressMatrix(submatrix):
                view(submatrix)[:] = np.maximum(np.sign(view(submatrix)), 0)
            case c.Propagate(component, precomputed, in_value, out_value, memo, _):
                indexes = computation.component_precomputed_indexes[precomputed].data
                self.memos[memo] = self.nnet.component(component).propagate(
                    indexes, view(in_value), view(out_value)
                )
            case c.Backprop(component, precomputed, in_value, out_value, out_deriv, in_deriv, memo):
                indexes = computation.component_precomputed_indexes[precomputed].data
                values = view(in_value), view(out_value), view(out_deriv)
                self.nnet.component(component).backprop(
                    BackpropArgs("", indexes, *values, self.memos.get(memo), None, view(in_deriv))
                )
            case c.NoOperationMarker() | c.NoOperationPermanent() | c.DecompressMatrix():
                pass
            case _:
                raise AssertionError(f"the compiler is not expected to make {command}")

"""A plain interpreter of unoptimized programs, for tests of the compiler alone."""

import numpy as np

from nnet3tools.nnet.components.base import BackpropArgs
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program import commands as c
from nnet3tools.program.computation import Computation


class Interpreter:
    """Runs a program command by command on NaN-filled matrices."""

    def __init__(self, nnet: Nnet, computation: Computation) -> None:
        self.nnet, self.computation = nnet, computation
        self.matrices: dict[int, np.ndarray] = {}
        self.memos: dict[int, object] = {}
        self.provided: dict[tuple[int, str], np.ndarray] = {}

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

    def execute(self, command: c.Command) -> None:
        computation, view = self.computation, self.view
        match command:
            case c.AllocMatrix(submatrix):
                self.allocate(submatrix)
            case c.DeallocMatrix(submatrix):
                del self.matrices[computation.matrix_of(submatrix)]
            case c.SetConst(submatrix, value):
                view(submatrix)[:] = value
            case c.MatrixAdd(dest, src, alpha):
                view(dest)[:] += alpha * view(src)
            case c.AddRows(dest, src, indexes, alpha):
                for i, row in enumerate(computation.indexes[indexes]):
                    if row >= 0:
                        view(dest)[i] += alpha * view(src)[row]
            case c.AddRowsMulti(dest, indexes, alpha):
                for i, (submatrix, row) in enumerate(computation.indexes_multi[indexes]):
                    if submatrix >= 0:
                        view(dest)[i] += alpha * view(submatrix)[row]
            case c.AddToRowsMulti(src, indexes, alpha):
                for i, (submatrix, row) in enumerate(computation.indexes_multi[indexes]):
                    if submatrix >= 0:
                        view(submatrix)[row] += alpha * view(src)[i]
            case c.AddRowRanges(dest, src, ranges, alpha):
                for i, (begin, end) in enumerate(computation.indexes_ranges[ranges]):
                    view(dest)[i] += alpha * view(src)[begin:end].sum(axis=0)
            case c.Propagate(component, precomputed, in_value, out_value, memo, _):
                indexes = computation.component_precomputed_indexes[precomputed].data
                self.memos[memo] = self.nnet.component(component).propagate(
                    indexes, view(in_value), view(out_value)
                )
            case c.Backprop(component, precomputed, in_value, out_value, out_deriv, in_deriv, memo):
                indexes = computation.component_precomputed_indexes[precomputed].data
                self.nnet.component(component).backprop(
                    BackpropArgs(
                        "",
                        indexes,
                        view(in_value),
                        view(out_value),
                        view(out_deriv),
                        self.memos.get(memo),
                        None,
                        view(in_deriv),
                    )
                )
            case c.NoOperationMarker() | c.NoOperationPermanent():
                pass
            case _:
                raise AssertionError(f"the compiler is not expected to make {command}")

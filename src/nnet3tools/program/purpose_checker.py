"""Checks of a program against its purpose: its debug information and the request it answers."""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.request import ComputationRequest
from nnet3tools.program.command import Command
from nnet3tools.program.commands import AcceptInput, ProvideOutput
from nnet3tools.program.operand_checker import OperandChecker


class PurposeChecker(OperandChecker):
    """Checks a program against its network and request; ProgramError at the first fault."""

    def check_debug_info(self) -> None:
        """Raise ProgramError unless debug information, if any, covers each matrix and row."""
        debug = self.computation.matrix_debug_info
        if not debug:
            return
        if len(debug) != len(self.computation.matrices):
            self.fail(f"debug information for {len(debug)} of {len(self.computation.matrices)}")
        for m, (info, matrix) in enumerate(zip(debug, self.computation.matrices, strict=True)):
            if m > 0 and not len(info.nodes) == len(info.indexes) == matrix.num_rows:
                self.fail(
                    f"debug information of m{m} has {len(info.nodes)} rows, "
                    f"the matrix {matrix.num_rows}"
                )
        nodes = np.concatenate([info.nodes for info in debug])
        n = np.concatenate([info.indexes[:, 0] for info in debug])
        if len(nodes) and (min(n.min(), nodes.min()) < 0 or nodes.max() >= self.nnet.num_nodes):
            rows = np.cumsum([len(info.nodes) for info in debug])
            bad = np.flatnonzero((n < 0) | (nodes < 0) | (nodes >= self.nnet.num_nodes))[0]
            m = int(np.searchsorted(rows, bad, "right"))
            self.fail(f"debug information of m{m} names what does not exist")
        num_rows = [len(info.nodes) for info in debug]
        cols = np.repeat(self.computation.matrix_sizes()[:, 1], num_rows)
        dims = np.array([self.nnet.dim(node) for node in range(self.nnet.num_nodes)])
        if len(other := np.flatnonzero(dims[nodes] != cols)):
            m = int(np.searchsorted(np.cumsum(num_rows), other[0], "right"))
            node = int(nodes[other[0]])
            self.fail(
                f"m{m} has {cols[other[0]]} columns for node '{self.nnet.node_names[node]}' of "
                f"dimension {dims[node]}: made for another network?"
            )

    def check_request(self, request: ComputationRequest) -> None:
        """Raise ProgramError unless inputs, outputs and derivatives have the request's rows."""
        expected: dict[tuple[type[Command], str], int] = {}
        for io in request.inputs:
            expected[AcceptInput, io.name] = len(io.indexes)
            if io.has_deriv:
                expected[ProvideOutput, io.name] = len(io.indexes)
        for io in request.outputs:
            expected[ProvideOutput, io.name] = len(io.indexes)
            if io.has_deriv:
                expected[AcceptInput, io.name] = len(io.indexes)
        for c, command in enumerate(self.computation.commands):
            if isinstance(command, AcceptInput | ProvideOutput):
                name = self.nnet.node_names[command.node]
                rows = expected.pop((type(command), name), None)
                if rows is None:
                    self.fail("not asked for, or twice", c)
                if rows != self.rows(command.submatrix):
                    self.fail(f"{rows} rows were asked for", c)
        for kind, name in expected:
            what = "accepted" if kind is AcceptInput else "provided"
            self.fail(f"a matrix for node '{name}' is never {what}")

"""Checks of a program's purpose (debug information, request) and of the order of its commands."""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.request import ComputationRequest
from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.program.command import Command
from nnet3tools.program.commands import (
    AcceptInput,
    Backprop,
    BackpropNoModelUpdate,
    NoOperationMarker,
    Propagate,
    ProvideOutput,
)
from nnet3tools.program.operand_checker import OperandChecker

_EXCHANGE = (AcceptInput, ProvideOutput)


class OrderChecker(OperandChecker):
    """Checks debug information, request, and order of commands; ProgramError at the first fault."""

    def check_debug_info(self) -> None:
        """Raise ProgramError unless debug information, if any, covers each matrix and row."""
        debug = self.computation.matrix_debug_info
        if not debug:
            return
        if len(debug) != len(self.computation.matrices):
            self.fail(f"debug information for {len(debug)} of {len(self.computation.matrices)}")
        num_rows = [len(info.nodes) for info in debug]
        sizes = self.computation.matrix_sizes()
        num_indexes = [len(info.indexes) for info in debug]
        if not num_rows[1:] == num_indexes[1:] == sizes[1:, 0].tolist():
            wrong = (sizes[:, 0] != num_rows) | (sizes[:, 0] != num_indexes)
            m = int(np.flatnonzero(wrong[1:])[0]) + 1
            self.fail(f"debug information of m{m} has {num_rows[m]} rows, the matrix {sizes[m, 0]}")
        nodes = np.concatenate([info.nodes for info in debug])
        n = np.concatenate([info.indexes for info in debug])[:, 0]
        if len(nodes) and (min(n.min(), nodes.min()) < 0 or nodes.max() >= self.nnet.num_nodes):
            bad = np.flatnonzero((n < 0) | (nodes < 0) | (nodes >= self.nnet.num_nodes))[0]
            m = int(np.searchsorted(np.cumsum(num_rows), bad, "right"))
            self.fail(f"debug information of m{m} names what does not exist")
        cols = np.repeat(sizes[:, 1], num_rows)
        dims = self.components.node_dims
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
        for c in np.flatnonzero(self.are(*_EXCHANGE)).tolist():
            command = self.computation.commands[c]
            assert isinstance(command, _EXCHANGE)
            name = self.nnet.node_names[command.node]
            if (rows := expected.pop((type(command), name), None)) is None:
                self.fail("not asked for, or twice", c)
            if rows != self.rows(command.submatrix):
                self.fail(f"{rows} rows were asked for", c)
        for kind, name in expected:
            what = "accepted" if kind is AcceptInput else "provided"
            self.fail(f"a matrix for node '{name}' is never {what}")

    def are(self, *classes: type[Command]) -> BoolArray:
        """(commands,) whether each command of the program is of one of `classes`."""
        mask = np.zeros(len(self.computation.commands), np.bool_)
        for cls in classes:
            if (group := self.analysis.groups.get(cls)) is not None:
                mask[group.positions] = True
        return mask

    def check_order(self) -> None:
        """ProgramError unless forward commands precede backward ones, and each memo is used once.

        The forward commands of each segment end with a marker; backward commands follow the last.
        """
        memos: dict[int, int] = {}
        segment, backward = 0, False
        commands = self.computation.commands
        num_segments = int(np.count_nonzero(self.are(NoOperationMarker)))
        ordered = self.are(NoOperationMarker, Propagate, Backprop, BackpropNoModelUpdate)
        for c in np.flatnonzero(ordered).tolist():
            command = commands[c]
            if isinstance(command, NoOperationMarker):
                segment += 1
            elif isinstance(command, Propagate):
                if backward:
                    self.fail("propagation after backpropagation", c)
                if 0 < num_segments == segment:
                    self.fail("propagation after the end of the forward commands", c)
                if command.memo:
                    if command.memo in memos:
                        self.fail(f"memo {command.memo} is made twice", c)
                    memos[command.memo] = c
            elif isinstance(command, Backprop):
                backward = True
                if segment == 0:
                    self.fail("backpropagation before the end of the forward commands", c)
                self._use_memo(c, command, memos)
        if memos:
            memo, c = next(iter(memos.items()))
            self.fail(f"memo {memo} is never used", c)

    def _use_memo(self, c: int, command: Backprop, memos: dict[int, int]) -> None:
        uses = self.components[command.component].uses_memo
        if not command.memo:
            if uses:
                self.fail("the component needs its memo for backprop", c)
            return
        if (made := memos.pop(command.memo, None)) is None:
            self.fail(f"memo {command.memo} was not made, or is used twice", c)
        maker = self.computation.commands[made]
        if not isinstance(maker, Propagate) or maker.component != command.component:
            self.fail(f"memo {command.memo} was made by another component in c{made}", c)

    def check_exchange(self) -> None:
        """ProgramError unless inputs come first and outputs last in each segment.

        The user must not supply or get the same node twice in a segment.
        """
        asked: set[tuple[type[Command], int]] = set()
        worked = provided = -1
        exchanges = self.are(*_EXCHANGE)
        # Only work next to an input or output matters.
        work = np.flatnonzero(self.analysis.touches & ~exchanges)
        after = np.searchsorted(work, np.flatnonzero(exchanges))
        events = exchanges | self.are(NoOperationMarker)
        events[work[after[after < len(work)]]] = True
        events[work[after[after > 0] - 1]] = True
        for c in np.flatnonzero(events).tolist():
            command = self.computation.commands[c]
            if isinstance(command, NoOperationMarker):
                asked.clear()
                worked = provided = -1
            elif isinstance(command, _EXCHANGE):
                key = (type(command), command.node)
                if key in asked:
                    self.fail("the same node twice in one segment", c)
                asked.add(key)
                if isinstance(command, ProvideOutput):
                    provided = c
                elif worked >= 0:
                    self.fail(f"input after c{worked} has worked already", c)
            else:
                worked = c
                if provided >= 0:
                    self.fail(f"work after c{provided} gave an output of the same segment", c)

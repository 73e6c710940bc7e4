"""Debugger: logs what each command changes, as Kaldi's `--computation.debug=true` does."""

from __future__ import annotations

import math
from typing import NamedTuple

from nnet3tools import tensor
from nnet3tools.executor.bound_program import BoundProgram
from nnet3tools.io.log import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.program.commands import Backprop
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.operands import AccessType
from nnet3tools.program.printing import ProgramNames, command_texts, preamble_text


class Magnitudes(NamedTuple):
    """Root mean squares measured before or after one command.

    `written`: of each submatrix that the command writes. `parameters`: of the parameters that it
    may change, None if it changes none.
    """

    written: list[float]
    parameters: float | None


class Debugger:
    """Makes a log line for each command: changes of root mean squares, and time."""

    def __init__(self, program: BoundProgram) -> None:
        self._program = program
        computation, nnet = program.computation, program.nnet
        self._texts = command_texts(computation, nnet)
        self._names = ProgramNames(computation, nnet)
        self._written = written_submatrices(program)
        log(preamble_text(computation, nnet))

    def before(self, c: int) -> Magnitudes:
        """Root mean squares, before command number `c` runs, of the matrices that it will write."""
        written = [root_mean_square(self._program.view(c, s)) for s in self._written[c]]
        return Magnitudes(written, self._parameters(c))

    def after(self, c: int, before: Magnitudes, seconds: float) -> str:
        """The log line of command `c`, which took `seconds`; `before` is what before(c) gave."""
        after = self.before(c)
        changes = [
            f"{self._names.submatrix(s)}: {old:g}->{new:g}"
            for s, old, new in zip(self._written[c], before.written, after.written, strict=True)
        ]
        if after.parameters is not None:
            command = self._program.computation.commands[c]
            assert isinstance(command, Backprop)
            name = self._program.nnet.component_names[command.component]
            changes.append(f"{name}: {before.parameters:g}->{after.parameters:g}")
        return f"{self._texts[c]}\t|\t{' '.join(changes)} \t|\t time: {seconds:g} secs"

    def _parameters(self, c: int) -> float | None:
        command = self._program.computation.commands[c]
        if not isinstance(command, Backprop) or not command.UPDATES:
            return None
        component = self._program.nnet.component(command.component)
        if not isinstance(component, UpdatableComponent):
            return None
        size = max(component.num_parameters, 1)
        return math.sqrt(component.dot_product(component) / size)


def written_submatrices(program: BoundProgram) -> list[list[int]]:
    """For each command of a program, the numbers of the submatrices that it writes."""
    computation, components = program.computation, ComponentTable(program.nnet)
    return [
        [a.submatrix for a in c.accesses(computation, components) if a.type & AccessType.WRITE]
        for c in computation.commands
    ]


def root_mean_square(matrix: Array) -> float:
    """Root mean square of a matrix; 0 for a compressed matrix, as in Kaldi."""
    if not matrix.size or matrix.dtype.kind != "f":
        return 0.0
    return math.sqrt(tensor.dot(matrix, matrix) / matrix.size)

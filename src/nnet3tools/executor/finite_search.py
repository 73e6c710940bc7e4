"""The first command of a program that writes NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.bound_program import BoundProgram
from nnet3tools.executor.debugging import written_submatrices
from nnet3tools.nnet.components.base import Array
from nnet3tools.program.commands import Propagate
from nnet3tools.program.printing import command_text


def is_finite(matrix: Array) -> bool:
    """Whether a matrix contains neither NaN nor infinity."""
    # Checking all elements is only needed if the sum of squares overflows.
    return bool(
        np.isfinite(float(tensor.dot(matrix, matrix))) or np.isfinite(tensor.to_host(matrix)).all()
    )


class FiniteSearch:
    """Finds the first command that writes NaN or infinity."""

    def __init__(self, program: BoundProgram) -> None:
        self._program = program
        self._written = written_submatrices(program)
        self.found: list[str] = []
        """The component of that command, else its text; empty until it is found."""

    def run(self, c: int, step: Callable[[], object]) -> None:
        """Call `step`, the step of command `c`, and check the matrices that it has written."""
        step()
        views = (self._program.binding.view(c, s) for s in self._written[c])
        if not self.found and not all(is_finite(v) for v in views if v.dtype.kind == "f"):
            self.found.append(self._name(c))

    def _name(self, c: int) -> str:
        computation, nnet = self._program.computation, self._program.nnet
        command = computation.commands[c]
        if isinstance(command, Propagate):
            return f"component '{nnet.component_names[command.component]}'"
        return f"the command {command_text(computation, nnet, c)}"

"""FiniteWatch: one warning that names the component where NaN or infinity first appears.

Only if an output has NaN or infinity, the work is done again with a check after each command.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.bound_program import BoundProgram
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.debugging import written_submatrices
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.finite import components_not_finite, quoted
from nnet3tools.program.commands import Propagate
from nnet3tools.program.printing import command_text


def is_finite(matrix: Array) -> bool:
    """Whether a matrix contains neither NaN nor infinity."""
    # Checking all elements is only needed if the sum of squares overflows.
    return bool(
        np.isfinite(float(tensor.dot(matrix, matrix))) or np.isfinite(tensor.to_host(matrix)).all()
    )


class FiniteSearch:
    """Finds the first command of a program that writes NaN or infinity."""

    def __init__(self, program: BoundProgram) -> None:
        self._program = program
        self._written = written_submatrices(program)
        self.found = ""
        """The component of that command, else its text; empty until it is found."""

    def run(self, c: int, step: Callable[[], object]) -> None:
        """Run `step` of command `c`; set `found` to its name if it wrote the first NaN or inf."""
        step()
        views = (self._program.view(c, s) for s in self._written[c])
        if not self.found and not all(is_finite(v) for v in views if v.dtype.kind == "f"):
            self.found = self._name(c)

    def _name(self, c: int) -> str:
        computation, nnet = self._program.computation, self._program.nnet
        command = computation.commands[c]
        if isinstance(command, Propagate):
            return f"component '{nnet.component_names[command.component]}'"
        return f"the command {command_text(computation, nnet, c)}"


class FiniteWatch:
    """Checks outputs; on the first NaN or infinity, logs the command that produced it."""

    def __init__(self) -> None:
        self._has_warned = False

    def look(
        self, what: str, output: Array, computer: NnetComputer, again: Callable[[], object]
    ) -> None:
        """If `output` has NaN or infinity, log the command that wrote it first; warns only once.

        `what` names the output. `again` makes the computer repeat its work from the same inputs.
        """
        if self._has_warned or is_finite(output):
            return
        self._has_warned = True
        search, observer = FiniteSearch(computer.program), computer.observer
        computer.observer = search.run
        try:
            again()
        finally:
            computer.observer = observer
        began = f"; it began at {search.found}" if search.found else ""
        bad = components_not_finite(computer.nnet)
        model = f" (the model holds NaN or infinity in {quoted(bad)})" if bad else ""
        log.warning(f"{what} overflows or is not finite{began}{model}; this is said only once")

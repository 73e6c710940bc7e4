"""Where numbers cease to be finite: one warning that names the component.

Programs look at their outputs; only where these hold NaN or infinity is the work done again, with a
look at what each command wrote.
"""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_search import is_finite
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.finite import components_not_finite, quoted

__all__ = ["FiniteWatch"]


class FiniteWatch:
    """Looks at outputs until one is not finite; then the log says where that began."""

    def __init__(self) -> None:
        self._said = False

    def look(
        self, what: str, output: Array, computer: NnetComputer, again: Callable[[], object]
    ) -> None:
        """Warn, once, if an output of `computer` is not finite.

        `what` names the output; `again` makes the computer do the same work from the same inputs.
        """
        if self._said or is_finite(output):
            return
        self._said = True
        with computer.watching() as first:
            again()
        began = f"; it began at {first[0]}" if first else ""
        bad = components_not_finite(computer.nnet)
        model = f" (the model holds NaN or infinity in {quoted(bad)})" if bad else ""
        log.warning(f"{what} overflows or is not finite{began}{model}; this is said only once")

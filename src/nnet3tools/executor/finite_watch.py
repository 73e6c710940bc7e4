"""FiniteWatch: one warning that names the component where NaN or infinity first appears.

Only if an output has NaN or infinity, the work is done again with a check after each command.
"""

from __future__ import annotations

from collections.abc import Callable

from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_search import is_finite
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.finite import components_not_finite, quoted


class FiniteWatch:
    """Checks outputs until one is not finite, and then logs where NaN or infinity began."""

    def __init__(self) -> None:
        self._has_warned = False

    def look(
        self, what: str, output: Array, computer: NnetComputer, again: Callable[[], object]
    ) -> None:
        """If `output` is the first that is not finite, log a warning that says where this began.

        `what` names the output. `again` lets the computer repeat the work from the same inputs.
        """
        if self._has_warned or is_finite(output):
            return
        self._has_warned = True
        with computer.watching() as first:
            again()
        began = f"; it began at {first[0]}" if first else ""
        bad = components_not_finite(computer.nnet)
        model = f" (the model holds NaN or infinity in {quoted(bad)})" if bad else ""
        log.warning(f"{what} overflows or is not finite{began}{model}; this is said only once")

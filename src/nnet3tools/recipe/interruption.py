"""The line that a training program logs when Ctrl-C or a signal ends it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nnet3tools.io import log


@contextlib.contextmanager
def interruption_noted() -> Iterator[None]:
    """Scope that logs one line, however deeply nested, if Ctrl-C or a signal ends the program."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        if not getattr(error, "is_noted", False):
            log.log("Stopped; the same command goes on after the last finished stage")
            error.is_noted = True  # type: ignore[union-attr]
        raise

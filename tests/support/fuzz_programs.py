"""How a program may end that was given a damaged file."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from support.fuzz_corpus import Outcome, run

__all__ = ["BadEnd", "must_end_well"]

_NONE = re.compile(r"\b(Done|for|Copied|wrote) 0 ")
OUTPUTS = ("out", "out2")


class BadEnd(AssertionError):
    """A program ended as none may: its first argument is the kind."""


def must_end_well(command: Sequence[str], name: str = "") -> Outcome:
    """Run a program whose damaged input is in place; BadEnd if it ends in no decent way.

    Decent is status 0 without an error line, any other status with one of them, or Kaldi's count
    of utterances of which none was left (warnings, status 1). Outputs appear with status 0 only,
    but for empty tables of nothing.
    """
    for output in OUTPUTS:
        Path(output).unlink(missing_ok=True)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always", RuntimeWarning)
        outcome = run(*command)
    if outcome.crash is not None:
        raise outcome.crash
    if "Traceback" in outcome.log:
        raise BadEnd("traceback", outcome.log[-2000:])
    if shown:
        raise BadEnd("warning", f"{shown[0].filename}:{shown[0].lineno}: {shown[0].message}")
    if any("out of memory" in error for error in outcome.errors):
        raise MemoryError(outcome.errors)
    if len(outcome.errors) != (outcome.status != 0) and not _none_left(outcome):
        raise BadEnd(f"{len(outcome.errors)} errors, status {outcome.status}", outcome.log)
    full = [path for path in OUTPUTS if Path(path).exists() and Path(path).stat().st_size]
    if outcome.status != 0 and full:
        raise BadEnd("outputs left", full, outcome.errors)
    return outcome


def _none_left(outcome: Outcome) -> bool:
    """Whether each utterance was warned about and skipped, or none came: Kaldi's programs count."""
    failed = outcome.skipped or _NONE.search(outcome.log)
    return outcome.status == 1 and bool(failed) and not outcome.errors

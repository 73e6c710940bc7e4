"""How a program may end that was given a damaged file."""

import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from support.fuzz_corpus import Outcome, run

_NONE = re.compile(
    r"\b(Done|for|to|over|Copied|copying|aligned|[wW]rote|Converted|Computed|mean of|Applied \D+|"
    r"; processed) 0\b"
)
_MOST_FAILED = re.compile(
    r"processed (\d+) feature files, wrote \d+ examples; (\d+) files had"
    r"|Summed (\d+) matrices, (\d+) with errors"
)
OUTPUTS = ("out", "out2")


class BadEnd(AssertionError):
    """A program ended in a forbidden way; the first argument names the way."""


def must_end_well(command: Sequence[str], name: str) -> Outcome:
    """Run a program whose damaged input is in place; BadEnd if it ends in no decent way.

    Decent is status 0 without an error line, any other status with one of them, or Kaldi's count
    of utterances of which none was left, or of which most failed (warnings, status 1). Outputs
    appear with status 0 only, but for empty tables of nothing, and for what is left of most.
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
    most_failed = _most_failed(outcome)
    counted = most_failed or _none_left(outcome)
    if len(outcome.errors) != (outcome.status != 0) and not counted:
        raise BadEnd(f"{len(outcome.errors)} errors, status {outcome.status}", outcome.log)
    full = [path for path in OUTPUTS if Path(path).exists() and Path(path).stat().st_size]
    if outcome.status != 0 and full and not most_failed:
        raise BadEnd("outputs left", full, outcome.errors)
    return outcome


def _none_left(outcome: Outcome) -> bool:
    """Whether no utterance was left: Kaldi's programs then count them and end with 1 or -1."""
    failed = outcome.skipped or _NONE.search(outcome.log)
    return outcome.status in (1, 255) and bool(failed) and not outcome.errors


def _most_failed(outcome: Outcome) -> bool:
    """Whether a program says so that fails then although it has written the rest, as Kaldi's."""
    if outcome.status != 1 or (found := _MOST_FAILED.search(outcome.log)) is None:
        return False
    done, failed = (int(number) for number in found.groups() if number)
    return done <= failed

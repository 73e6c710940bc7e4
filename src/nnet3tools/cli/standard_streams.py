"""Standard streams that are closed or broken: they change neither what is done nor the status."""

from __future__ import annotations

import io
import os
import sys

__all__ = ["forget_output", "take_standard_streams"]


def take_standard_streams() -> None:
    """Make standard input, output and error usable, whatever the caller left open.

    A closed descriptor is taken, so that no file that is opened later becomes it. As with a closed
    one, reading standard input or writing standard output fails; log lines are dropped. What is
    printed is UTF-8 in every locale, as files are, and bytes that are no UTF-8 stay what they were.
    """
    for number, useless in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            _take(number, useless)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names and keys go out with the bytes they have
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        # Without a buffer: a line that could not be written would be tried again at the end, and
        # Python would exit with status 120.
        raw = io.FileIO(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(
            raw,
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )


def _take(number: int, flags: int) -> None:
    descriptor = os.open(os.devnull, flags)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(number, True)


def forget_output() -> None:
    """Let the interpreter's last flush of standard output go nowhere."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # standard output is no file: nothing to flush

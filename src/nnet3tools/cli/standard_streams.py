"""Handling of closed or broken standard streams, which must not change a program's work."""

import errno
import io
import os
import sys

from nnet3tools.io.checked import NamedFile, check_written


def take_standard_streams() -> None:
    """Make standard input, output and error usable even if the caller closed them.

    A closed descriptor is opened on /dev/null such that no file opened later gets its number.
    Reading standard input, or writing standard output, still fails; log lines are dropped. Output
    is UTF-8 in every locale, and bytes that are not UTF-8 are preserved.
    """
    for number, useless in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError as error:
            if error.errno == errno.EBADF:
                _take(number, useless)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)
    if sys.stdout is None or sys.stdout is sys.__stdout__:
        # PYTHONUNBUFFERED gives a file that forgets what a short write leaves.
        is_direct = getattr(sys.stdout, "write_through", False)
        if sys.stdout is not None:
            sys.stdout.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(NamedFile(1, "wb", "standard output")),
            encoding="utf-8",
            errors="surrogateescape",  # writes names and keys that are no UTF-8 unchanged
            line_buffering=is_direct or os.isatty(1),
        )
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        # Without a buffer: Python would retry a failed write at exit and end with status 120.
        sys.stderr = io.TextIOWrapper(
            NamedFile(2, "wb", "standard error"),
            encoding="utf-8",
            errors="backslashreplace",
            write_through=True,
        )


def flush_output() -> None:
    """Write out the buffer of standard output; OSError if any of its writes failed."""
    sys.stdout.flush()
    check_written(1, "standard output")


def _take(number: int, flags: int) -> None:
    descriptor = os.open(os.devnull, flags)
    if descriptor != number:
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.set_inheritable(number, True)


def forget_output() -> None:
    """Redirect standard output to /dev/null, so that Python's final flush cannot fail."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        pass  # standard output is not a file

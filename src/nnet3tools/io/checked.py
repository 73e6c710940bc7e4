"""Functions for files that report each error of the operating system, with the file's name."""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat
from collections.abc import Callable
from typing import Any

MISTAKES = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors of opening a file that are not the system's, but the user's."""


def _mode(path: str | os.PathLike[str]) -> int | None:
    """The mode of the file or folder at `path`, None if there is none; OSError if it is unknown.

    os.path.exists and Path.is_file (of Python 3.14) are False on any error, such as a disk's.
    """
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):  # `path` may be a command
            return None
        raise


def exists(path: str | os.PathLike[str]) -> bool:
    """Whether there is a file or folder at `path`; OSError if the system cannot tell."""
    return _mode(path) is not None


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether there is a regular file at `path`; OSError if the system cannot tell."""
    mode = _mode(path)
    return mode is not None and stat.S_ISREG(mode)


def matches(pattern: str) -> list[str]:
    """Paths that match `pattern`, whose last part may contain * and ? as in a shell.

    OSError if the folder exists and cannot be listed; glob.glob then finds nothing.
    """
    folder, name = os.path.split(pattern)
    if not exists(folder or "."):
        return []
    names = fnmatch.filter(os.listdir(folder or "."), name)
    return [os.path.join(folder, found) for found in names if found[0] != "." or name[0] == "."]


def check_written(descriptor: int, name: str) -> None:
    """Raise OSError, with the file's `name`, if a write to `descriptor` failed late, as on NFS."""
    try:
        os.close(os.dup(descriptor))
    except OSError as error:
        error.filename = name
        raise


class NamedFile(io.FileIO):
    """An unbuffered binary file whose errors name it, and whose writes are complete.

    `file` is its path, or a descriptor, which stays open; `label` names it instead of the path.
    """

    def __init__(self, file: str | int, mode: str = "rb", label: str = "") -> None:
        super().__init__(file, mode, closefd=isinstance(file, str))
        self.label = label or str(file)

    def _named(self, method: Callable[..., Any], *args: Any) -> Any:
        try:
            return method(self, *args)
        except OSError as error:
            error.filename = self.label
            raise

    def read(self, size: int | None = -1) -> bytes:
        return self._named(io.FileIO.read, size)

    def readinto(self, buffer: Any) -> int:
        return self._named(io.FileIO.readinto, buffer)

    def write(self, data: Any) -> int:
        """Write all of `data`; return its size, or less or None if a non-blocking file is full."""
        view, done = memoryview(data).cast("B"), 0
        while done < len(view) and (count := self._named(io.FileIO.write, view[done:])):
            done += count
        return done if done or not view else None  # type: ignore[return-value]

"""Files that are written whole or not at all.

The bytes go to a file without a name (Linux's O_TMPFILE), which vanishes with its process, however
that ends; where there is no such thing, to `.nnet3tools-<random>.tmp` beside the place, which the
process holds locked. Later runs remove those that nobody holds. A file that cannot be replaced (a
mount, or in a folder that is not writable) is overwritten at the end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO, cast

from nnet3tools.errors import DataError

__all__ = ["prove_writable", "whole_file"]

_DESCRIPTOR = re.compile(r"/dev/fd/([0-9]{1,4})|/proc/self/fd/([0-9]{1,4})|/dev/std(out|err)")
_PREFIX, _SUFFIX = ".nnet3tools-", ".tmp"
_SECONDS_TO_LOCK = 60.0
"""A file younger than this may be one that its process is about to lock."""

_CANNOT_REPLACE = (errno.EBUSY, errno.EPERM, errno.EACCES)
"""What renaming says to a file that is a mount, or somebody else's in a folder like /tmp."""

_swept: set[str] = set()


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A file to write, which appears at `path` when the block ends without an exception.

    Its mode stays what it was. Devices, pipes and this process's own descriptors (/dev/stdout,
    /dev/fd/N) are written as the bytes come. DataError if the place cannot be written.
    """
    if (descriptor := _own_descriptor(path)) is not None:
        sys.stdout.flush()
        with _failures_named(path, "open"):
            file = cast(BinaryIO, os.fdopen(os.dup(descriptor), "wb"))
        with file:
            yield file
        return
    mode = _mode_of(path)
    if mode is not None and not stat.S_ISREG(mode):  # /dev/null, a named pipe: nothing to replace
        with _failures_named(path, "open"):
            file = cast(BinaryIO, open(path, "wb"))
        with file:
            yield file
        return
    target = os.path.realpath(path)
    with contextlib.ExitStack() as stack:
        with _failures_named(path, "open"):
            temporary = _temporary(target, mode is not None)
            stack.callback(temporary.discard)
        with _failures_named(path, "write"):
            yield temporary.file
            temporary.finish(target, mode)


def prove_writable(path: str) -> None:
    """DataError if a file could not be written at `path`: to be asked before a long run."""

    class Proved(Exception):
        """Nothing is to be written yet."""

    mode = _mode_of(path)
    if _own_descriptor(path) is None and (mode is None or stat.S_ISREG(mode)):
        with contextlib.suppress(Proved), whole_file(path):
            raise Proved


@contextlib.contextmanager
def _failures_named(path: str, verb: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        purpose = " for writing" if verb == "open" else ""
        raise DataError(f"cannot {verb} '{path}'{purpose}: {error.strerror}") from None


def _own_descriptor(path: str) -> int | None:
    """The number of the descriptor of this process that a path names."""
    if (match := _DESCRIPTOR.fullmatch(path)) is None:
        return None
    number = match[1] or match[2]
    return int(number) if number else 1 if match[3] == "out" else 2


def _mode_of(path: str) -> int | None:
    """The mode of what is there, None if there is nothing; DataError for an impossible path."""
    with _failures_named(path, "open"):
        try:
            return os.stat(path).st_mode
        except FileNotFoundError:
            if path.endswith("/"):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            return None


def _temporary(target: str, exists: bool) -> _Temporary:
    """Somewhere to write; OSError if `target` cannot be written afterwards."""
    if exists and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    folder = os.path.dirname(target)
    _sweep(folder)
    try:
        return _Beside(folder)
    except OSError as error:
        if exists and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return _Elsewhere()
        raise


def _overwrite(target: str, file: BinaryIO) -> None:
    """Put all that was written to a file into another that is there."""
    import shutil

    file.seek(0)
    with open(target, "wb") as place:
        shutil.copyfileobj(file, place, 1 << 20)


class _Temporary:
    """`file` is written; then `finish` puts its bytes in their place, and `discard` tidies up."""

    file: BinaryIO

    def finish(self, target: str, mode: int | None) -> None:
        """Make what was written the file `target`; OSError if that fails."""
        raise NotImplementedError

    def discard(self) -> None:
        """Close, and remove what is not in its place."""
        with contextlib.suppress(OSError):
            self.file.close()


class _Elsewhere(_Temporary):
    """For a writable file in a folder that is not: the file is overwritten at the end."""

    def __init__(self) -> None:
        import tempfile  # here, as it loads much that is seldom needed

        self.file = cast(BinaryIO, tempfile.TemporaryFile())

    def finish(self, target: str, mode: int | None) -> None:
        _overwrite(target, self.file)


class _Beside(_Temporary):
    """A file in the folder of the place, without a name if there can be such, else locked."""

    def __init__(self, folder: str) -> None:
        self._folder, self._name = folder, ""
        descriptor = _without_name(folder)
        if descriptor is None:
            self._name = self._new_name()
            descriptor = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.file = cast(BinaryIO, os.fdopen(descriptor, "w+b"))

    def _new_name(self) -> str:
        return os.path.join(self._folder, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")

    def finish(self, target: str, mode: int | None) -> None:
        self.file.flush()
        if mode is not None:
            os.fchmod(self.file.fileno(), stat.S_IMODE(mode))
        if not self._name:
            if mode is None and self._linked(target):
                return
            name = self._new_name()
            if not self._linked(name):
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._name = name
        try:
            os.replace(self._name, target)
        except OSError as error:
            if mode is None or error.errno not in _CANNOT_REPLACE:
                raise
            _overwrite(target, self.file)
        else:
            self._name = ""

    def _linked(self, name: str) -> bool:
        """Give the file a name; False if there is something of this name."""
        descriptor = self.file.fileno()
        try:
            # A descriptor of a folder makes Python call linkat, which alone follows /proc's links.
            os.link(_path_of(descriptor), name, src_dir_fd=descriptor)
        except FileExistsError:
            return False
        return True

    def discard(self) -> None:
        super().discard()
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name)


def _path_of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _without_name(folder: str) -> int | None:
    """A new file without a name, which can be given one; None where the system has none."""
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDWR | flag, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise
    if not os.path.exists(_path_of(descriptor)):
        os.close(descriptor)
        return None
    return descriptor


def _sweep(folder: str) -> None:
    """Remove, once for each folder, files that processes left which were killed."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime < _SECONDS_TO_LOCK:
            return
        descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(entry.path)
        finally:
            os.close(descriptor)

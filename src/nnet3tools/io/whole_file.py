"""Files that appear completely or not at all.

The bytes go to a file without a name (Linux's O_TMPFILE), which disappears if its process ends
early. On other systems they go to `.nnet3tools-<random>.tmp` in the same folder, which the process
keeps locked; later runs remove unlocked ones. A file that cannot be replaced (a mount, or a file in
a folder that is not writable) is overwritten at the end.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO, cast

from nnet3tools.errors import failures_named
from nnet3tools.io.checked import check_written, exists

_DESCRIPTOR = r"/dev/fd/([0-9]{1,4})|/proc/self/fd/([0-9]{1,4})|/dev/std(out|err)"
_PREFIX, _SUFFIX = ".nnet3tools-", ".tmp"

_CANNOT_REPLACE = (errno.EBUSY, errno.EPERM, errno.EACCES)
"""Errors of a rename onto a mount or onto another user's file in a folder like /tmp."""

_swept: set[str] = set()


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """Open a file for writing that appears at `path` when the block ends without an exception.

    An existing file keeps its mode. Devices, pipes and this process's own descriptors (/dev/stdout,
    /dev/fd/N) are written directly. DataError if the path cannot be written.
    """
    descriptor = _own_descriptor(path)
    mode = _mode_of(path) if descriptor is None else 0
    if mode is not None and not stat.S_ISREG(mode):  # /dev/null or a named pipe cannot be replaced
        sys.stdout.flush()
        with failures_named(path, "open"):
            file = open(path if descriptor is None else os.dup(descriptor), "wb")
        with failures_named(path, "write", has_other_files=True), file:
            yield cast(BinaryIO, file)
        return
    with contextlib.ExitStack() as stack:
        with failures_named(path, "open"):
            target = os.path.realpath(path, strict=mode is not None)
            temporary = _temporary(target, mode is not None)
            stack.callback(temporary.discard)
        with failures_named(path, "write", has_other_files=True):
            yield temporary.file
        with failures_named(path, "write"):
            temporary.finish(target, mode)


def prove_writable(path: str) -> None:
    """Raise DataError if a file cannot be written at `path`; for use before a long computation."""
    mode = _mode_of(path)
    if _own_descriptor(path) is None and (mode is None or stat.S_ISREG(mode)):
        with failures_named(path, "open"):
            _temporary(os.path.realpath(path), mode is not None).discard()


def _own_descriptor(path: str) -> int | None:
    """The number of the descriptor that a path such as /dev/stdout or /dev/fd/3 names, or None."""
    if not path.startswith(("/dev/", "/proc/")) or not (match := re.fullmatch(_DESCRIPTOR, path)):
        return None
    number = match[1] or match[2]
    return int(number) if number else 1 if match[3] == "out" else 2


def _mode_of(path: str) -> int | None:
    """The mode of an existing file; None if there is no file, DataError for an impossible path."""
    with failures_named(path, "open"):
        try:
            return os.stat(path).st_mode
        except FileNotFoundError:
            if path.endswith("/"):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
            return None


def _temporary(target: str, replaces: bool) -> _Temporary:
    """Open a temporary file that will become `target`; `replaces` says that `target` exists.

    OSError if the target cannot be replaced.
    """
    if replaces:
        os.close(os.open(target, os.O_WRONLY))
    folder = os.path.dirname(target)
    _sweep(folder)
    try:
        return _Beside(folder)
    except OSError as error:
        if replaces and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return _Elsewhere()
        raise


def _overwrite(target: str, file: BinaryIO) -> None:
    """Copy everything written to `file` into the existing file `target`."""
    import shutil

    file.seek(0)
    with open(target, "wb") as place:
        shutil.copyfileobj(file, place, 1 << 20)


class _Temporary:
    """A temporary output: write to `file`, then call `finish` on success and always `discard`."""

    file: BinaryIO

    def finish(self, target: str, mode: int | None) -> None:
        """Turn the written bytes into the file `target`; OSError if that fails.

        `mode` is the permission bits of the file that it replaces, None if it is new.
        """
        raise NotImplementedError

    def discard(self) -> None:
        """Close the file, and remove it unless it became the target."""
        with contextlib.suppress(OSError):
            self.file.close()


class _Elsewhere(_Temporary):
    """A temporary output in the system's temporary folder, for targets in unwritable folders."""

    def __init__(self) -> None:
        import tempfile  # imported late because it is slow and rarely needed

        self.file = cast(BinaryIO, tempfile.TemporaryFile())

    def finish(self, target: str, mode: int | None) -> None:
        _overwrite(target, self.file)


class _Beside(_Temporary):
    """A temporary output in the target's folder: nameless if the system allows it, else locked."""

    def __init__(self, folder: str) -> None:
        self._folder, self._name = folder, ""
        if (descriptor := _without_name(folder)) is not None:
            _lock(descriptor)
        while descriptor is None:
            self._name = self._new_name()
            descriptor = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            # A later run may have taken the file for a left one before it was locked.
            if not _lock(descriptor) or not exists(self._name):
                os.close(descriptor)
                descriptor = None
        self.file = cast(BinaryIO, os.fdopen(descriptor, "w+b"))

    def _new_name(self) -> str:
        return os.path.join(self._folder, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")

    def finish(self, target: str, mode: int | None) -> None:
        self.file.flush()
        check_written(self.file.fileno(), target)
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
        """Give the temporary file a name; False if a file of this name exists."""
        descriptor = self.file.fileno()
        try:
            # With src_dir_fd Python calls linkat, which follows the link in /proc.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
        except FileExistsError:
            return False
        return True

    def discard(self) -> None:
        super().discard()
        if self._name:
            with contextlib.suppress(OSError):
                os.unlink(self._name)


def _lock(descriptor: int) -> bool:
    """Lock a temporary file; False if another process, which is about to remove it, has a lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks, where nothing is removed
        pass
    return True


def _without_name(folder: str) -> int | None:
    """Open a nameless file in `folder`, to be named later; None if the system cannot do so."""
    if (flag := getattr(os, "O_TMPFILE", None)) is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDWR | flag, 0o666)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise
    if not os.path.exists(f"/proc/self/fd/{descriptor}"):
        os.close(descriptor)
        return None
    return descriptor


def _sweep(folder: str) -> None:
    """Remove temporary files that killed processes left in a folder, once per folder."""
    if folder in _swept:
        return
    _swept.add(folder)
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(entry.path)
        finally:
            os.close(descriptor)

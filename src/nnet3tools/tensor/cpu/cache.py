"""The cache of compiled kernels and of compiled programs: folders that no other user can write.

A library is code that this process runs. It is loaded only if the file, its folder and all parents
belong to this user or root and no other user can write them. If there is no such folder, libraries
are in a private temporary folder of the process. The same holds for programs of matrix commands.
"""

from __future__ import annotations

import contextlib
import os
import stat
from contextlib import AbstractContextManager

from nnet3tools.digests import sha256
from nnet3tools.io import log

_VARIABLE = "NNET3TOOLS_CACHE"
_DIGEST = sha256().digest_size


def cache_folder(name: str = "kernels") -> str | None:
    """The folder `name` of the cache, created if necessary; None if it cannot be trusted."""
    if (folder := _wanted(name)) is None:
        return None
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        log.vlog(1, f"compiled {name} are not kept: {folder}: {error.strerror}")
        return None
    if not is_trusted(folder) or not os.access(folder, os.W_OK | os.X_OK):
        log.vlog(1, f"compiled {name} are not kept: another user can write {folder}")
        return None
    return folder


def _wanted(name: str) -> str | None:
    """The path of the folder `name` of the user's cache; None if there is no home to hold it."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if given := os.environ.get(_VARIABLE):
        with contextlib.suppress(OSError):  # a working directory that is gone
            return os.path.join(os.path.abspath(given), name)
        return None
    root = base if os.path.isabs(base) else os.path.expanduser("~/.cache")
    return os.path.join(root, "nnet3tools", name) if os.path.isabs(root) else None


def is_trusted(path: str) -> bool:
    """Whether no user except this one and root can have written a file or folder."""
    try:
        found, folder = os.lstat(path), os.path.realpath(path, strict=True)
        if stat.S_ISLNK(found.st_mode) or not _only_ours(found, False):
            return False
        while (parent := os.path.dirname(folder)) != folder:
            if not _only_ours(os.stat(parent), True):
                return False
            folder = parent
    except OSError:
        return False
    return True


def _only_ours(found: os.stat_result, is_parent: bool) -> bool:
    owner = found.st_uid in (os.geteuid(), 0)
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # other users can add files to a sticky folder (/tmp), but not replace this user's
    return owner and (not others or (is_parent and bool(found.st_mode & stat.S_ISVTX)))


def private_folder() -> AbstractContextManager[str]:
    """A new folder that only this user can read; it is removed after the `with` block."""
    import tempfile  # 10 ms of a start that compiles nothing

    return tempfile.TemporaryDirectory(prefix="nnet3-kernels-", ignore_cleanup_errors=True)


def open_kept(path: str) -> tuple[int, bytes] | None:
    """Open a file of the cache; returns its descriptor and content, or None for one not to be used.

    No other user can have written the file, and it ends with the digest of all bytes before. Both
    are checked through the descriptor, so that no other file can take the path's place afterwards.
    """
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and _only_ours(found, False):
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read()
            if sha256(data[:-_DIGEST]).digest() == data[-_DIGEST:]:
                return descriptor, data[:-_DIGEST]
        os.close(descriptor)
    return None


def publish(data: bytes, target: str) -> bool:
    """Write `data` and its digest to the path `target` atomically; returns whether that worked."""
    temporary = f"{target}.{os.getpid()}.new"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data + sha256(data).digest())
        os.replace(temporary, target)
    except OSError as error:
        log.vlog(1, f"what was compiled is not kept: {target}: {error.strerror}")
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True

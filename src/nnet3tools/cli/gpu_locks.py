"""Locks by which the jobs of one user, started together, spread over the GPUs of a machine.

A job that has chosen a GPU holds a lock on one of its files, `UUID.0` if it is the first job there,
`UUID.1` if the second, and so on. The kernel gives locks back when a process ends, however it does.
Nobody waits for a lock: they only order the choice.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from nnet3tools.io import log

__all__ = ["Lock", "claims"]

_FOLDER = "/tmp/nnet3tools-gpus-{user}"
"""Not $TMPDIR, which grid engines set to another folder for each job."""
_MOST_JOBS = 64
"""Jobs on one GPU that still spread."""


class Lock:
    """One of a GPU's places, ours until it is released or the process ends."""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others have the place."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def claims(keys: Sequence[str]) -> Iterator[tuple[int, Lock]]:
    """(index of a key, lock on a place there), each key once: those with fewest jobs first.

    Of two with as many jobs the earlier in `keys` comes first. The lock is the caller's, who
    releases it if the GPU turns out not to be usable.
    """
    left = list(range(len(keys)))
    folder = _folder()
    for place in range(_MOST_JOBS if folder is not None else 0):
        for index in list(left):
            lock = _try_lock(f"{folder}/{keys[index]}.{place}")
            if lock is not None:
                left.remove(index)
                yield index, lock
    for index in left:
        yield index, Lock()


def _folder() -> Path | None:
    """The user's folder, made if need be; None where it is not theirs alone."""
    folder = Path(_FOLDER.format(user=os.geteuid()))
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        log.vlog(1, f"no locks of GPUs: {error}")
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        log.warning(f"{folder} is not this user's own folder: GPUs are chosen without locks")
        return None
    return folder


def _try_lock(path: str) -> Lock | None:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        log.vlog(1, f"no lock of a GPU: {error}")
        return Lock()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return Lock(descriptor)

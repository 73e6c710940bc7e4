"""Locks that spread the jobs of a user over the GPUs of a machine.

A job holds a lock on a file of the GPU that it uses: `UUID.0` for the first job, `UUID.1` for the
second, and so on. The kernel releases a lock when the process ends. Jobs never wait for a lock;
locks only count the jobs on each GPU.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence

from nnet3tools.io import log

_FOLDER = "/tmp/nnet3tools-gpus-{user}"
"""Not in $TMPDIR, which grid engines set to another folder for each job."""
_MOST_JOBS = 64
"""Largest number of jobs per GPU that are counted."""


class Lock:
    """A lock on a file that stands for a job on a GPU; held until released or the process ends."""

    def __init__(self, descriptor: int = -1) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def claims(keys: Sequence[str]) -> Iterator[tuple[int, Lock]]:
    """Yield (index of a GPU, lock held on it) for each GPU, those with the fewest jobs first.

    `keys` name the GPUs; GPUs with equally many jobs keep this order. The caller releases the lock
    if the GPU is not usable.
    """
    left = list(range(len(keys)))
    folder = _folder()
    for place in range(_MOST_JOBS if folder is not None else 0):
        for index in list(left):
            if (lock := _try_lock(f"{folder}/{keys[index]}.{place}")) is not None:
                left.remove(index)
                yield index, lock
    for index in left:
        yield index, Lock()


def _folder() -> str | None:
    """The user's folder of lock files, created if missing; None if other users may write to it."""
    folder = _FOLDER.format(user=os.geteuid())
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        found = os.lstat(folder)
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

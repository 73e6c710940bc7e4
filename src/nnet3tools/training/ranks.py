"""Ranks: processes of one machine that train a model together.

Sockets connect rank 0 with the others. The kernel closes them when a process ends in whatever way,
so that all others notice. Arrays are exchanged in shared memory that has no name: nothing is left
over when processes are killed, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import UserError
from nnet3tools.io import log


class LostRankError(UserError):
    """Another process of the training has ended early; its own message tells why."""

    def __init__(self) -> None:
        super().__init__("another process of this training has ended early, so this one ends, too")


class Ranks:
    """This process's connections to the other ranks.

    Each method that communicates must be called by all ranks, in the same order.
    """

    def __init__(self, rank: int, others: Sequence[Connection], size: int) -> None:
        """Store connections of rank 0 to the others in order, or of another rank to rank 0."""
        self.rank, self.size, self._others = rank, size, others
        self.waits_for_gpus = True

    def gather(self, value: Any = None) -> list[Any]:
        """The values that all ranks gave in this call, in order of ranks.

        No rank gets the values before all have given theirs. LostRankError if one has ended.
        """
        try:
            if self.rank:
                self._others[0].send(value)
                return list(self._others[0].recv())
            values = [value, *(other.recv() for other in self._others)]
            for other in self._others:
                other.send(values)
        except (EOFError, OSError):
            for other in self._others:
                other.close()
            raise LostRankError from None
        return values

    def shared(self, num_columns: int) -> np.ndarray:
        """A float32 matrix of zeros in memory that all ranks share, with a row for each rank.

        UserError if there is not enough memory.
        """
        num_bytes = 4 * self.size * max(num_columns, 1)
        name, own = "", os.memfd_create("nnet3tools")
        with open(own, "r+b"):
            if self.rank == 0:
                try:
                    os.posix_fallocate(own, 0, num_bytes)
                except OSError as error:
                    raise UserError(
                        f"{self.size} processes need {num_bytes / 2**20:.1f} MB of shared memory: "
                        f"{error.strerror}"
                    ) from None
                name = f"/proc/{os.getpid()}/fd/{own}"
            with open(self.gather(name)[0], "r+b") as shared:
                memory = mmap.mmap(shared.fileno(), num_bytes)
            self.gather()  # rank 0 keeps the name until all have opened it
        return np.frombuffer(memory, np.float32).reshape(self.size, -1)[:, :num_columns]

    def end_with_others(self) -> None:
        """End this process, with an error line, if another rank ends; runs in a separate thread.

        The main thread may be waiting for a sum over GPUs, which then never ends. Returns when
        `waits_for_gpus` has become false.
        """
        poll = select.poll()
        for other in self._others:
            poll.register(other.fileno(), select.POLLRDHUP)
        while self.waits_for_gpus:
            if poll.poll(100) and self.waits_for_gpus:
                log.error_line(str(LostRankError()))
                os._exit(255)


@contextlib.contextmanager
def met_at(path: str, rank: int, size: int) -> Iterator[Ranks]:
    """Scope with the Ranks of processes that were started apart and are given the same file name.

    Rank 0 makes the file, a socket, and removes it when all ranks are connected. A process that was
    started again after a failure takes the place of the failed one.
    """
    folder = os.open(Path(path).absolute().parent, os.O_RDONLY)
    address = f"/proc/self/fd/{folder}/{Path(path).name}"  # an address has 107 bytes at most
    try:
        others = _connected(address, rank) if rank else _accepted(address, size)
    finally:
        os.close(folder)
    try:
        yield Ranks(rank, others, size)
    finally:
        for other in others:
            other.close()


def _accepted(address: str, size: int) -> list[Connection]:
    """Rank 0's connections to ranks 1 to `size` - 1, in order, at the Unix socket `address`."""
    Path(address).unlink(missing_ok=True)
    connections = dict[int, Connection]()
    mask = os.umask(0o177)  # only processes of the same user may connect
    try:
        listener = Listener(address, "AF_UNIX", size)
    finally:
        os.umask(mask)
    with listener:
        while len(connections) < size - 1:
            connection = listener.accept()
            with contextlib.suppress(EOFError, OSError):
                connections[connection.recv()] = connection
    for connection in connections.values():
        with contextlib.suppress(OSError):
            connection.send("all are connected")
    return [connections[rank] for rank in sorted(connections)]


def _connected(address: str, rank: int) -> list[Connection]:
    """Wait for rank 0 at the Unix socket `address`; a list with this rank's connection to it."""
    while True:
        with contextlib.suppress(EOFError, OSError):  # no rank 0, or it ended early
            connection = Client(address, "AF_UNIX")
            connection.send(rank)
            connection.recv()
            return [connection]
        time.sleep(0.02)

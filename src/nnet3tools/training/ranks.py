"""Ranks: processes of one machine that train a model together.

Sockets connect rank 0 with the others. The kernel closes them when a process ends in whatever way,
so that all others notice. Arrays are exchanged in shared memory that has no name: nothing is left
over when processes are killed, and the size of /dev/shm does not matter.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import UserError
from nnet3tools.io import log

_MOST_SECONDS = 3600.0
"""The longest time that ranks wait for others to start, which may first read other data."""
_LENGTH = 8


class LostRankError(UserError):
    """Another process of the training has ended early; its own message tells why."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"process {rank} of this training has ended early, so this one ends, too")
        self.rank = rank


class Ranks:
    """This process's connections to the other ranks.

    Each method that communicates must be called by all ranks, in the same order.
    """

    def __init__(self, rank: int, size: int, sockets: Sequence[socket.socket]) -> None:
        """Rank 0 has a socket for each other rank, in order; the others have one for rank 0."""
        self.rank, self.size, self._sockets = rank, size, tuple(sockets)
        self.waits_for_gpus = True

    def close(self) -> None:
        """Close the connections; ranks that still communicate take this process for lost."""
        for one in self._sockets:
            one.close()

    def end_with_others(self) -> None:
        """End this process, with an error line, if another ends; for a thread beside a GPU.

        The process may be waiting for a sum over GPUs, which then never ends. Does nothing any more
        once `waits_for_gpus` is false.
        """
        poll = select.poll()
        for one in self._sockets:
            poll.register(one, select.POLLRDHUP)
        places = [one.fileno() for one in self._sockets]
        while self.waits_for_gpus:
            found = poll.poll(100)
            if found and self.waits_for_gpus:
                log.error_line(
                    str(LostRankError(0 if self.rank else places.index(found[0][0]) + 1))
                )
                os._exit(255)

    def gather(self, value: Any = None) -> list[Any]:
        """The values, of JSON's types, that all ranks gave in this call, in order of ranks.

        No rank gets the values before all have given theirs. LostRankError if one has ended.
        """
        if self.rank:
            self._send(0, value)
            found = self._receive(0)
            if isinstance(found, int):
                raise LostRankError(found)
            return list(found)
        try:
            values = [value, *(self._receive(i) for i in range(self.size - 1))]
            for i in range(self.size - 1):
                self._send(i, values)
        except LostRankError as error:
            for i in range(self.size - 1):
                with contextlib.suppress(LostRankError):
                    self._send(i, error.rank)
            raise
        return values

    def shared(self, num_columns: int) -> np.ndarray:
        """A float32 matrix of zeros in memory that all ranks share, with a row for each rank.

        UserError if there is not enough memory.
        """
        num_bytes = 4 * self.size * max(num_columns, 1)
        if self.rank == 0:
            descriptor = os.memfd_create("nnet3tools")
            try:
                os.posix_fallocate(descriptor, 0, num_bytes)
            except OSError as error:
                raise UserError(
                    f"{self.size} processes need {num_bytes / 2**20:.1f} MB of shared memory: "
                    f"{os.strerror(error.errno or 0)}"
                ) from None
            for place, one in enumerate(self._sockets):
                with self._lost(place):
                    socket.send_fds(one, [b"m"], [descriptor])
        else:
            descriptor = self._received_file(0)
        memory = mmap.mmap(descriptor, num_bytes)
        os.close(descriptor)
        return np.frombuffer(memory, np.float32).reshape(self.size, -1)[:, :num_columns]

    def collect(self, descriptor: int) -> list[int]:
        """Give a file's descriptor to rank 0, which gets those of all ranks, in order."""
        if self.rank == 0:
            return [descriptor, *(self._received_file(i) for i in range(self.size - 1))]
        with self._lost(0):
            socket.send_fds(self._sockets[0], [b"m"], [descriptor])
        return []

    # -- messages

    @contextlib.contextmanager
    def _lost(self, place: int) -> Iterator[None]:
        try:
            yield
        except (ConnectionError, EOFError):
            raise LostRankError(0 if self.rank else place + 1) from None

    def _send(self, place: int, value: Any) -> None:
        with self._lost(place):
            self._sockets[place].sendall(_framed(value))

    def _receive(self, place: int) -> Any:
        with self._lost(place):
            return _message(self._sockets[place])

    def _received_file(self, place: int) -> int:
        with self._lost(place):
            _, found, _, _ = socket.recv_fds(self._sockets[place], 1, 1)
            if not found:
                raise EOFError
        return found[0]


def _framed(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return len(data).to_bytes(_LENGTH, "little") + data


def _message(source: socket.socket) -> Any:
    """The next message from a socket; EOFError if the other end is closed."""
    length = source.recv(_LENGTH, socket.MSG_WAITALL)
    data = source.recv(size := int.from_bytes(length, "little"), socket.MSG_WAITALL)
    if not length or len(data) < size:
        raise EOFError
    return json.loads(data)


# -- how ranks meet


@contextlib.contextmanager
def met_at(path: str, rank: int, size: int) -> Iterator[Ranks]:
    """Scope with the Ranks of processes that were started apart and are given the same file name.

    Rank 0 makes the file, a socket, and removes it when all have come. A process that was started
    again after a failure takes the place of the failed one.
    """
    folder = os.open(Path(path).absolute().parent, os.O_RDONLY)
    address = f"/proc/self/fd/{folder}/{Path(path).name}"  # an address has 107 bytes at most
    try:
        meet = _accepted if rank == 0 else _connected
        ranks = Ranks(rank, size, meet(address, rank, size))
    except TimeoutError:
        raise UserError(
            f"{path}: not all of {size} processes have come within {_MOST_SECONDS:g} s"
        ) from None
    finally:
        os.close(folder)
    with contextlib.closing(ranks):
        yield ranks


def _accepted(address: str, rank: int, size: int) -> list[socket.socket]:
    Path(address).unlink(missing_ok=True)
    came = dict[int, socket.socket]()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen(size)
        listener.settimeout(_MOST_SECONDS)
        try:
            while len(came) < size - 1:
                one, _ = listener.accept()
                with contextlib.suppress(EOFError, ConnectionError):
                    came[_message(one)] = one
        finally:
            Path(address).unlink(missing_ok=True)
    for one in came.values():
        with contextlib.suppress(ConnectionError):
            one.sendall(_framed("all have come"))
    return [came[other] for other in sorted(came)]


def _connected(address: str, rank: int, size: int) -> list[socket.socket]:
    until = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < until:
        one = socket.socket(socket.AF_UNIX)
        try:
            one.connect(address)
            one.sendall(_framed(rank))
            _message(one)
        except (FileNotFoundError, ConnectionError, EOFError):  # no rank 0, or it ended early
            one.close()
            time.sleep(0.02)
        else:
            return [one]
    raise TimeoutError

"""Options and processes of a training by several ranks on one machine (training/ranks.py)."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.options import OptionGroup, option
from nnet3tools.cli.started_processes import StartedProcesses, adopt_orphans, die_with_parent
from nnet3tools.errors import EmptyError, OptionError, UserError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.training.ranks import Ranks

_SECONDS_TO_END = 2.0
"""Time that the other processes have to notice that one has failed."""


class RankOptions(OptionGroup):
    """Options of programs that train a model in several processes, the ranks."""

    num_workers: int = option(
        1,
        "Number of processes that train on CPUs and average their parameters. Process r (from 0) "
        "takes examples r, r + N and so on, and the seed srand + r",
    )
    num_gpus: int = option(0, "The same for processes with a GPU each; 0: see --use-gpu")
    average_interval: int = option(
        1, "With several processes, minibatches between averages; 0: average only at the end"
    )
    rank: int = option(
        -1,
        "Be only this one (from 0) of the --num-workers or --num-gpus processes, with all given "
        "examples and --srand; the others are started apart with the same --rendezvous",
    )
    rendezvous: str = option("", "With --rank, a file name, at which the processes meet")

    @property
    def size(self) -> int:
        """The number of ranks; 1 for a training in one process."""
        return max(self.num_workers, self.num_gpus)

    @property
    def starts_ranks(self) -> bool:
        """Whether this process starts the ranks, and is not one itself."""
        return self.size > 1 and self.rank < 0

    def check(self, examples: str, use_gpu: str | None) -> None:
        """OptionError if a value is out of range or does not fit others.

        `examples` is an rspecifier and `use_gpu` the value of --use-gpu, if given.
        """
        for name, value, least in (
            ("num-workers", self.num_workers, 1),
            ("num-gpus", self.num_gpus, 0),
            ("average-interval", self.average_interval, 0),
        ):
            if value < least:
                raise OptionError(f"--{name}={value}: expected at least {least}")
        if self.num_workers > 1 and self.num_gpus > 0:
            raise OptionError(
                f"--num-workers={self.num_workers} and --num-gpus={self.num_gpus}: expected one of "
                "them (workers use CPUs)"
            )
        if self.use_gpu is not None and use_gpu not in (None, "optional", self.use_gpu):
            raise OptionError(
                f"--use-gpu={use_gpu} does not go with --num-gpus={self.num_gpus} "
                f"--num-workers={self.num_workers} (which are processes on GPUs and on CPUs)"
            )
        if not -1 <= self.rank < self.size:
            raise OptionError(f"--rank={self.rank}: expected a number below {self.size}")
        if (self.rank >= 0 and self.size > 1) != bool(self.rendezvous):
            raise OptionError("--rank of several processes and --rendezvous need each other")
        from nnet3tools.io.specifiers import parse_rspecifier

        if self.starts_ranks and parse_rspecifier(examples).rxfilename in ("", "-"):
            raise OptionError(
                f"{examples}: {self.size} processes cannot share standard input: expected a file "
                "or a command"
            )

    @property
    def use_gpu(self) -> str | None:
        """The value of --use-gpu in ranks; None: what the user gave."""
        return "yes" if self.num_gpus else "no" if self.num_workers > 1 else None


def run_ranks(size: int, work: Callable[[Ranks], int]) -> int:
    """Call `work` in `size` new processes; returns 0, or the status of the first that fails.

    The processes are copies of this one. If one fails, all end, and the first error is raised here.
    They are killed if this process ends.
    """
    sys.stdout.flush()
    adopt_orphans()
    pairs = [socket.socketpair() for _ in range(size - 1)]
    errors, to_errors = os.pipe()
    status = 255
    running = dict[int, int]()  # rank of each process
    try:
        for rank in range(size):
            if (pid := os.fork()) == 0:
                os.close(errors)
                _be_rank(rank, pairs, to_errors, work)
            running[pid] = rank
        for pair in pairs:
            pair[0].close()
            pair[1].close()
        os.close(to_errors)
        status, reason = _wait(running, size)
    finally:
        if status:
            StartedProcesses().kill()  # also what ranks have started
        for pid in running:
            os.waitpid(pid, 0)
    with open(errors, encoding="utf-8") as file:
        said = file.readline().rstrip("\n")
    if reason or said:
        raise (EmptyError if status == 1 else UserError)(reason or said)
    return status


def _be_rank(
    rank: int,
    pairs: list[tuple[socket.socket, socket.socket]],
    to_errors: int,
    work: Callable[[Ranks], int],
) -> None:
    """Do the work of a rank in a new process, and end the process.

    Rank 0 uses the first of each pair of sockets, rank r the second of pair r - 1.
    """
    from nnet3tools.cli.running import run_program
    from nnet3tools.training.ranks import LostRankError, Ranks

    die_with_parent()
    status = 255
    try:
        sockets = [first for first, _ in pairs] if rank == 0 else [pairs[rank - 1][1]]
        for one in (one for pair in pairs for one in pair if one not in sockets):
            one.close()

        def body(_: list[str]) -> int:
            try:
                return work(Ranks(rank, len(pairs) + 1, sockets))
            except LostRankError:
                return 255  # the lost one, or its parent, says why
            except UserError as error:
                os.write(to_errors, f"{' '.join(str(error).splitlines())}\n".encode())
                return 1 if isinstance(error, EmptyError) else 255

        status = run_program(f"{log.program()}:{rank}" if rank else log.program(), [], body)
    finally:
        os._exit(status)


def _wait(running: dict[int, int], size: int) -> tuple[int, str]:
    """Wait until all processes in `running` have ended, which leave it.

    Returns the status of the first that failed, or 0, and the reason if it was killed.
    """
    status, reason, until = 0, "", 0.0
    while running and not (status and time.monotonic() > until):
        for pid, rank in list(running.items()):
            ended, code = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            del running[pid]
            code = os.waitstatus_to_exitcode(code)
            if code < 0 and not reason:
                status, reason = 255, f"process {rank} of {size} was killed by signal {-code}"
            if code and not status:
                status = code
            if status and not until:
                until = time.monotonic() + _SECONDS_TO_END
        time.sleep(0.01)
    return status, reason


@contextlib.contextmanager
def joined(options: RankOptions) -> Iterator[Ranks | None]:
    """Scope with the Ranks of a process with --rank; None if it trains alone."""
    if options.size == 1 or options.rank < 0:
        yield None
        return
    from nnet3tools.training.ranks import met_at

    with met_at(options.rendezvous, options.rank, options.size) as ranks:
        if options.num_gpus:
            threading.Thread(target=ranks.end_with_others, daemon=True).start()
        yield ranks


def check_gpus(ranks: Ranks, runtime: Any) -> None:
    """UserError unless each rank has a GPU of its own and all are of one kind.

    `runtime` is CuPy's, with the GPU in use.
    """
    number = runtime.getDevice()
    name = runtime.getDeviceProperties(number)["name"].decode()
    found = ranks.gather([name, str(runtime.deviceGetPCIBusId(number))])
    count = len({bus for _, bus in found})
    if count < ranks.size:
        raise UserError(
            f"--num-gpus={ranks.size}: only {count} GPU{'s' * (count > 1)} of this machine can be "
            "used (nvidia-smi lists them, CUDA_VISIBLE_DEVICES selects some)"
        )
    if len(kinds := sorted({name for name, _ in found})) > 1:
        raise UserError(
            f"--num-gpus={ranks.size}: the GPUs are of different kinds ({', '.join(kinds)}): "
            "select GPUs of one kind by CUDA_VISIBLE_DEVICES"
        )

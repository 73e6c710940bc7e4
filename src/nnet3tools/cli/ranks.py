"""Options and processes of a training by several ranks on one machine (training/ranks.py)."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.options import OptionGroup, option
from nnet3tools.cli.started_processes import StartedProcesses, adopt_orphans, die_with_parent
from nnet3tools.errors import EmptyError, OptionError, UserError
from nnet3tools.io import log

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from nnet3tools.training.ranks import Ranks

_MOST = 256
"""The largest number of processes of one training."""
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
        """Whether the program is to start all ranks: there are several, and no --rank."""
        return self.size > 1 and self.rank < 0

    def check(self, examples: str, use_gpu: str | None) -> None:
        """OptionError if a value is out of range or does not fit others.

        `examples` is an rspecifier and `use_gpu` the value of --use-gpu, if given.
        """
        from nnet3tools.io.specifiers import parse_rspecifier

        if min(self.num_workers - 1, self.num_gpus, self.average_interval) < 0 or self.size > _MOST:
            raise OptionError(
                f"--num-workers={self.num_workers} --num-gpus={self.num_gpus} "
                f"--average-interval={self.average_interval}: expected 1 to {_MOST}, 0 to {_MOST}, "
                "and 0 or more"
            )
        refused = ("yes", "wait") if self.num_workers > 1 else ("no",) if self.num_gpus else ()
        if (self.num_workers > 1 and self.num_gpus) or use_gpu in refused:
            raise OptionError(
                f"--num-workers={self.num_workers}, --num-gpus={self.num_gpus} and --use-gpu="
                f"{use_gpu or ''} contradict: expected workers, which use CPUs, or GPUs"
            )
        if not -1 <= self.rank < self.size or (self.rank >= 0) != bool(self.rendezvous):
            raise OptionError(
                f"--rank={self.rank} --rendezvous={self.rendezvous}: expected both or none, and a "
                f"rank below {self.size}"
            )
        if self.starts_ranks and parse_rspecifier(examples).rxfilename in ("", "-"):
            raise OptionError(
                f"{examples}: {self.size} processes cannot share standard input: expected a file "
                "or a command"
            )

    def use_gpu(self, asked: str | None) -> str | None:
        """A rank's value of --use-gpu if the user's is `asked`; None if the user's stays."""
        if self.num_gpus and asked != "wait":
            return "yes"
        return "no" if self.num_workers > 1 else None


def run_ranks(size: int, work: Callable[[Ranks], int]) -> int:
    """Call `work` in `size` new processes, and return the exit status of the program.

    The new processes are copies of this process, and are killed when it ends. If one of them fails,
    the others are ended, too, and this function raises the error of the one that failed first, or
    returns its status if it sent no error.
    """
    from multiprocessing import get_context

    context = get_context("fork")
    adopt_orphans()
    pairs = [context.Pipe() for _ in range(size - 1)]
    errors, to_errors = context.Pipe(duplex=False)
    ranks = [
        context.Process(target=_be_rank, args=(rank, pairs, to_errors, work))
        for rank in range(size)
    ]
    codes: list[int | None] = [None]
    try:
        for process in ranks:
            process.start()
        for end in (to_errors, *chain.from_iterable(pairs)):
            end.close()
        codes = _codes_of(ranks)
    finally:
        if any(code != 0 for code in codes):
            StartedProcesses().kill()  # also what ranks have started
    for rank, code in enumerate(codes):
        if code is not None and code < 0:
            raise UserError(f"process {rank} of {size} was killed by signal {-code}")
    if any(codes) and errors.poll(0):
        with contextlib.suppress(EOFError):
            is_empty, message = errors.recv()
            raise (EmptyError if is_empty else UserError)(message)
    return next((code for code in codes if code), 0)


def _codes_of(ranks: Sequence[BaseProcess]) -> list[int | None]:
    """Wait for processes: their exit codes when all have ended, or a while after the first failure.

    The code of a process that is still running is None.
    """
    from multiprocessing.connection import wait

    until = None
    while None in (codes := [process.exitcode for process in ranks]):
        if until is None and any(codes):
            until = time.monotonic() + _SECONDS_TO_END
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0.0:
            break
        # Only for processes without an exit code above: a wait for an empty list never ends.
        wait(
            [process.sentinel for process, code in zip(ranks, codes, strict=True) if code is None],
            left,
        )
    return codes


def _be_rank(
    rank: int,
    pairs: list[tuple[Connection, Connection]],
    to_errors: Connection,
    work: Callable[[Ranks], int],
) -> None:
    """Call `work` as process number `rank` of a training, and end this new process.

    Rank 0 uses the first end of all `pairs`, rank r the second of pair r - 1; all use `to_errors`.
    """
    from nnet3tools.cli.running import run_program
    from nnet3tools.training.ranks import LostRankError, Ranks

    die_with_parent()
    others = [pairs[rank - 1][1]] if rank else [first for first, _ in pairs]
    for end in chain.from_iterable(pairs):
        if end not in others:
            end.close()

    def body(_: list[str]) -> int:
        try:
            return work(Ranks(rank, others, len(pairs) + 1))
        except LostRankError:
            return 255  # the lost one, or the parent, says why
        except UserError as error:
            to_errors.send((isinstance(error, EmptyError), str(error)))
            return 255

    sys.exit(run_program(f"{log.program()}:{rank}" if rank else log.program(), [], body))


@contextlib.contextmanager
def joined(options: RankOptions) -> Iterator[Ranks | None]:
    """Scope that connects a process with --rank to the others; None if it trains alone."""
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

    `runtime` is cupy.cuda.runtime, whose current device is the rank's GPU.
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

"""Lists of calls, the scratch memory that they work in, and the threads of products.

A call is (function, arguments): a function of NumPy with its output last.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from nnet3tools.number_text import parse_int
from nnet3tools.tensor.arrays import POISON, aligned_bytes

Call = tuple[Callable[..., Any], tuple[Any, ...]]
_Work = Callable[[], Any]
_Result = SimpleQueue[BaseException | None]

REGISTER_BYTES = 1 << 18
"""Size of a scratch register: a second-level cache holds two or three of them, and the third level
is hardly slower."""

_MOST_THREADS = 64

LOCK = threading.RLock()
"""Held while an operator runs: all operators share the scratch registers."""
_registers: dict[int, np.ndarray] = {}
_jobs: SimpleQueue[tuple[Iterator[_Work], _Result]] = SimpleQueue()
"""What the helping threads are to do: an entry for each of those that help with some works."""
_num_helpers = 0


def _default_threads() -> int:
    for name in ("NNET3_NUM_THREADS", "OMP_NUM_THREADS"):
        if number := parse_int(os.environ.get(name, ""), 1):
            return min(number, _MOST_THREADS)
    return min(2, os.cpu_count() or 1)


_num_threads = _default_threads()


def num_threads() -> int:
    """The number of threads that operators may use (NNET3_NUM_THREADS, OMP_NUM_THREADS)."""
    return _num_threads


def register(index: int) -> np.ndarray:
    """Buffer number `index`, REGISTER_BYTES uint8, of the scratch memory that operators share."""
    if (found := _registers.get(index)) is None:
        # from the start of a cache line, or vector loads straddle two
        found = _registers[index] = aligned_bytes(REGISTER_BYTES, 64)[:REGISTER_BYTES]
    return found


def run_calls(calls: Sequence[Call]) -> None:
    """Make the calls in order, without calls of other threads in between."""
    with LOCK, np.errstate(all="ignore"):
        if POISON:
            for raw in _registers.values():
                raw.fill(255)
        for function, arguments in calls:
            function(*arguments)


def _help(jobs: SimpleQueue[tuple[Iterator[_Work], _Result]]) -> None:
    """The loop of a helping thread: take an entry of the queue `jobs`, do its works, report.

    An entry is (iterator over works, queue that gets the exception that a work raised, or None).
    """
    with np.errstate(all="ignore"):
        while True:
            works, result = jobs.get()
            try:
                for work in works:
                    work()
                result.put(None)
            except BaseException as error:
                result.put(error)
            del works, result


def _forget_helpers() -> None:
    """Forget the helping threads, in a process made by fork, which does not have them."""
    global _jobs, _num_helpers
    _jobs, _num_helpers = SimpleQueue(), 0


os.register_at_fork(after_in_child=_forget_helpers)


def run_all(*works: _Work) -> None:
    """Call `works`, each on a thread of its own or on one that has become free."""
    global _num_helpers
    helpers = len(works) - 1
    with LOCK, np.errstate(all="ignore"):
        while _num_helpers < helpers:
            threading.Thread(target=_help, args=(_jobs,), name="nnet3-tensor", daemon=True).start()
            _num_helpers += 1
        # taking from an iterator over a tuple is one step under the interpreter's lock
        left, result = iter(works), _Result()
        for _ in range(helpers):
            _jobs.put((left, result))
        try:
            for work in left:
                work()
        finally:
            errors = [result.get() for _ in range(helpers)]
        for error in errors:
            if error is not None:
                raise error

"""Running lists of calls on one or two threads, and the scratch memory they work in.

A call is (function, arguments): a ufunc with its output last. Tiles are put into groups in a fixed
way that depends on sizes only, each group with scratch registers of its own; a thread takes the
next group when it is done with one. So results do not depend on the number of threads, nor on which
of them was faster.

What two threads gain hangs on the length of the calls: NumPy gives up the interpreter's lock within
a call, and who waits for that lock sleeps and has to be woken (5 us at best on the machine of
benchmarks/README.md). Two threads that make calls of 5 us each are no faster than one; from 20 us
on they hardly disturb each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import POISON

__all__ = ["LOCK", "TILE_BYTES", "Call", "num_threads", "register", "run_calls", "set_num_threads"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]
_Result = SimpleQueue[BaseException | None]

TILE_BYTES = 1 << 18
"""Size of a scratch register. Half of this is as fast on one thread (a second-level cache holds two
or three such tiles, and the third level is hardly slower); on two threads calls should be long."""

_MAX_THREADS = 2

LOCK = threading.RLock()
"""Held while an operator runs: scratch registers are shared by all."""
_registers: dict[tuple[int, int], np.ndarray] = {}
_helper: _Helper | None = None


def _default_threads() -> int:
    for name in ("NNET3_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), _MAX_THREADS)
    return min(_MAX_THREADS, os.cpu_count() or 1)


_num_threads = _default_threads()


def num_threads() -> int:
    """Threads that elementwise operators may use (NNET3_NUM_THREADS, OMP_NUM_THREADS)."""
    return _num_threads


def set_num_threads(count: int) -> None:
    """Change the number of threads; at most 2 are used."""
    global _num_threads
    _num_threads = max(1, min(count, _MAX_THREADS))


def register(group: int, index: int) -> np.ndarray:
    """Scratch register `index` of a group of tiles: TILE_BYTES bytes, shared by all operators."""
    found = _registers.get((group, index))
    if found is None:
        # from the start of a cache line, or vector loads straddle two
        raw = np.empty(TILE_BYTES + 64, np.uint8)
        start = -raw.ctypes.data % 64
        found = _registers[(group, index)] = raw[start : start + TILE_BYTES]
    return found


class _Helper:
    """The second thread: waits for groups of calls to run."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Iterator[Sequence[Call]], _Result]] = SimpleQueue()
        threading.Thread(target=self._work, name="nnet3-tensor", daemon=True).start()

    def start(self, groups: Iterator[Sequence[Call]]) -> _Result:
        """Run groups until the iterator, which others may draw from as well, has no more.

        The queue returned gets one item when the last group taken is done: what it raised, if
        anything.
        """
        result: _Result = SimpleQueue()
        self._jobs.put((groups, result))
        return result

    def _work(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                groups, result = self._jobs.get()
                try:
                    _run_groups(groups)
                    result.put(None)
                except BaseException as error:
                    result.put(error)
                del groups, result


def _forget_helper() -> None:
    """A forked process has no second thread."""
    global _helper
    _helper = None


os.register_at_fork(after_in_child=_forget_helper)


def _run_groups(groups: Iterator[Sequence[Call]]) -> None:
    for calls in groups:
        for function, arguments in calls:
            function(*arguments)


def run_calls(first: Sequence[Call], groups: Sequence[Sequence[Call]]) -> None:
    """Run `first`, then every group; a second thread takes some groups where there are several."""
    global _helper
    # the registers are shared: one operator at a time
    with LOCK, np.errstate(all="ignore"):
        if POISON:
            for raw in _registers.values():
                raw.fill(255)
        for function, arguments in first:
            function(*arguments)
        if len(groups) < 2 or _num_threads < 2:
            _run_groups(iter(groups))
            return
        if _helper is None:
            _helper = _Helper()
        # drawing from an iterator over a list is one step under the interpreter's lock
        left = iter(groups)
        result = _helper.start(left)
        try:
            _run_groups(left)
        finally:
            error = result.get()
        if error is not None:
            raise error

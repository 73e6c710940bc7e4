"""Running lists of calls on one or two threads, and the scratch memory they work in.

A call is (function, arguments): a ufunc with its output last. Tiles are split over threads in a
fixed way that depends on sizes only, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import POISON

__all__ = ["LOCK", "TILE_BYTES", "Call", "num_threads", "register", "run_calls", "set_num_threads"]

Call = tuple[Callable[..., Any], tuple[Any, ...]]

TILE_BYTES = 1 << 17
"""Size of a scratch register: a few of them, with their operands, fit a second-level cache."""

_MAX_THREADS = 2

LOCK = threading.RLock()
"""Held while an operator runs: scratch registers are shared by all."""
_registers: dict[tuple[int, int], np.ndarray] = {}
_pool: ThreadPoolExecutor | None = None


def _default_threads() -> int:
    for name in ("NNET3_NUM_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), _MAX_THREADS)
    return min(_MAX_THREADS, os.cpu_count() or 1)


_num_threads = _default_threads()


def num_threads() -> int:
    """How many threads elementwise operators may use (NNET3_NUM_THREADS, OMP_NUM_THREADS)."""
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


def _run(calls: Sequence[Call]) -> None:
    with np.errstate(all="ignore"):
        for function, arguments in calls:
            function(*arguments)


def run_calls(first: Sequence[Call], groups: Sequence[Sequence[Call]]) -> None:
    """Run `first`, then every group; a second thread takes the second group where there is one."""
    global _pool
    # the registers are shared: one operator at a time
    with LOCK, np.errstate(all="ignore"):
        if POISON:
            for raw in _registers.values():
                raw.fill(255)
        for function, arguments in first:
            function(*arguments)
        if len(groups) > 1 and _num_threads > 1:
            if _pool is None:
                _pool = ThreadPoolExecutor(_MAX_THREADS - 1, thread_name_prefix="nnet3-tensor")
            pending = [_pool.submit(_run, calls) for calls in groups[1:]]
            for function, arguments in groups[0]:
                function(*arguments)
            for future in pending:
                future.result()
        else:
            for calls in groups:
                for function, arguments in calls:
                    function(*arguments)

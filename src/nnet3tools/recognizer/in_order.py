"""Work in several threads, with results in the order in which the work was given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from nnet3tools.errors import OptionError

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
_MOST = 1024
_WAITING_PER_THREAD = 4
"""Results that may wait for an earlier one, in which case other threads go on."""


class InOrder:
    """Does work in `num_threads` threads; passes on results in the order in which it was given."""

    def __init__(self, num_threads: int) -> None:
        """Use `num_threads` threads (1: the caller's); OptionError for less or very many."""
        if not 1 <= num_threads <= _MOST:
            raise OptionError(f"--num-threads={num_threads}: expected 1 to {_MOST}")
        if num_threads > 1:
            from concurrent.futures import ThreadPoolExecutor  # imported late: takes 10 ms
        self._pool = ThreadPoolExecutor(num_threads, "search") if num_threads > 1 else None
        self._most_waiting = _WAITING_PER_THREAD * num_threads
        self._waiting: deque[tuple[Future[Any], Callable[[Callable[[], Any]], None]]] = deque()

    def give(self, work: Callable[[], T], take: Callable[[Callable[[], T]], None]) -> None:
        """Do `work` in a thread; later call `take` with a function that returns its result.

        That function raises the error that `work` has raised, if any. `take` is called in the order
        in which work was given, by `give` or `finish`, in the thread of their caller.
        """
        if self._pool is None:
            take(work)
            return
        self._waiting.append((self._pool.submit(work), take))
        while len(self._waiting) > self._most_waiting or (
            self._waiting and self._waiting[0][0].done()
        ):
            self._take()

    def finish(self) -> None:
        """Wait for all work, and call `take` for each result that has not been passed on yet."""
        while self._waiting:
            self._take()

    def _take(self) -> None:
        future, take = self._waiting.popleft()
        take(future.result)

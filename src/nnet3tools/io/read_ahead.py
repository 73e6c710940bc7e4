"""Reading ahead: a thread produces the next items while the program works on one item."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

_POLL_SECONDS = 0.1
"""Interval in which a waiting thread checks whether the consumer has stopped."""
_PATIENCE_SECONDS = 1.0
"""Time to wait for a thread that still reads, as from a silent pipe; it ends with the program."""


def read_ahead(
    items: Iterator[T], depth: int = 2, ready: Callable[[T], None] | None = None
) -> Iterator[T]:
    """Yield the same items in the same order, with up to `depth` items produced ahead by a thread.

    An exception of `items` is raised here, after the items before it. `ready` is called in the
    consumer's thread with the next item, if it is already there, before an item is yielded. If the
    consumer stops early, the thread stops and `items` (a generator) is closed.
    """
    queued: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(
        target=_produce, args=(items, queued, stopped), name="read-ahead", daemon=True
    )
    thread.start()
    try:
        message = queued.get()
        while True:
            item, error = message
            if error is not None:
                raise error
            if item is None:
                return
            following = _if_there(queued)
            if ready is not None and following is not None and following[0] is not None:
                ready(following[0][0])
            yield item[0]
            message = following or queued.get()
    finally:
        stopped.set()
        thread.join(_PATIENCE_SECONDS)


def _if_there(queued: queue.Queue[tuple[Any, BaseException | None]]) -> Any:
    with contextlib.suppress(queue.Empty):
        return queued.get_nowait()
    return None


def _produce(
    items: Iterator[Any],
    queued: queue.Queue[tuple[Any, BaseException | None]],
    stopped: threading.Event,
) -> None:
    """Queue ((item,), None) per item, then (None, None) or (None, error); ends if `stopped`."""

    def put(message: tuple[Any, BaseException | None]) -> bool:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                queued.put(message, timeout=_POLL_SECONDS)
                return True
        return False

    try:
        for item in items:
            if not put(((item,), None)):
                break
        else:
            put((None, None))
    except BaseException as error:  # the consumer's thread re-raises every exception
        put((None, error))
    finally:
        items.close()  # type: ignore[attr-defined]

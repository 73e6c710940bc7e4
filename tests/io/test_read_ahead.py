"""Reading ahead in a thread: order, errors, early ends."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from nnet3tools.errors import DataError
from nnet3tools.io.read_ahead import read_ahead


def _all_end() -> bool:
    """Whether all reading threads end within 30 s."""
    threads = [t for t in threading.enumerate() if t.name == "read-ahead"]
    for thread in threads:
        thread.join(30)
    return not any(thread.is_alive() for thread in threads)


def test_items_come_in_order_and_the_thread_ends():
    assert list(read_ahead(iter(i for i in range(50)))) == list(range(50))
    assert list(read_ahead(i for i in ())) == []
    assert _all_end()


def test_an_error_comes_after_the_items_before_it():
    def items() -> Iterator[int]:
        yield from range(3)
        raise DataError("the fourth is broken")

    consumer = read_ahead(items(), depth=5)
    assert next(consumer) == 0
    time.sleep(0.05)  # by now the thread has failed already
    assert [next(consumer), next(consumer)] == [1, 2]
    with pytest.raises(DataError, match="the fourth is broken"):
        next(consumer)


def test_no_more_items_are_made_than_may_wait():
    made = []

    def items() -> Iterator[int]:
        for i in range(20):
            made.append(i)
            yield i

    for at, _ in enumerate(read_ahead(items(), depth=2)):
        time.sleep(0.005)
        # the present item, the next one, two in the queue, one that is being read
        assert len(made) <= at + 5


def test_an_early_end_closes_what_was_read_and_ends_the_thread():
    closed = threading.Event()

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    consumer = read_ahead(items())
    next(consumer)
    consumer.close()  # type: ignore[attr-defined]
    assert closed.wait(30)
    assert _all_end()


def test_a_thread_that_still_waits_for_data_does_not_hold_the_program_up():
    release = threading.Event()

    def items() -> Iterator[int]:
        yield 1
        release.wait()
        yield 2

    consumer = read_ahead(items())
    next(consumer)
    start = time.monotonic()
    consumer.close()  # type: ignore[attr-defined]
    assert time.monotonic() - start < 30.0
    release.set()


def test_the_next_item_is_announced_before_the_present_one_is_given_out():
    events: list[tuple[str, int]] = []
    queued = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for i in range(4):
            yield i
            queued[i].set()

    for item in read_ahead(items(), ready=lambda i: events.append(("ready", i))):
        events.append(("got", item))
        assert queued[min(item + 2, 3)].wait(30)  # the next item is ready before it is requested
    got = [e for e in events if e[0] == "got"]
    assert [i for _, i in got] == [0, 1, 2, 3]
    announced = [i for kind, i in events if kind == "ready"]
    assert announced == sorted(set(announced))
    for i in announced:
        assert events.index(("ready", i)) < events.index(("got", i))
    assert {2, 3} <= set(announced)


PROGRAM = """
import sys
from nnet3tools.io.holders import VECTOR
from nnet3tools.io.table import SequentialTableReader
with SequentialTableReader("ark,bg:-", VECTOR) as reader:
    for key, value in reader:
        sys.exit(7)
"""


def test_an_early_end_while_standard_input_is_open_is_no_crash():
    """Python aborts at exit if a thread holds the lock of sys.stdin.buffer."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"a  [ 1 2 ]\nb  [ 3 ]\n")
    process.stdin.flush()
    assert process.wait(120) == 7
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stdin.close()
    process.stderr.close()

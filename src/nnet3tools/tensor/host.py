"""The host's part in work on a device, declared so that a CUDA graph can be replayed around it.

A graph repeats device work only. Code that runs on a device but also decides something on the host,
or counts there, says so:

    if host.decide(lambda: rand_int(0, 1) == 0):     # small and hashable: which work there is to do
        _sum_rows(self.value_sum, out_value, beta=1.0)
    host.act(self._count_call)                       # no influence on what the device does

Elsewhere both just call what they are given. Under a Tape they are noted; who replays the device
work later first calls all of them again, in order, and takes the graph that was captured when the
decisions came out the same (executor/graph_replay.py). They must do no device work themselves, and
what they change on the host the code may look at in decisions only: a first run of a variant comes
after the events that led to it. What
cannot be captured, as making room for statistics at first, calls `not_capturable()` before it.

Numbers that the device works with must be on the device, not in the host's attributes: see
tensor/counter.py for counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from nnet3tools.tensor.recall import current

__all__ = [
    "NotCapturable",
    "Tape",
    "act",
    "decide",
    "is_taped",
    "kept",
    "kept_object",
    "not_capturable",
    "taping",
]

_MOST_RECALLED = 1 << 14
"""Elements of an array that a program keeps from run to run on a host, beside its own memory."""

V = TypeVar("V", bound=Hashable)

Event = Callable[[], Hashable]


class NotCapturable(Exception):
    """What is being captured must run by itself this time; `for_now`: next time it may go."""

    def __init__(self, for_now: bool = False) -> None:
        super().__init__()
        self.for_now = for_now


class Tape:
    """Notes what the host decides and does while device work runs.

    `done` are results of the first events, which are not called again: the work has been begun with
    them before.
    """

    def __init__(
        self,
        done: Sequence[Hashable] = (),
        capturing: bool = False,
        memory: dict[tuple[int, int], Any] | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.values: list[Hashable] = []
        self.capturing = capturing
        self.excused = False
        """Whether something was declared not to be capturable."""
        self._done = done
        self._memory: dict[tuple[int, int], Any] = {} if memory is None else memory
        self.step, self._number = 0, 0

    def begin(self, step: int) -> None:
        """From here on it is this step's work, as `kept` needs to know."""
        self.step, self._number = step, 0

    def perform(self, event: Event) -> Hashable:
        """Call an event, unless that has been done, and note it."""
        place = len(self.events)
        if place < len(self._done):
            value = self._done[place]
        else:
            with _no_notes():  # what an event calls is part of it
                value = event()
        self.events.append(event)
        self.values.append(value)
        return value

    def kept(self, make: Callable[[], Any]) -> Any:
        """The same array whenever the same step asks for it."""
        key = self.step, self._number
        self._number += 1
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]


_tape: Tape | None = None


@contextmanager
def taping(tape: Tape) -> Iterator[Tape]:
    """Note on this tape what happens in the `with` block."""
    global _tape
    before, _tape = _tape, tape
    try:
        yield tape
    finally:
        _tape = before


@contextmanager
def _no_notes() -> Iterator[None]:
    global _tape
    before, _tape = _tape, None
    try:
        yield
    finally:
        _tape = before


def decide(decision: Callable[[], V]) -> V:
    """What the decision says; which device work follows may depend on it."""
    return decision() if _tape is None else cast(V, _tape.perform(decision))


def act(action: Callable[[], object]) -> None:
    """Do something on the host."""
    if _tape is None:
        action()
    else:
        _tape.perform(lambda: _nothing(action()))


def _nothing(_: object) -> None:
    """Whatever an action returns is no decision."""


def is_taped() -> bool:
    """Whether somebody takes notes for replaying this work."""
    return _tape is not None


def kept(shape: int | tuple[int, ...], like: Any = None, dtype: Any = None) -> Any:
    """An undefined array for a memo: a later step, perhaps in another graph, finds it by address.

    Each of a program's steps gets its own arrays, the same ones at each run.
    """
    from nnet3tools.tensor.arrays import empty

    def make() -> Any:
        return empty(shape, like, dtype)

    if _tape is not None:
        return _tape.kept(make)
    recall = current()
    if recall is None or np.prod(shape) > _MOST_RECALLED:
        return make()
    return recall.kept((shape, dtype, type(like), getattr(like, "dtype", None)), make)


def kept_object(make: Callable[[], Any]) -> Any:
    """As `kept`, for memos that are more than an array; made anew if nobody takes notes."""
    return make() if _tape is None else _tape.kept(make)


def not_capturable(for_now: bool = False) -> None:
    """Declare that what follows cannot be in a graph; `for_now`: once done by itself it can."""
    if _tape is not None:
        _tape.excused = True
        if _tape.capturing:
            raise NotCapturable(for_now)

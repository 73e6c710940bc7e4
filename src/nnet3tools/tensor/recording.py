"""Recording what work does the first times, so that it can be done again without its Python.

Code that components and the trainer run calls declared operators as it goes. Under a Recorder each
call is bound once, run, and noted; the list of bound calls, on a GPU captured as a CUDA graph, does
the work again. What the host decides or counts meanwhile is declared where it happens:

    if decide(lambda: rand_int(0, 1) == 0):          # small and hashable: which work there is to do
        _sum_rows(self.value_sum, out_value, beta=1.0)
    act(self._count_call)                            # no influence on what the operators do

Elsewhere both just call what they are given. A replay first calls all events again, in order, and
then does the work recorded for these outcomes (executor/replay.py); so they must do no device work
and depend on none of the same step. What cannot be repeated, as making room for statistics at
first, or looking at results on the host, says `not_capturable()`: it runs as it is each time.

Numbers that depend on data are tensor.number's, in memory; attributes that are plain numbers are
settings, which are part of a recording (tensor/settings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from nnet3tools.tensor.workspace import Workspace, rounded_up

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Call",
    "Event",
    "Memory",
    "NotCapturable",
    "Recorder",
    "act",
    "bound",
    "decide",
    "is_noted",
    "not_capturable",
    "noting",
    "persistent_array",
    "persistent_object",
    "run",
    "without_actions",
]

V = TypeVar("V", bound=Hashable)

Event = Callable[[], Hashable]

Memory = dict[tuple[int, int], Any]
"""What steps were given by `persistent_array`: (step, number) -> object."""


class NotCapturable(Exception):
    """A device cannot capture just now; next time it may be able to."""


class Call:
    """A bound operator as it stands in a recording."""

    __slots__ = ("name", "operands", "run")

    def __init__(self, name: str, operands: Sequence[Any], run: Callable[[], Any]) -> None:
        self.name, self.operands, self.run = name, operands, run

    def __call__(self) -> Any:
        return self.run()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(_shown(operand) for operand in self.operands)})"


def bound(operator: Any, *operands: Any, **options: Any) -> Call:
    """An operator bound to operands, as it is to stand in recordings."""
    values = (*operands, *options.values())
    return Call(operator.name, values, operator.bind(*operands, **options))


def _shown(operand: Any) -> str:
    if hasattr(operand, "dtype"):
        return f"{operand.dtype}[{' x '.join(map(str, operand.shape))}]"
    if isinstance(operand, (list, tuple)):
        return f"[{', '.join(_shown(item) for item in operand)}]"
    return repr(operand)


class Recorder:
    """Notes events, and with a workspace the calls of operators, in a `with` block.

    `done` are results of the first events, which are not called again: they have led here.
    """

    def __init__(
        self,
        done: Sequence[Hashable] = (),
        memory: Memory | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        self.events: list[Event] = []
        self.values: list[Hashable] = []
        self.calls: list[Call] = []
        self.excused = False
        """Whether something was declared not to be capturable."""
        self.num_random = 0
        """How many events drew random numbers."""
        self.scratch_bytes = 0
        """Scratch memory in use, at most."""
        self._bytes_now = 0
        self.workspace = workspace
        self._done = done
        self._memory: Memory = {} if memory is None else memory
        self.step, self._number = 0, 0
        self._before: list[tuple[Recorder | None, Recorder | None]] = []

    def __enter__(self) -> Recorder:
        global _current, taking
        self._before.append((_current, taking))
        _current, taking = self, self if self.workspace is not None else None
        return self

    def __exit__(self, *_: object) -> None:
        global _current, taking
        _current, taking = self._before.pop()

    def begin(self, step: int) -> None:
        """From here on it is this step's work, as `persistent_array` needs to know."""
        self.step, self._number = step, 0

    def perform(self, event: Event) -> Hashable:
        """Call an event, unless that has been done, and note it."""
        place = len(self.events)
        if place < len(self._done):
            value = self._done[place]
        else:
            from nnet3tools.tensor.random import get_state

            before = get_state()
            with _unrecorded():  # what an event calls is part of it
                value = event()
            self.num_random += value is not None and get_state() != before
        self.events.append(event)
        self.values.append(value)
        return value

    def count_scratch(self, num_bytes: int) -> None:
        """There are so many bytes more (or less) of scratch memory in use."""
        size = rounded_up(abs(num_bytes))
        self._bytes_now += size if num_bytes > 0 else -size
        self.scratch_bytes = max(self.scratch_bytes, self._bytes_now)

    def persistent(self, make: Callable[[], Any]) -> Any:
        """The same object whenever the same step asks for it."""
        key = self.step, self._number
        self._number += 1
        if key not in self._memory:
            self._memory[key] = make()
        return self._memory[key]

    def call(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Bind an operator, run it and note it; a number that it returns stays in memory."""
        from nnet3tools.tensor.number import Number

        global taking
        before, taking = taking, None  # what an operator calls is part of it
        try:
            values = (*operands, *options.values())
            do: Callable[[], Any]
            if not operator.takes_numbers and any(_is_host_number(v) for v in values):
                do = partial(_call_with_numbers, operator, operands, options)
            else:
                do = operator.bind(*operands, **options)
            result = do()
        finally:
            taking = before
        if isinstance(result, (float, Number)):
            do, result = _in_memory(do, result)
        self.calls.append(Call(operator.name, values, do))
        return result

    def add(self, call: Call) -> Any:
        """Run and note what was bound before."""
        global taking
        before, taking = taking, None
        try:
            result = call.run()
        finally:
            taking = before
        self.calls.append(call)
        return result


def _in_memory(do: Callable[[], Any], result: Any) -> tuple[Callable[[], Any], Any]:
    """What does the work and stores its result in a Number, and that."""
    from nnet3tools.tensor.number import Number

    if isinstance(result, float):
        number = Number(np.array([result]))
        return partial(_store_float, do, number.array), number
    number = Number(result.array.copy())
    return partial(_store_number, do, number.array), number


def _call_with_numbers(
    operator: Any, operands: Sequence[Any], options: Mapping[str, Any]
) -> object:
    """Of the host's Numbers operators are given what they are at that time."""
    given = [_number_now(operand) for operand in operands]
    return operator(*given, **{name: _number_now(value) for name, value in options.items()})


def _number_now(operand: Any) -> Any:
    return operand.value() if _is_host_number(operand) else operand


def _is_host_number(operand: Any) -> bool:
    return getattr(operand, "is_host_number", False)


def _store_float(do: Callable[[], float], array: np.ndarray) -> None:
    array[0] = do()


def _store_number(do: Callable[[], Any], array: Any) -> None:
    from nnet3tools.tensor.basics import copy

    copy(array, do().array)


_current: Recorder | None = None
taking: Recorder | None = None
"""The recorder that operators give their calls to."""


@contextmanager
def _unrecorded() -> Iterator[None]:
    global _current, taking
    before = _current, taking
    _current = taking = None
    try:
        yield
    finally:
        _current, taking = before


@contextmanager
def without_actions() -> Iterator[None]:
    """In the `with` block `act` does nothing: a device captures what was recorded and done."""
    _is_repeating[0] = True
    try:
        yield
    finally:
        _is_repeating[0] = False


_is_repeating = [False]


def decide(decision: Callable[[], V]) -> V:
    """What the decision says; which work follows may depend on it."""
    return decision() if _current is None else cast(V, _current.perform(decision))


def act(action: Callable[[], object]) -> None:
    """Do something on the host."""
    if _is_repeating[0]:
        return
    if _current is None:
        action()
    else:
        _current.perform(lambda: _nothing(action()))


def _nothing(_: object) -> None:
    """Whatever an action returns is no decision."""


def run(name: str, do: Callable[[], Any]) -> None:
    """Do work that was bound before, and note it where calls are."""
    if taking is None:
        do()
    else:
        taking.add(Call(name, (), do))


def noting() -> Recorder | None:
    """Whoever notes at present, if anybody."""
    return _current


def is_noted() -> bool:
    """Whether somebody takes notes for replaying this work."""
    return _current is not None


def persistent_array(shape: int | tuple[int, ...], like: Any = None, dtype: Any = None) -> Any:
    """An undefined array for a memo: a later step, perhaps of another variant, finds it by address.

    Each of a program's steps gets its own arrays, the same ones at each run.
    """
    from nnet3tools.tensor.arrays import empty

    return persistent_object(lambda: empty(shape, like, dtype))


def persistent_object(make: Callable[[], V]) -> V:
    """As `persistent_array`, for memos that are more than an array; new if nobody records."""
    return make() if taking is None else cast(V, taking.persistent(make))


def not_capturable() -> None:
    """Declare that what the present step does cannot be repeated from a recording."""
    if _current is not None:
        _current.excused = True

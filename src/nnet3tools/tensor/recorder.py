"""Who records: binds and runs the calls that work makes, notes them, and the events between them.

tensor/recording.py says what is recorded and how; here is what takes the notes, above arrays,
numbers and operators, which report to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from nnet3tools.draws import get_state
from nnet3tools.tensor import recording
from nnet3tools.tensor.basics import copy
from nnet3tools.tensor.number import Measured, Number
from nnet3tools.tensor.offsets import rounded_up
from nnet3tools.tensor.recording import Call, Event, Kernels, Origin, unrecorded
from nnet3tools.tensor.workspace import Workspace

__all__ = ["ACTION", "Memory", "Recorder"]

ACTION = object()
"""Stands among the outcomes of events for one that has none."""

Memory = dict[tuple[int, int], Any]
"""Objects that `persistent_object` gave to steps: (step, number) -> object."""


class Recorder:
    """Notes events, and with a workspace the calls of operators, in a `with` block.

    `done` are results of the first events, which are not called again: they have led here.
    """

    def __init__(
        self,
        done: Sequence[Hashable] = (),
        memory: Memory | None = None,
        workspace: Workspace | None = None,
        scratch: Workspace | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        """`scratch` is where a live run's scratch memory comes from, if not from the pool.

        `kernels` do what they can of the calls.
        """
        self.events: list[Event] = []
        self.values: list[Hashable] = []
        self.calls: list[Call] = []
        self.excused = False
        """Whether something was declared not to be capturable."""
        self.num_random = 0
        """The number of events that drew random numbers."""
        self.scratch_bytes = 0
        """Scratch memory in use, at most."""
        self._bytes_now = 0
        self.workspace, self.scratch = workspace, scratch
        self._kernels = kernels
        self._done = done
        self._memory: Memory = {} if memory is None else memory
        self.step, self._number = 0, 0
        self._before: list[tuple[Recorder | None, Recorder | None, Kernels | None]] = []

    def __enter__(self) -> Recorder:
        takes = self if self.workspace is not None else None
        self._before.append((*recording.swap(self, takes), recording.state.kernels))
        recording.state.kernels = self._kernels
        return self

    def __exit__(self, *_: object) -> None:
        *before, recording.state.kernels = self._before.pop()
        recording.swap(*before)

    def begin(self, step: int) -> None:
        """From here on it is this step's work, as `persistent_array` needs to know."""
        self.step, self._number = step, 0

    def perform(self, event: Event) -> Hashable:
        """Call an event, unless that has been done, and note it and its outcome."""
        if (place := len(self.events)) < len(self._done):
            value = self._done[place]
        else:
            before = get_state()
            with unrecorded():  # what an event calls is part of it
                value = event()
            self.num_random += get_state() != before
        self.events.append(event)
        self.values.append(value)
        return value

    def act(self, action: Event) -> None:
        """The same for an event without an outcome; among the values it is ACTION."""
        if len(self.events) >= len(self._done):
            with unrecorded():
                action()
        self.events.append(action)
        self.values.append(ACTION)

    def count_scratch(self, num_bytes: int) -> None:
        """Note that scratch memory was taken, or given back where the number is negative."""
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
        before = recording.swap(self, None)  # operators that it calls are part of it
        try:
            if self._kernels is None:
                call = _done(operator, operands, options)
            else:
                call = self._by_kernels(operator, operands, options, self._kernels)
        finally:
            recording.swap(*before)
        self.calls.append(call)
        assert call.origin is not None
        return call.origin.result

    def _by_kernels(
        self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any],
        kernels: Kernels,
    ) -> Call:  # fmt: skip
        """A call that was done, by kernels if they are known."""
        if not kernels.pay_for(operator):
            return _done(operator, operands, options)
        number = Number(np.empty(1)) if operator.gives_number else None
        origin = Origin(operator, operands, options, number)
        jobs = kernels.jobs_of(origin)
        if jobs is None or not kernels.do(jobs):
            call = _done(operator, operands, options, number)
        else:
            call = Call.unbound(origin, partial(_bound_again, origin))
        call.keep_jobs(jobs)
        return call

    def add(self, call: Call) -> Any:
        """Run and note what was bound before."""
        before = recording.swap(self, None)
        try:
            call.run()
        finally:
            recording.swap(*before)
        self.calls.append(call)


def _done(
    operator: Any, operands: Sequence[Any], options: Mapping[str, Any],
    number: Number | None = None,
) -> Call:  # fmt: skip
    """A call, bound and run; its result is stored in a Number, if it is one, perhaps in this."""
    do = _bound(operator, operands, options)
    result = do()
    is_stored = isinstance(result, (float, Number)) and not isinstance(do, Measured)
    if is_stored:
        result = _number_like(result, number)
        do = _storing(result, do)
    origin = Origin(operator, operands, options, result if isinstance(result, Number) else None)
    again = None if isinstance(do, Measured) else partial(_bound_again, origin)
    return Call(operator.name, (*operands, *options.values()), do, origin, again)


def _bound(operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Callable[[], Any]:
    """An operator bound, to the host's Numbers among others."""
    values = (*operands, *options.values())
    if not operator.takes_numbers and any(_is_host_number(v) for v in values):
        return partial(_call_with_numbers, operator, operands, options)
    return cast(Callable[[], Any], operator.bind(*operands, **options))


def _number_like(result: float | Number, number: Number | None) -> Number:
    """What was returned as the Number given, or as one in memory of its own."""
    if number is not None:
        number.array[0] = float(result) if isinstance(result, float) else result.value()
        return number
    return Number(np.array([result]) if isinstance(result, float) else result.array.copy())


def _storing(number: Number, do: Callable[[], Any]) -> Callable[[], Any]:
    """A callable that does the work and stores its result, a float or a Number."""
    return partial(_store, do, number.array)


def _bound_again(origin: Origin) -> Callable[[], Any]:
    do = _bound(origin.operator, origin.operands, origin.options)
    return do if origin.result is None else _storing(origin.result, do)


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


def _store(do: Callable[[], Any], array: Any) -> None:
    result = do()
    if isinstance(result, Number):
        copy(array, result.array)
    else:
        array[0] = result

"""Recorder: takes the calls of operators, and the decisions and actions between them.

tensor/recording.py has the functions through which code reports to the recorder of its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3tools.draws import get_state
from nnet3tools.fast_dataclasses import replace
from nnet3tools.tensor import recording
from nnet3tools.tensor.call import Call, bind
from nnet3tools.tensor.number import Measured, Number
from nnet3tools.tensor.offsets import rounded_up
from nnet3tools.tensor.recording import Action, Decision, Outcomes, unrecorded
from nnet3tools.tensor.workspace import Workspace

if TYPE_CHECKING:
    from nnet3tools.tensor.cpu.calls import KnownKernels
    from nnet3tools.tensor.flags import Flag, Flags

PersistentObjects = dict[tuple[int, int], Any]
"""(step, number within the step) -> an object that `persistent_object` returned."""


class Recorder:
    """Records what runs in a `with` block: operator calls, and what the host decides or does.

    Operator calls are recorded only with a `workspace`, their scratch memory. The first decisions
    (choices) take `known_outcomes`, and the first `num_actions_done` actions are left out.
    """

    def __init__(
        self,
        known_outcomes: Outcomes = (),
        num_actions_done: int = 0,
        *,
        persistent: PersistentObjects | None = None,
        workspace: Workspace | None = None,
        scratch: Workspace | None = None,
        known_kernels: KnownKernels | None = None,
        keeps_bound: bool = True,
        flags: Flags | None = None,
    ) -> None:
        """Prepare to record a step; `persistent` has the objects that all runs of the step share.

        Decisions take `known_outcomes` first; the first `num_actions_done` actions are not
        repeated. Recorded calls get scratch memory of `workspace`, others of `scratch`. Calls use
        `known_kernels` if possible. On a GPU, `flags` switch a replay's optional calls. Without
        `keeps_bound`, recorded calls are bound again for a run without kernels.
        """
        self.decisions: list[Decision] = []
        self.outcomes: list[Any] = []
        self.actions: list[list[Action]] = [[]]
        """Actions before the first decision, between it and the second, and so on."""
        self.calls: list[Call] = []
        self.has_host_work = False
        """Whether code has called `not_capturable`."""
        self.num_random = 0
        """The number of decisions that drew random numbers."""
        self.scratch_bytes = 0
        """The most scratch memory in use at one time."""
        self._scratch_bytes_now = 0
        self.workspace, self.scratch = workspace, scratch
        self._known_kernels, self._keeps_bound = known_kernels, keeps_bound
        self._known_outcomes, self._num_actions_done = known_outcomes, num_actions_done
        self._persistent: PersistentObjects = {} if persistent is None else persistent
        self._flags, self._num_flags = flags, 0
        self._flag: Flag | None = None
        self._step, self._num_persistent = 0, 0

    def __enter__(self) -> Recorder:
        state = recording.state
        self._before = state.event_recorder, state.call_recorder, state.known_kernels
        state.event_recorder, state.known_kernels = self, self._known_kernels
        state.call_recorder = None if self.workspace is None else self
        return self

    def __exit__(self, *_: object) -> None:
        state = recording.state
        state.event_recorder, state.call_recorder, state.known_kernels = self._before

    def begin_step(self, step: int) -> None:
        """Set the number of the command to which the work that follows belongs."""
        self._step, self._num_persistent = step, 0

    def decide(self, decision: Decision, is_optional: bool = False) -> Any:
        """The outcome of a choice of the host: the known one if any, else `decision()`; kept.

        `is_optional`: the choice is whether to do optional work, which a flag decides on a GPU, so
        it is not counted as random.
        """
        if (place := len(self.outcomes)) < len(self._known_outcomes):
            outcome = self._known_outcomes[place]
        else:
            before = get_state()
            with unrecorded():
                outcome = decision()
            self.num_random += get_state() != before and not is_optional
        self.decisions.append(decision)
        self.outcomes.append(outcome)
        self.actions.append([])
        return outcome

    @contextmanager
    def optional(self, decision: Callable[[], bool], like: Any) -> Iterator[bool]:
        """Yield whether to run the `with` block: `decision()`; on a GPU True unless blocks nest.

        There the work is recorded in any case; `decision()`, called now and in each replay, sets a
        flag that says whether the work is done. `like` is any array of the device.
        """
        if self._flags is None or self._flag is not None:
            yield self.decide(decision)
            return
        flag = self._flags.get(self._num_flags, like)
        self._num_flags += 1

        def set_flag() -> None:
            flag.is_set = bool(decision())

        self.decide(set_flag)
        self._flag = flag
        try:
            yield True
        finally:
            self._flag = None

    def act(self, action: Action) -> None:
        """Call `action`, unless it is one of the first `num_actions_done`; keep it for replays."""
        if (flag := self._flag) is not None:
            optional = action

            def action() -> object:
                return optional() if flag.is_set else None

        if self._num_actions_done > 0:
            self._num_actions_done -= 1
        else:
            with unrecorded():
                action()
        self.actions[-1].append(action)

    def count_scratch(self, num_bytes: int) -> None:
        """Count `num_bytes` of scratch memory as taken, or as given back if it is negative."""
        size = rounded_up(abs(num_bytes))
        self._scratch_bytes_now += size if num_bytes > 0 else -size
        self.scratch_bytes = max(self.scratch_bytes, self._scratch_bytes_now)

    def persistent_object(self, make: Callable[[], Any]) -> Any:
        """The result of `make()` in the first run of the step; later runs get the same object."""
        key = self._step, self._num_persistent
        self._num_persistent += 1
        if key not in self._persistent:
            self._persistent[key] = make()
        return self._persistent[key]

    def call(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Run and record an operator call; returns its result (if it is a number, a Number)."""
        state = recording.state
        state.call_recorder = None  # calls within the operator are part of it
        try:
            call = self._run(operator, operands, options)
        finally:
            state.call_recorder = self
        if self._flag is not None:
            call = replace(call, bound=self._flag.guard(call.bind()))
        self.calls.append(call)
        return call.result

    def run(self, name: str, work: Callable[[], Any]) -> None:
        """Run and record `work`, which runs an operator; printed recordings show it as `name`."""
        if self._flag is not None:
            work = self._flag.guard(work)
        with recording.recorders(self, None):
            work()
        self.calls.append(Call(name, bound=work))

    def _run(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Call:
        """Run an operator by a compiled kernel, or NumPy; return the Call that replays repeat."""
        known_kernels, number = self._known_kernels, None
        if known_kernels is not None and operator.compiled_when_live:
            if operator.gives_number:
                number = Number(np.empty(1))
            call = Call(operator.name, operands, options, operator, number)
            if known_kernels.run_call(call):
                return call
        work = bind(operator, operands, options)
        result = work() if self._flag is None or self._flag.is_set else _not_computed(work)
        bound = work if self._keeps_bound else None
        if isinstance(work, Measured):
            return Call(operator.name, operands, options, operator, result, work)
        if isinstance(result, (float, Number)):
            number = _stored(result, number)
            if self._keeps_bound:
                bound = partial(number.set_to_result, work)
        return Call(operator.name, operands, options, operator, number, bound)


def _not_computed(work: Any) -> Number | None:
    """The result of a `work` left out: the Number that it would set, unchanged; None if none."""
    return work.number if isinstance(work, Measured) else None


def _stored(result: float | Number, number: Number | None) -> Number:
    """Set `number` to `result` and return it; if `number` is None, return a new Number."""
    if number is not None:
        number.array[0] = float(result) if isinstance(result, float) else result.value()
        return number
    return Number(np.array([result]) if isinstance(result, float) else result.array.copy())

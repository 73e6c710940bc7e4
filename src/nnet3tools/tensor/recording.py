"""Recording work so that it can run again without the Python code that led to it.

Components and the trainer call declared operators. Under a Recorder (tensor/recorder.py) each call
is bound, run, and added to a recording; running the recording's calls, on a GPU as one CUDA graph,
does the work again. Code declares what the host decides or counts in between:

    if decide(lambda: rand_int(0, 1) == 0):          # the outcome is hashable; it selects the work
        _sum_rows(self.value_sum, out_value, beta=1.0)
    act(self._count_call)                            # has no influence on the operators

Without a Recorder both functions only call their argument. A replay (executor/replay.py) first
calls all decisions and actions again, in order, and then runs the recording of these outcomes.
Decisions and actions must therefore do no device work and must not depend on work of the same step.
`prepare` makes things that are made once, such as room for statistics. Code that cannot be
repeated, such as reading a result on the host, calls `not_capturable()` and runs live each time.

Numbers that depend on data stay in memory (tensor/number.py). Attributes that are plain numbers are
settings, and part of a recording (tensor/settings.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from nnet3tools.tensor.cpu.calls import KnownKernels
    from nnet3tools.tensor.recorder import Recorder

V = TypeVar("V", bound=Hashable)

Decision = Callable[[], Hashable]
Action = Callable[[], object]
Outcomes = tuple[Hashable, ...]
"""The outcomes of a step's decisions, in order."""


class NotCapturable(Exception):
    """Raised if the device cannot capture a graph now; a later try may succeed."""


class _ThreadState(threading.local):
    """The recorders of one thread; the work of other threads is not part of its recordings.

    `event_recorder` takes what the host decides (`decide`) and does (`act`), `call_recorder` the
    calls of operators. `known_kernels` do calls that no recorder takes. With `skips_actions`, `act`
    does nothing, because recorded calls are being captured as a CUDA graph.
    """

    event_recorder: Recorder | None = None
    call_recorder: Recorder | None = None
    known_kernels: KnownKernels | None = None
    skips_actions = False


state = _ThreadState()


def dispatch(operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Call an operator by this thread's recorder, else by a known kernel, else by NumPy or CUDA."""
    if state.call_recorder is not None:
        return state.call_recorder.call(operator, operands, options)
    known = state.known_kernels
    if known is not None and operator.compiled_when_live and known.run(operator, operands, options):
        return None
    return operator.bind(*operands, **options)()


class recorders(AbstractContextManager[None]):
    """Let this thread use these recorders in the `with` block; None: do not record.

    The first records decisions and actions of the host, the second operator calls.
    """

    __slots__ = ("_before", "_recorders")

    def __init__(self, event_recorder: Recorder | None, call_recorder: Recorder | None) -> None:
        self._recorders = event_recorder, call_recorder

    def __enter__(self) -> None:
        self._before = state.event_recorder, state.call_recorder
        state.event_recorder, state.call_recorder = self._recorders

    def __exit__(self, *_: object) -> None:
        state.event_recorder, state.call_recorder = self._before


def unrecorded() -> AbstractContextManager[None]:
    """Do not record operators in the `with` block, such as those of a decision of the host."""
    return recorders(None, None)


@contextmanager
def without_actions() -> Iterator[None]:
    """In the `with` block `act` does nothing; recorded calls are captured as a CUDA graph there."""
    state.skips_actions = True
    try:
        yield
    finally:
        state.skips_actions = False


def decide(decision: Callable[[], V]) -> V:
    """The outcome of `decision()`, on which later operators may depend. A replay decides again."""
    recorder = state.event_recorder
    return decision() if recorder is None else cast(V, recorder.decide(decision))


@contextmanager
def optional(decision: Callable[[], bool], like: Any) -> Iterator[bool]:
    """Yield whether to do the work in the `with` block: it is done if `decision()` is true.

    If the array `like` is on a GPU, a recording contains the work in any case, and each replay sets
    a flag that says whether it is done. Such work has no matrix products, and its results are not
    used outside, except changes in place.
    """
    recorder = state.call_recorder
    if recorder is None:
        before = state.event_recorder
        yield decision() if before is None else before.decide(decision, is_optional=True)
        return
    with recorder.optional(decision, like) as is_now:
        yield is_now


def act(action: Action) -> None:
    """Call a function of the host that does not influence operators. A replay calls it again."""
    if state.skips_actions:
        return
    if state.event_recorder is None:
        action()
    else:
        state.event_recorder.act(action)


def prepare(template: Any, is_missing: Callable[[], bool], make: Action) -> None:
    """If `is_missing()`, call `make`, which makes an object that later operators need.

    Each replay checks again. `template` is any array of the device. On a GPU, a run that calls
    `make` is not recorded. `make` must not invalidate recordings (see settings.begin_settings).
    """
    if type(template).__module__ == "numpy":
        act(lambda: make() if is_missing() else None)
    elif decide(is_missing):
        not_capturable()
        make()


def run(name: str, work: Callable[[], Any]) -> None:
    """Call `work`, which runs an operator; if calls are being recorded, record it as `name`."""
    if state.call_recorder is None:
        work()
    else:
        state.call_recorder.run(name, work)


def persistent_object(make: Callable[[], V]) -> V:
    """The result of `make()`; code that is recorded gets the same object in each replay."""
    recorder = state.call_recorder
    return make() if recorder is None else cast(V, recorder.persistent_object(make))


def not_capturable() -> None:
    """Prevent recording of the running command: no replay could repeat its work on the host."""
    if state.event_recorder is not None:
        state.event_recorder.has_host_work = True

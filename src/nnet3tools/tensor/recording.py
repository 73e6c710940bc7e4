"""Recording what work does the first times, so that it can be done again without its Python.

Code that components and the trainer run calls declared operators as it goes. Under a Recorder
(tensor/recorder.py) each call is bound once, run, and noted; the list of bound calls, on a GPU
captured as a CUDA graph, does the work again. What the host decides or counts meanwhile is declared
where it happens:

    if decide(lambda: rand_int(0, 1) == 0):          # small and hashable: which work there is to do
        _sum_rows(self.value_sum, out_value, beta=1.0)
    act(self._count_call)                            # no influence on what the operators do

Elsewhere both just call what they are given. A replay first calls all events again, in order, and
then does the work recorded for these outcomes (executor/replay.py); so they must do no device work
and depend on none of the same step. What is made once, as room for statistics, is made by
`prepare`. What cannot be repeated, as looking at results on the host, says `not_capturable()`: it
runs as it is each time.

Numbers that depend on data are tensor.number's, in memory; attributes that are plain numbers are
settings, which are part of a recording (tensor/settings.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from nnet3tools.tensor.recorder import Recorder

__all__ = [
    "Call",
    "Event",
    "Kernels",
    "NotCapturable",
    "Origin",
    "act",
    "bound",
    "decide",
    "not_capturable",
    "noting",
    "persistent_object",
    "prepare",
    "run",
    "state",
    "swap",
    "unrecorded",
    "without_actions",
]

V = TypeVar("V", bound=Hashable)

Event = Callable[[], Hashable]


class NotCapturable(Exception):
    """A device cannot capture just now; next time it may be able to."""


class Origin(NamedTuple):
    """What was bound, so that a device may bind it otherwise."""

    operator: Any
    operands: Sequence[Any]
    options: Mapping[str, Any]
    result: Any = None
    """The Number that takes the result, if there is one."""


class Call:
    """A bound operator as it stands in a recording."""

    __slots__ = ("_bind", "made", "name", "operands", "origin", "run")

    def __init__(
        self, name: str, operands: Sequence[Any], run: Callable[[], Any],
        origin: Origin | None = None, bind: Callable[[], Callable[[], Any]] | None = None,
    ) -> None:  # fmt: skip
        """`bind`, if given, makes `run` anew."""
        self.name, self.operands, self.run, self.origin = name, operands, run, origin
        self._bind = bind
        self.made: tuple[Sequence[Any] | None, Callable[[], Any]] | None = None
        """Jobs of compiled kernels (None: there are none for it), and what does the same without.

        They are kept for the next recording that the call stands in.
        """

    def __call__(self) -> Any:
        return self.run()

    @classmethod
    def unbound(cls, origin: Origin, bind: Callable[[], Callable[[], Any]]) -> Call:
        """One that is bound by `bind` when it is to run."""
        values = (*origin.operands, *origin.options.values())
        made = cls(origin.operator.name, values, bind, origin, bind)
        made.run = made._run_anew
        return made

    def keep_jobs(self, jobs: Sequence[Any] | None) -> None:
        """Note the jobs of compiled kernels that do the same, or that there are none."""
        if jobs is None:
            self.made = None, self.bound()
        else:
            self.made = jobs, self.run if self._bind is None else self._run_anew

    def forget(self) -> None:
        """Let go of what was bound, which takes memory, until somebody asks for it."""
        if self._bind is not None and (self.made is None or self.made[0] is not None):
            self.run = self._run_anew

    def bound(self) -> Callable[[], Any]:
        """What does the work, bound again if need be."""
        if self._bind is not None and self.run == self._run_anew:
            self.run = self._bind()
        return self.run

    def _run_anew(self) -> Any:
        return self.bound()()

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(_shown(operand) for operand in self.operands)})"


def bound(operator: Any, *operands: Any, **options: Any) -> Call:
    """An operator bound to operands, as it is to stand in recordings.

    What kernels may do at once is bound on the host when it is to run without them.
    """
    origin, bind = Origin(operator, operands, options), partial(operator.bind, *operands, **options)
    if type(operands[0]).__module__ == "numpy":
        if hasattr(operator, "binder"):
            operator.binder(operands[0])  # an error now if there is none
        return Call.unbound(origin, bind)
    values = (*operands, *options.values())
    return Call(operator.name, values, bind(), origin)


def _shown(operand: Any) -> str:
    if hasattr(operand, "dtype"):
        return f"{operand.dtype}[{' x '.join(map(str, operand.shape))}]"
    if isinstance(operand, (list, tuple)):
        return f"[{', '.join(_shown(item) for item in operand)}]"
    return repr(operand)


class Kernels(Protocol):
    """Compiled kernels for calls as they come (cpu/at_once.py)."""

    def pay_for(self, operator: Any) -> bool:
        """Whether a kernel that is used once is less work than what does without."""

    def jobs_of(self, origin: Origin) -> Sequence[Any] | None:
        """What does the work of a call; None if there are no kernels for it."""

    def do(self, jobs: Sequence[Any]) -> bool:
        """Do jobs, all or none; False if some kernel is not known yet, or cannot be had."""

    def run(self, operator: Any, operands: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """Do a call that gives no number; False if it has to be done without kernels."""

    def begin_run(self) -> None:
        """What is asked for from here on is known from the next run on."""

    def ask_for(self, calls: Iterable[Call]) -> None:
        """Have the kernels of recorded calls among those that are known."""


class _State(threading.local):
    """Who takes notes on a thread: what other threads do meanwhile is not part of its work."""

    current: Recorder | None = None
    """The recorder of events."""
    taking: Recorder | None = None
    """The recorder that operators give their calls to."""
    kernels: Kernels | None = None
    """What does calls of operators that nobody takes, if it has kernels for them."""


state = _State()


def swap(
    current_now: Recorder | None, taking_now: Recorder | None
) -> tuple[Recorder | None, Recorder | None]:
    """Let these two take notes and calls from here on; returns those that did before."""
    before = state.current, state.taking
    state.current, state.taking = current_now, taking_now
    return before


@contextmanager
def unrecorded() -> Iterator[None]:
    """In the `with` block nobody takes notes: the work is part of an event."""
    before = swap(None, None)
    try:
        yield
    finally:
        swap(*before)


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
    """The outcome of a decision; the work that follows may depend on it."""
    return decision() if state.current is None else cast(V, state.current.perform(decision))


def act(action: Callable[[], object]) -> None:
    """Do something on the host."""
    if _is_repeating[0]:
        return
    if state.current is None:
        action()
    else:
        state.current.act(action)


def prepare(like: Any, is_missing: Callable[[], bool], make: Callable[[], object]) -> None:
    """Have something made, on the device of `like`, before the work that is the first to need it.

    On the host that changes nothing in what is recorded: a first run, which makes it, can be the
    example of later ones. `make` must not outdate recordings (settings.begin_settings).
    """
    if type(like).__module__ == "numpy":
        act(lambda: make() if is_missing() else None)
    elif decide(is_missing):
        not_capturable()
        make()


def run(name: str, do: Callable[[], Any]) -> None:
    """Do work that was bound before, and note it where calls are."""
    if state.taking is None:
        do()
    else:
        state.taking.add(Call(name, (), do))


def noting() -> Recorder | None:
    """Whoever takes notes for replaying this work at present, if anybody."""
    return state.current


def persistent_object(make: Callable[[], V]) -> V:
    """A memo that a later step finds where it was: the same at each run, new if nobody records."""
    return make() if state.taking is None else cast(V, state.taking.persistent(make))


def not_capturable() -> None:
    """Declare that what the present step does cannot be repeated from a recording."""
    if state.current is not None:
        state.current.excused = True

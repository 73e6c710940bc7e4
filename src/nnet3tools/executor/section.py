"""Steps that are recorded together, each variant for itself, and run again (replay.py)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from nnet3tools.io import log
from nnet3tools.tensor.arrays import captured_scratch
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.recorder import ACTION, Memory, Recorder
from nnet3tools.tensor.recording import (
    Call,
    Event,
    Kernels,
    NotCapturable,
    without_actions,
)
from nnet3tools.tensor.workspace import Workspace

__all__ = ["Capture", "Section", "Step", "Steps"]

Step = Callable[[], object]
Steps = Sequence[tuple[int, Step]]
"""(number, work): a Call, which was bound before, or what calls operators as it goes."""


class Capture(Protocol):
    """Takes work down as a graph; what comes back launches it."""

    def __call__(self, work: Callable[[], None], aside: bool = False) -> Callable[[], None]:
        """`aside`: beside what is launched later, until tensor.aside.join."""


@dataclass(slots=True)
class _Node:
    """A place in the course of a section's events: after some of them, with some outcomes."""

    actions: tuple[Event, ...] = ()
    """The next events, which have no outcome."""
    event: Event | None = None
    """The event after them; None: there is none, or nobody knows yet."""
    after: dict[Hashable, _Node] = field(default_factory=dict)
    """Outcome of the event -> where it leads."""
    calls: list[Call] | None = None
    """At the end: the work recorded; None: not yet, or never if `is_live`."""
    work: Callable[[], None] | None = None
    """A callable that does that work."""
    is_live: bool = False
    before: tuple[_Node, Hashable] | None = None
    """The node whose event's outcome led here, and that; None for the first."""

    def grown(self, outcome: Hashable) -> _Node:
        """A new node after an outcome that is new."""
        found = self.after[outcome] = _Node(before=(self, outcome))
        return found

    def done(self) -> list[Hashable]:
        """The values of all events on the way to here, this node's actions included."""
        own = [ACTION] * len(self.actions)
        if self.before is None:
            return own
        node, outcome = self.before
        return [*node.done(), outcome, *own]


class Section:
    """Steps that are recorded together, for each variant."""

    def __init__(
        self, steps: Steps, workspace: Workspace, memory: Memory, capture: Capture | None,
        aside: bool = False,
    ) -> None:  # fmt: skip
        self._steps, self._workspace, self._memory = steps, workspace, memory
        self._capture, self._aside = capture, aside
        self._root = _Node()
        self._recorded: list[_Node] = []
        self.has_run = False
        """Whether there was a run."""

    def run(self) -> None:
        """The host's part, as far as it is known; then the work, live where it is not recorded."""
        node = self._root
        while True:
            for action in node.actions:
                action()
            if (event := node.event) is None:
                break
            outcome = event()
            node = node.after.get(outcome) or node.grown(outcome)
        if node.work is not None:
            node.work()
        elif node.calls is not None and self._capture is None:
            self.bind()
            assert node.work is not None
            node.work()
        elif node.calls is not None:
            self._run_captured(node)
        else:
            self._run_live(node, node.done())

    def bind(self) -> None:
        """On a CPU, make what does the work of all variants recorded so far."""
        for node in self._recorded:
            assert node.calls is not None
            node.work = _series(node.calls) if are_native() else _in_turn(node.calls)
            if node is not self._root:
                node.calls = None
        self._recorded.clear()

    def ask_for(self, kernels: Kernels) -> None:
        """Have the kernels of what was recorded, for variants that will be."""
        for node in self._recorded:
            kernels.ask_for(node.calls or ())

    @property
    def only_calls(self) -> Sequence[Call] | None:
        """The calls of the only variant there is, without events; None if there is more."""
        return None if self._root.actions else self._root.calls

    def _run_live(self, node: _Node, done: list[Hashable]) -> None:
        """Record a variant that begins with these outcomes, unless that is known not to work."""
        workspace = None if node.is_live else self._workspace
        kernels = None if workspace is None else workspace.kernels
        recorder = Recorder(done, self._memory, workspace, kernels=kernels)
        with recorder:
            for c, step in self._steps:
                recorder.begin(c)
                if isinstance(step, Call):
                    recorder.add(step)
                else:
                    step()
        is_first, self.has_run = not self.has_run, True
        if node.is_live:
            return
        node = self._note_events(recorder)
        if recorder.excused and is_first:
            return  # perhaps for something that is done once: the next run tells
        node.is_live = recorder.excused
        if recorder.excused:
            log.vlog(2, f"command c{self._steps[0][0]} has work for the host: not recorded")
            return
        node.calls = recorder.calls
        self._recorded.append(node)
        if self._capture is None and are_native():  # most of them will have kernels instead
            for call in node.calls:
                call.forget()

    def _note_events(self, recorder: Recorder) -> _Node:
        """Put events on record; the place where they end."""
        node, actions = self._root, list[Event]()
        for event, value in zip(recorder.events, recorder.values, strict=True):
            if value is ACTION:
                actions.append(event)
                continue
            node.actions, node.event = node.actions or tuple(actions), node.event or event
            node, actions = node.after.get(value) or node.grown(value), []
        node.actions = tuple(actions)
        return node

    def _run_captured(self, node: _Node) -> None:
        """Capture what was recorded, and launch it."""
        assert self._capture is not None
        assert node.calls is not None
        do = _in_turn(node.calls)
        try:
            with captured_scratch(self._aside), without_actions():
                node.work = self._capture(do, self._aside) if node.calls else do
        except NotCapturable:
            do()
        else:
            node.work()


def _series(calls: Sequence[Call]) -> Callable[[], None]:
    # Here, as it loads the compiled kernels' modules.
    from nnet3tools.tensor.cpu.calls import series

    return series(calls)


def _in_turn(calls: Sequence[Call]) -> Callable[[], None]:
    runs = tuple(call.bound() for call in calls)

    def run() -> None:
        for one in runs:
            one()

    return run

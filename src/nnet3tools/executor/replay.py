"""Running work again from recordings: lists of bound operators on a CPU, CUDA graphs on a GPU.

The first run of some steps is live, for programs that run once must not pay for more; notes are
taken of the scratch memory they need, and for a GPU of which of them draw random decisions or look
at results. The second run records (tensor/recording.py): what comes after the same outcomes of the
host's events, a variant of the work, is a list of calls, which later runs call in turn, or capture
once as a graph and launch. A variant that has not come up yet is recorded when it does.

On a CPU each step has its own variants, so that they do not multiply, and what has no events is one
flat list. On a GPU, where launches are dear, steps are gathered into sections with few random
decisions each, as every one of them may double the variants.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from nnet3tools.io import log
from nnet3tools.tensor.arrays import captured_scratch
from nnet3tools.tensor.native.choice import are_native
from nnet3tools.tensor.recorder import ACTION, Memory, Recorder
from nnet3tools.tensor.recording import (
    Call,
    Event,
    Kernels,
    NotCapturable,
    without_actions,
)
from nnet3tools.tensor.settings import settings_version
from nnet3tools.tensor.workspace import Workspace

__all__ = ["Aside", "Capture", "Replayer", "Step", "device_capture"]

Step = Callable[[], object]
Steps = Sequence[tuple[int, Step]]
"""(number, work): a Call, which was bound before, or what calls operators as it goes."""


class Capture(Protocol):
    """Takes work down as a graph; what comes back launches it."""

    def __call__(self, work: Callable[[], None], aside: bool = False) -> Callable[[], None]:
        """`aside`: beside what is launched later, until tensor.aside.join."""


_MAX_NOTED = 2
"""Live runs at most before those that record, where the first was no example."""
_MANY = 6
"""First runs in one workspace from which on kernels do what they can of first runs: those of two
minibatches of a training and more. What runs once or twice does not wait for a compiler."""
_MAX_RANDOM = 3
"""Random decisions in one section: it has up to 2 ** 3 variants for them alone."""


def device_capture() -> Capture:
    """How the GPU in use captures work."""
    from nnet3tools.tensor.cupy_backend.waves import capture

    return capture


@dataclass(frozen=True)
class Aside:
    """Work that a GPU may do beside what comes after it, until tensor.aside.join.

    That is called by whoever looks at what it changes, or changes what it looks at.
    """

    work: Step

    def __call__(self) -> object:
        return self.work()


class Replayer:
    """Runs pieces of work, each a list of steps under a key, live at first, then from recordings.

    `capture` is how a device captures work as a graph (None: it does not). Replayers that never run
    interleaved may share a workspace.
    """

    def __init__(self, workspace: Workspace, capture: Capture | None = None) -> None:
        self._workspace, self._capture = workspace, capture
        self._settings = settings_version()
        self._pieces: dict[Hashable, _Piece] = {}

    def steps(self, key: Hashable, steps: Steps) -> Steps:
        """(number of the first step, work) to do in turn to do the piece of work this time."""
        if self._settings != (settings := settings_version()):
            self._settings = settings
            if any(piece.is_recorded for piece in self._pieces.values()):
                self._pieces.clear()
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = _Piece(steps, self._workspace, self._capture)
            self._workspace.first_runs += 1
        can_be_flat = self._capture is None and piece.can_be_flat
        if can_be_flat or self._workspace.first_runs >= _MANY:
            self._use_kernels()
        if self._workspace.kernels is not None:
            self._workspace.kernels.begin_run()
        if can_be_flat:
            # all at once, as their compiled kernels are then made by one run of the compiler
            for other in self._pieces.values():
                if other.can_be_flat:
                    other.make_flat()
        return piece.next_run()

    def _use_kernels(self) -> None:
        """Have kernels do what is new from now on: enough is done again and again, or new."""
        if self._capture is None and are_native() and self._workspace.kernels is None:
            from nnet3tools.tensor.native.at_once import KernelsAtOnce

            self._workspace.kernels = KernelsAtOnce()

    def run(self, key: Hashable, work: Step) -> None:
        """Do some work. That of an equal key must be the same, declared decisions excepted."""
        for _, step in self.steps(key, [(0, work)]):
            step()


class _Piece:
    """Steps that always run one after the other."""

    def __init__(self, steps: Steps, workspace: Workspace, capture: Capture | None) -> None:
        self._steps, self._workspace, self._capture = steps, workspace, capture
        self._memory: Memory = {}
        self._left = _MAX_NOTED
        """Live runs to come; fewer if the latest was an example of all that follow."""
        self._excused: set[int] = set()
        self._random: dict[int, int] = {}
        """Step -> how many decisions of a live run were random."""
        self._scratch_bytes = 0
        self._sections: list[tuple[int, _Section]] | None = None
        self._flat: Steps | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether later runs depend on what was recorded."""
        return self._sections is not None

    def next_run(self) -> Steps:
        """The steps of one run."""
        if self._flat is not None:
            return self._flat
        if self._left > 0:
            left, self._left = self._left - 1, 0
            self._excused.clear()
            return [(c, self._live(c, step, left)) for c, step in self._steps]
        if self._sections is None:
            self._workspace.reserve(self._scratch_bytes)
            self._sections = list(self._make_sections())
        return [(c, section.run) for c, section in self._sections]

    def _live(self, c: int, step: Step, left: int) -> Step:
        """A step as it runs live: of a call there is nothing to note, but perhaps a kernel."""
        if not isinstance(step, Call):
            return partial(self._note, c, step, left)
        kernels, origin = self._workspace.kernels, step.origin
        if self._capture is None and kernels is not None and origin is not None:
            if kernels.pay_for(origin.operator):
                return partial(_run_by, kernels, step)
        return step

    @property
    def can_be_flat(self) -> bool:
        """Whether all sections have run, and a list of their calls is still to be made."""
        found = self._sections if self._flat is None else None
        return found is not None and all(section.has_run for _, section in found)

    def make_flat(self) -> None:
        """From now on run calls instead of sections where there is only one variant."""
        assert self._sections is not None
        if self._workspace.kernels is not None:
            for _, section in self._sections:
                section.ask_for(self._workspace.kernels)
        self._flat = _flat(self._sections)

    def _note(self, c: int, step: Step, left: int) -> None:
        scratch, kernels = None, None
        if self._capture is None:
            scratch, kernels = self._workspace, self._workspace.kernels
        recorder = Recorder(scratch=scratch, kernels=kernels)
        with recorder:
            step()
        self._scratch_bytes = max(self._scratch_bytes, recorder.scratch_bytes)
        self._random[c] = max(self._random.get(c, 0), recorder.num_random)
        if recorder.excused and self._capture is not None:
            self._excused.add(c)
            self._left = left

    def _make_sections(self) -> Iterator[tuple[int, _Section]]:
        """Each step alone; on a GPU only those that cannot be captured, the others gathered."""
        steps: list[tuple[int, Step]] = []
        random = 0
        for c, step in self._steps:
            weight = self._random.get(c, 0)
            aside = self._capture is not None and isinstance(step, Aside)
            alone = self._capture is None or c in self._excused or aside
            if steps and (alone or random + weight > _MAX_RANDOM):
                yield steps[0][0], self._section(steps)
                steps, random = [], 0
            steps.append((c, step))
            random += weight
            if alone:
                yield c, self._section(steps, aside)
                steps, random = [], 0
        if steps:
            yield steps[0][0], self._section(steps)

    def _section(self, steps: Steps, aside: bool = False) -> _Section:
        workspace = self._workspace.another() if aside else self._workspace
        return _Section(steps, workspace, self._memory, self._capture, aside)


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


class _Section:
    """Steps that are recorded together, for each variant."""

    def __init__(
        self, steps: Steps, workspace: Workspace, memory: Memory, capture: Capture | None,
        aside: bool = False,
    ) -> None:  # fmt: skip
        self._steps, self._workspace, self._memory = steps, workspace, memory
        self._capture, self._aside = capture, aside
        self._root = _Node()
        self._recorded: list[_Node] = []

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
        self._recorded.clear()

    def ask_for(self, kernels: Kernels) -> None:
        """Have the kernels of what was recorded, for variants that will be."""
        for node in self._recorded:
            kernels.ask_for(node.calls or ())

    @property
    def has_run(self) -> bool:
        """Whether there was a run."""
        root = self._root
        return root.is_live or bool(root.actions) or (root.event or root.calls) is not None

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
        if node.is_live:
            return
        node = self._note_events(recorder)
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


def _run_by(kernels: Kernels, call: Call) -> None:
    assert call.origin is not None
    operator, operands, options, _ = call.origin
    if not kernels.run(operator, operands, options):
        call.run()


def _flat(sections: Sequence[tuple[int, _Section]]) -> Steps:
    """Sections on a CPU as (command, work): neighbouring calls that have kernels as one."""
    flat: list[tuple[int, Step]] = []
    for c, section in sections:
        calls = section.only_calls
        if calls is None:
            section.bind()
            flat.append((c, section.run))
        else:
            flat += [(c, call) for call in calls]
    return list(_joined(flat)) if are_native() else [(c, _run_of(step)) for c, step in flat]


# What follows loads the compiled kernels' modules where a program first replays, not before.


def _series(calls: Sequence[Call]) -> Callable[[], None]:
    from nnet3tools.tensor.native.calls import series

    return series(calls)


def _joined(steps: Steps) -> Iterator[tuple[int, Step]]:
    """Neighbouring calls that have kernels as one step; the others keep their command."""
    from nnet3tools.tensor.native.calls import part_of
    from nnet3tools.tensor.native.jobs import Part, Series

    waiting: list[Part] = []
    first = 0
    for c, step in steps:
        part = part_of(step) if isinstance(step, Call) else None
        if part is not None and part[0] is not None:
            first = first if waiting else c
            waiting.append(part)
            continue
        if waiting:
            yield first, Series(waiting)
            waiting = []
        yield c, _run_of(step)
    if waiting:
        yield first, Series(waiting)


def _run_of(step: Step) -> Step:
    return step.bound() if isinstance(step, Call) else step


def _in_turn(calls: Sequence[Call]) -> Callable[[], None]:
    runs = tuple(call.bound() for call in calls)

    def run() -> None:
        for one in runs:
            one()

    return run

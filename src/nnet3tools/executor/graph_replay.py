"""Programs on a GPU as CUDA graphs: captured at their second use, replayed from then on.

A graph repeats device work and nothing else. What the host has to decide or count meanwhile is
declared (tensor/host.py): it is done again before each launch, and each outcome of the decisions,
a variant of the work, has its own graph, captured when it comes up. Programs are cut into sections
with few random decisions each, as every one of them may double the variants.

Steps that change the host in ways not declared must run themselves each time. Which these are is
found out at the first use, by watching the host while each step runs; again at the second, if what
was seen at the first was declared to be no example.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.nnet.natural_gradient_updates import catch_up, forget_updates
from nnet3tools.tensor.arrays import captured_scratch, count_transfers
from nnet3tools.tensor.host import Event, NotCapturable, Tape, taping

if TYPE_CHECKING:
    from nnet3tools.executor.lowering import Binding, Step
    from nnet3tools.executor.program import Segment
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["GraphReplayer", "WorkReplayer", "graph_capture"]

Capture = Callable[[Callable[[], None]], Callable[[], None]]

_MAX_WATCHES = 2
"""Runs that are watched at most."""
_MAX_RANDOM = 3
"""Random decisions in one section: it has up to 2 ** 3 variants for them alone."""


def graph_capture() -> Capture:
    """How the GPU in use captures work."""
    from nnet3tools.tensor.cupy_backend.device import get_device

    return get_device().capture


class GraphReplayer:
    """Runs the segments of one bound program, by graphs where it can.

    `capture` records device work instead of doing it and returns what does it.
    """

    def __init__(self, binding: Binding, capture: Capture) -> None:
        self._binding, self._capture = binding, capture
        self._host_side: set[int] = set()
        """Commands that must run themselves."""
        self._random: dict[int, int] = {}
        """Command -> how many decisions of its first run were random."""
        self._watches: dict[int, int] = {}
        """Segment -> how often it is still to be watched; less if nothing is left to see."""
        self._sections: dict[int, list[tuple[int, Step]]] = {}
        self._segments: list[Segment] = []
        self._memory: dict[tuple[int, int], Any] = {}
        """What `tensor.host.kept` gave to steps: memos have one address in all variants."""

    def steps(self, segment: Segment) -> Iterable[tuple[int, Step]]:
        """(first command, work) to do in turn to run the segment this time."""
        key = id(segment)
        forget_updates()
        if key not in self._watches:
            self._segments.append(segment)  # keeps the id its own
            self._watches[key] = _MAX_WATCHES
        if self._watches[key] > 0:
            left, self._watches[key] = self._watches[key] - 1, 0
            return [(c, self._watched(c, step, key, left)) for c, step in self._steps(segment)]
        if key not in self._sections:
            self._sections[key] = list(self._make_sections(segment))
            self._tell(segment)
        return self._sections[key]

    def _steps(self, segment: Segment) -> list[tuple[int, Step]]:
        """The segment's steps, and one for natural gradient's updates that they put off."""
        commands = self._binding.computation.commands
        if not any(getattr(commands[c], "UPDATES", False) for c, _ in segment.steps):
            return segment.steps
        return [*segment.steps, (segment.steps[-1][0], catch_up)]

    # -- the first use

    def _watched(self, c: int, step: Step, segment: int, left: int) -> Step:
        def run() -> None:
            tape = _Watch(lambda: self._host_state(c), self._memory)
            tape.begin(c)
            with taping(tape):
                step()
            if tape.excused and left:
                self._watches[segment] = left
            elif tape.has_changed():
                self._host_side.add(c)
            self._random[c] = max(self._random.get(c, 0), tape.num_random)

        return run

    def _host_state(self, c: int) -> tuple[Any, ...]:
        """What of the host the step of command c may change: generator, traffic, components."""
        number = getattr(self._binding.computation.commands[c], "component", None)
        networks = (
            self._binding.nnet, self._binding.nnet_to_update, self._binding.nnet_to_store_stats
        )  # fmt: skip
        scalars: list[Any] = []
        if number is not None:
            for nnet in networks:
                if nnet is not None:
                    _collect(nnet.component(number), scalars, set())
        return tensor.random.get_state(), count_transfers(), scalars

    # -- from the second use on

    def _make_sections(self, segment: Segment) -> Iterable[tuple[int, Step]]:
        """Host-side steps alone, the others in sections of not too many random decisions."""
        steps: list[tuple[int, Step]] = []
        random = 0
        for c, step in self._steps(segment):
            weight = self._random.get(c, 0)
            outside = c in self._host_side
            if steps and (outside or random + weight > _MAX_RANDOM):
                yield steps[0][0], _Section(steps, self._capture, self._memory).run
                steps, random = [], 0
            if outside:
                yield c, self._alone(c, step)
            else:
                steps.append((c, step))
                random += weight
        if steps:
            yield steps[0][0], _Section(steps, self._capture, self._memory).run

    def _alone(self, c: int, step: Step) -> Step:
        def run() -> None:
            tape = Tape(memory=self._memory)
            tape.begin(c)
            with taping(tape):
                step()

        return run

    def _tell(self, segment: Segment) -> None:
        outside = [c for c, _ in segment.steps if c in self._host_side]
        if outside:
            log.vlog(
                2,
                f"{len(outside)} of {len(segment.steps)} steps have work for the host and run "
                f"outside of CUDA graphs: commands {', '.join(f'c{c}' for c in outside)}",
            )


class WorkReplayer:
    """Runs device work that is no program, such as the parameter update, by graphs.

    `networks` are what it may change on the host.
    """

    def __init__(self, networks: Sequence[Nnet], capture: Capture) -> None:
        self._networks, self._capture = networks, capture
        self._sections: dict[Hashable, _Section | None] = {}

    def run(self, key: Hashable, work: Step) -> None:
        """Do the work. That of an equal key must be the same, declared decisions excepted."""
        if key not in self._sections:
            self._watch(key, work)
        elif (section := self._sections[key]) is None:
            work()
        else:
            section.run()

    def _watch(self, key: Hashable, work: Step) -> None:
        """The first run; others follow where it was no example."""
        tape = _Watch(self._host_state, {})
        with taping(tape):
            work()
        if tape.has_changed() and not tape.excused:
            log.vlog(2, f"{key} has work for the host and runs outside of CUDA graphs")
            self._sections[key] = None
        elif not tape.excused:
            self._sections[key] = _Section([(0, work)], self._capture, {})

    def _host_state(self) -> tuple[Any, ...]:
        scalars: list[Any] = []
        for network in self._networks:
            for component in network.components:
                _collect(component, scalars, set())
        return tensor.random.get_state(), count_transfers(), scalars


class _Watch(Tape):
    """Sees what a step changes on the host other than by declared events; counts random ones."""

    def __init__(
        self, state: Callable[[], tuple[Any, ...]], memory: dict[tuple[int, int], Any]
    ) -> None:
        super().__init__(memory=memory)
        self.num_random = 0
        self._state, self._seen, self._changed = state, state(), False

    def perform(self, event: Event) -> Hashable:
        before = self._state()
        self._changed |= before != self._seen
        value = super().perform(event)
        self._seen = self._state()
        self.num_random += value is not None and self._seen[0] != before[0]
        return value

    def has_changed(self) -> bool:
        """Whether anything but declared events changed the host so far."""
        return self._changed or self._state() != self._seen


@dataclass
class _Node:
    """A place in the course of a section's events: after some of them, with some outcomes."""

    event: Event | None = None
    """What comes next; None: nothing, or nobody knows yet."""
    after: dict[Hashable, _Node] = field(default_factory=dict)
    """Outcome of the event -> where it leads."""
    work: Callable[[list[Hashable]], None] | None = None
    """At the end: what does the device's work, given all outcomes."""


class _Section:
    """Steps that run as one graph for each variant."""

    def __init__(
        self,
        steps: list[tuple[int, Step]],
        capture: Capture,
        memory: dict[tuple[int, int], Any],
    ) -> None:
        self._steps, self._capture, self._memory = steps, capture, memory
        self._root = _Node()

    def run(self) -> None:
        """The host's part, as far as it is known; then the graph, or a first run of the variant."""
        node, done = self._root, list[Hashable]()
        while node.event is not None:
            done.append(node.event())
            node = node.after.setdefault(done[-1], _Node())
        if node.work is None:
            node, done = self._record(done)
        assert node.work is not None
        node.work(done)

    def _record(self, done: list[Hashable]) -> tuple[_Node, list[Hashable]]:
        """Capture a variant that begins with these outcomes; its node and all of its outcomes."""
        tape = Tape(done, capturing=True, memory=self._memory)
        work: Callable[[list[Hashable]], None]
        try:
            with captured_scratch():
                replay = self._capture(lambda: self._go(tape))
        except NotCapturable as reason:
            work = self._run_live
            if reason.for_now:
                return _Node(work=work), tape.values
            log.vlog(2, f"command c{tape.step} has work for the host: outside of CUDA graphs")
        else:
            work = lambda _: replay()  # noqa: E731
        node = self._root
        for event, value in zip(tape.events, tape.values, strict=True):
            node.event = node.event or event
            node = node.after.setdefault(value, _Node())
        node.work = work
        return node, tape.values

    def _run_live(self, done: list[Hashable]) -> None:
        self._go(Tape(done, memory=self._memory))

    def _go(self, tape: Tape) -> None:
        with taping(tape):
            for c, step in self._steps:
                tape.begin(c)
                step()


def _collect(owner: Any, scalars: list[Any], seen: set[int]) -> None:
    """Numbers and flags of an object and the objects it holds; of arrays, which they are."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    for value in vars(owner).values():
        if isinstance(value, (bool, int, float, str)) or value is None:
            scalars.append(value)
        elif hasattr(value, "dtype"):
            scalars.append(id(value))
        elif isinstance(value, (list, tuple)):
            for item in value:
                if hasattr(item, "__dict__"):
                    _collect(item, scalars, seen)
        elif type(value).__module__.startswith("nnet3tools.nnet") and hasattr(value, "__dict__"):
            _collect(value, scalars, seen)

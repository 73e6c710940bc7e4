"""Streams, events and captures of the modelled GPU (CuPy's stream.pyx and CUDA's rules).

Work waits in its stream's queue: until somebody waits for it (`Schedule.LATE`), not at all
(`EARLY`), or until chance has it (`RANDOM`). All three are what a GPU may do, so what is right
gives the same in each. A captured graph knows which work depends on which; what does not may run in
any order.
"""

from __future__ import annotations

import enum
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from support.model_memory import OUT_OF_MEMORY, CUDARuntimeError, DeviceMemory, Pool

_INVALID = 901


class Schedule(enum.IntEnum):
    """When work is done, and in which order what is free to run in any."""

    LATE = 0
    EARLY = 1
    RANDOM = 2


@dataclass(frozen=True)
class Launch:
    """A kernel, product or copy as a stream gets it; without a name: what the model does itself."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    args: tuple[Any, ...] = field(default=(), repr=False)
    """Of a kernel; of a product its type, rows, columns, inner size, batch and leading dimensions,
    for column-major matrices."""
    graph: int | None = None
    """Which launch of a graph since the start it was part of; None: by itself."""


@dataclass
class Node:
    """Work in a graph."""

    launch: Launch
    work: Callable[[], None]
    after: frozenset[int]


class Capture:
    """A capture under way: nodes, and of each stream in it the nodes that its next one follows."""

    def __init__(self, origin: Stream) -> None:
        self.origin = origin
        self.nodes: list[Node] = []
        self.ends: dict[Stream, frozenset[int]] = {origin: frozenset()}
        self.problem = ""

    def add(self, stream: Stream, launch: Launch, work: Callable[[], None]) -> None:
        """Let a stream do something next."""
        self.nodes.append(Node(launch, work, self.ends[stream]))
        self.ends[stream] = frozenset([len(self.nodes) - 1])

    def before(self, ends: frozenset[int]) -> set[int]:
        """All nodes that are done when these are."""
        found, left = set(ends), list(ends)
        while left:
            more = self.nodes[left.pop()].after - found
            found |= more
            left += more
        return found


class _Local(threading.local):
    """A thread's device and current stream, the stack of `with stream`, and its allocators."""

    def __init__(self, null: Stream) -> None:
        self.device = 0
        self.current, self.stack = null, [null]
        self.allocator: Any = None


class Machine:
    """A device with its streams and memory, and a log of what it was asked to do."""

    def __init__(
        self,
        schedule: Schedule = Schedule.LATE,
        processors: int = 2,
        memory: int = 1 << 34,
        runs: bool = True,
        device: int = 0,
        lacks_memory_for: str = "",
    ) -> None:
        """`runs`: whether anything is done, or only taken down. `device` is this thread's."""
        self.schedule, self.processors, self.runs = schedule, processors, runs
        self.memory = DeviceMemory(memory)
        self.random = random.Random(1)
        self.streams: list[Stream] = []
        self.null = Stream(null=True, machine=self)
        self.tls = _Local(self.null)
        self.tls.device = device
        self.contexts = {device}
        """The devices on which there is a context."""
        self.default_pool = Pool(self)
        self.captures: list[Capture] = []
        """Those under way."""
        self.log: list[Launch] = []
        """All work in the order in which it was asked for."""
        self.launched: list[str] = []
        """The names of the same; "graph", then those of its nodes."""
        self.uploads = self.downloads = 0
        self.graph_launches = self.graph_nodes = 0
        """How many graphs were launched, and nodes with them."""
        self.working = threading.RLock()
        """Who reads ahead waits for events: two threads would run kernels at a time."""
        self.shared_limits: dict[tuple[str, str], int] = {}
        """Most dynamic shared memory that functions (source, name) were given."""
        self.lacks_memory_for = lacks_memory_for
        """For which work of CUDA there is no memory: module, kernel, graph, launch, cublas."""
        self.stray: list[str] = []
        """Kernels and the like that ran at once, or later, though a capture was under way."""

    def take_driver_memory(self, use: str, error: type[CUDARuntimeError]) -> None:
        """Raise `error` if there is no memory for this work of CUDA's, which no pool serves."""
        if use == self.lacks_memory_for:
            raise error(OUT_OF_MEMORY, "out of memory")

    def note(self, launch: Launch) -> None:
        """Log it."""
        self.log.append(launch)
        self.launched.append(launch.name)

    def set_device(self, number: int) -> None:
        """Let this thread use a device; from CUDA 12 on that makes a context on it."""
        self.tls.device = number
        self.contexts.add(number)

    def current_stream(self) -> Stream:
        """Of this thread."""
        return self.tls.current

    def flush(self) -> None:
        """Do all that is waiting."""
        for stream in self.streams:
            stream.flush()

    @contextmanager
    def allocator(self, malloc: Any) -> Iterator[None]:
        """Let this thread's arrays come from elsewhere."""
        before, self.tls.allocator = self.tls.allocator, malloc
        try:
            yield
        finally:
            self.tls.allocator = before

    def malloc(self, num_bytes: int) -> Any:
        """By the allocator in use."""
        return (self.tls.allocator or self.default_pool.malloc)(num_bytes)


_machines: list[Machine] = []


def get_machine() -> Machine:
    """The modelled device in use."""
    if not _machines:
        _machines.append(Machine())
    return _machines[-1]


def set_machine(machine: Machine) -> None:
    """Use another from here on."""
    _machines[:] = [machine]


@dataclass(eq=False)
class Event:
    """A place in a stream, or in a capture."""

    disable_timing: bool = False
    stream: Stream | None = None
    place: int = 0
    capture: Capture | None = None
    ends: frozenset[int] = field(default_factory=frozenset)

    @property
    def done(self) -> bool:
        return self.stream is None or self.stream.num_done >= self.place

    def record(self, stream: Stream | None = None) -> None:
        """All that the stream was given so far."""
        (stream or get_machine().current_stream()).record(self)

    def synchronize(self) -> None:
        """Wait, on the host."""
        if self.capture is not None:
            raise CUDARuntimeError(_INVALID, "the event was recorded in a capture")
        if self.stream is not None:
            self.stream.flush(self.place)


class Stream:
    """A queue of work."""

    def __init__(
        self, null: bool = False, non_blocking: bool = False, machine: Machine | None = None,
        ptds: bool = False, priority: int | None = None,
    ) -> None:  # fmt: skip
        self._machine = machine or get_machine()
        self.ptr = 0 if null else 1000 + len(self._machine.streams)
        self.capture: Capture | None = None
        self.num_given = self.num_done = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._machine.streams.append(self)

    # -- which stream is current: `use` leaves the stack of `with` alone

    def use(self) -> Stream:
        """Make it current."""
        self._machine.tls.current = self
        return self

    def __enter__(self) -> Stream:
        self._machine.tls.stack.append(self)
        self._machine.tls.current = self
        return self

    def __exit__(self, *_: object) -> None:
        tls = self._machine.tls
        tls.stack.pop()
        tls.current = tls.stack[-1]

    # -- work

    def do(self, launch: Launch | str, work: Callable[[], Any], is_upload: bool = False) -> None:
        """Give it work."""
        machine = self._machine
        launch = Launch(launch) if isinstance(launch, str) else launch
        if self.capture is not None:
            self.capture.add(self, launch, work)
            return
        if launch.name:
            if machine.captures and not is_upload:
                machine.stray.append(launch.name)
            machine.note(launch)
        self._give(work)

    def _give(self, work: Callable[[], None]) -> None:
        if not self._machine.runs:
            return
        self.num_given += 1
        self._queue.append(work)
        schedule, streams = self._machine.schedule, self._machine.streams
        if schedule is Schedule.EARLY:
            self.flush()
        elif schedule is Schedule.RANDOM and self._machine.random.random() < 0.3:
            self._machine.random.choice(streams).flush_some()

    def flush(self, place: int | None = None) -> None:
        """Do what is waiting here (up to a place), and what that waits for elsewhere."""
        with self._machine.working:
            while self._queue and (place is None or self.num_done < place):
                work = self._queue.popleft()
                work()
                self.num_done += 1

    def flush_some(self) -> None:
        """Do a part of what is waiting."""
        self.flush(self.num_done + self._machine.random.randint(0, len(self._queue)))

    def synchronize(self) -> None:
        """Wait, on the host."""
        if self.capture is not None:
            self.capture.problem = "the host waited for a capturing stream"
            raise CUDARuntimeError(_INVALID, self.capture.problem)
        self.flush()

    def record(self, event: Event | None = None) -> Event:
        """An event at the end of its queue."""
        event = Event() if event is None else event
        event.stream, event.place = self, self.num_given
        event.capture = self.capture
        if self.capture is not None:
            event.stream, event.ends = None, self.capture.ends[self]
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work begin after an event; in a capture, that joins its streams."""
        if event.capture is not None:
            capture = event.capture
            if capture not in self._machine.captures or self.capture not in (None, capture):
                raise CUDARuntimeError(_INVALID, "the event belongs to another capture")
            self.capture = capture
            capture.ends[self] = capture.ends.get(self, frozenset()) | event.ends
        elif self.capture is not None:
            self.capture.problem = "a capturing stream waits for what is outside of the capture"
            raise CUDARuntimeError(_INVALID, self.capture.problem)
        elif not event.done:
            self._give(event.synchronize)

    # -- captures

    def begin_capture(self, mode: Any = None) -> None:
        """Take down what this stream is given, and all that join it."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self.capture is not None:
            raise CUDARuntimeError(_INVALID, "the stream is being captured")
        self.capture = Capture(self)
        self._machine.captures.append(self.capture)

    def is_capturing(self) -> bool:
        """Whether work is taken down instead of done."""
        return self.capture is not None

    def end_capture(self) -> Graph:
        """The graph; CUDARuntimeError if a stream has not come back, or something was forbidden."""
        capture = self.capture
        if capture is None or capture.origin is not self:
            raise CUDARuntimeError(_INVALID, "the capture was not begun here")
        self._machine.captures.remove(capture)
        for stream in capture.ends:
            stream.capture = None
        if capture.problem:
            raise CUDARuntimeError(_INVALID, capture.problem)
        if len(capture.before(capture.ends[self])) < len(capture.nodes):
            raise CUDARuntimeError(904, "cudaErrorStreamCaptureUnjoined")
        self._machine.take_driver_memory("graph", CUDARuntimeError)
        return Graph(self._machine, capture.nodes)


class Graph:
    """Captured work."""

    def __init__(self, machine: Machine, nodes: list[Node]) -> None:
        self._machine, self.nodes = machine, nodes
        self.launches = [node.launch for node in nodes if node.launch.name]

    def launch(self, stream: Stream | None = None) -> None:
        """Do it all, in an order that its dependencies allow."""
        machine = self._machine
        stream = stream or machine.current_stream()
        if stream.capture is not None:
            raise CUDARuntimeError(_INVALID, "a graph was launched in a capture")
        machine.take_driver_memory("launch", CUDARuntimeError)
        machine.graph_launches += 1
        machine.graph_nodes += len(self.launches)
        machine.launched.append("graph")
        for launch in self.launches:
            machine.note(replace(launch, graph=machine.graph_launches))
        stream._give(self._run)

    def _run(self) -> None:
        waiting = [len(node.after) for node in self.nodes]
        followers: list[list[int]] = [[] for _ in self.nodes]
        for i, node in enumerate(self.nodes):
            for j in node.after:
                followers[j].append(i)
        ready = deque(i for i, count in enumerate(waiting) if count == 0)
        while ready:
            i = self._choose(ready)
            self.nodes[i].work()
            for j in followers[i]:
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)

    def _choose(self, ready: deque[int]) -> int:
        if self._machine.schedule is Schedule.EARLY:
            return ready.pop()
        if self._machine.schedule is Schedule.RANDOM:
            ready.rotate(self._machine.random.randrange(len(ready)))
        return ready.popleft()

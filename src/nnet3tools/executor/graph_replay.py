"""Programs on a GPU as CUDA graphs: captured at their second use, replayed from then on.

A graph repeats device work and nothing else. Steps whose Python code does more, say decides by a
random number, counts minibatches, or looks at the device, must run themselves each time. Which
these are is found out at the first use, by watching the host while each step runs; runs of steps
between them become graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.tensor.arrays import count_transfers, separate_pool

if TYPE_CHECKING:
    from nnet3tools.executor.lowering import Binding, Step
    from nnet3tools.executor.program import Segment

__all__ = ["GraphReplayer", "graph_capture"]

Capture = Callable[[Callable[[], None]], Callable[[], None]]


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
        self._used: set[int] = set()
        self._sections: dict[int, list[tuple[int, Step]]] = {}
        self._segments: list[Segment] = []

    def steps(self, segment: Segment) -> Iterable[tuple[int, Step]]:
        """(first command, work) to do in turn to run the segment this time."""
        key = id(segment)
        if key in self._sections:
            return self._sections[key]
        if key in self._used:
            return self._second_use(segment)
        self._used.add(key)
        self._segments.append(segment)  # keeps the id its own
        return [(c, self._watched(c, step)) for c, step in segment.steps]

    # -- the first use

    def _watched(self, c: int, step: Step) -> Step:
        def run() -> None:
            before = self._host_state(c)
            step()
            if self._host_state(c) != before:
                self._host_side.add(c)

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

    # -- the second use

    def _second_use(self, segment: Segment) -> Iterable[tuple[int, Step]]:
        """Capture and run section by section; the sections are kept when all has gone well."""
        host_side = self._with_memos()
        sections: list[tuple[int, Step]] = []
        for first, steps, outside in _sections(segment.steps, host_side):
            run = steps[0] if outside else self._graph(steps)
            sections.append((first, run))
            yield first, run
        self._sections[id(segment)] = sections
        self._tell(segment, host_side)

    def _with_memos(self) -> set[int]:
        """Host-side commands, and those that hand memos to them or take memos from them.

        A graph has the addresses of one memo's arrays in it, so that both ends must be in graphs.
        """
        memos: dict[int, list[int]] = {}
        for c, command in enumerate(self._binding.computation.commands):
            if memo := getattr(command, "memo", 0):
                memos.setdefault(memo, []).append(c)
        found = set(self._host_side)
        for ends in memos.values():
            if not found.isdisjoint(ends):
                found.update(ends)
        return found

    def _graph(self, steps: list[Step]) -> Step:
        def work() -> None:
            for step in steps:
                step()

        with separate_pool() as pool:
            replay = self._capture(work)

        def run() -> None:
            replay()
            pool  # noqa: B018 (the graph uses its memory)

        return run

    def _tell(self, segment: Segment, host_side: set[int]) -> None:
        outside = [c for c, _ in segment.steps if c in host_side]
        if outside:
            log.vlog(
                2,
                f"{len(outside)} of {len(segment.steps)} steps have work for the host and run "
                f"outside of CUDA graphs: commands {', '.join(f'c{c}' for c in outside)}",
            )


def _sections(
    steps: list[tuple[int, Step]], host_side: set[int]
) -> list[tuple[int, list[Step], bool]]:
    """(first command, its steps, whether outside of graphs): host-side ones stand alone."""
    found: list[tuple[int, list[Step], bool]] = []
    for c, step in steps:
        outside = c in host_side
        if outside or not found or found[-1][2]:
            found.append((c, [step], outside))
        else:
            found[-1][1].append(step)
    return found


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

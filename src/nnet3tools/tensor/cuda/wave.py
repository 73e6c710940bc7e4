"""A wave: launches that one kernel does, side by side or one after the other (wave_source.py).

Into it go launches that wait for nothing, and of those that wait for others in it

- what works, point by point, on what one before made of the same points: the thread that has made
  it goes on with it;
- what is so small that one block can do it: the last block of what it waits for does it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from nnet3tools.tensor.cuda.device import Device
from nnet3tools.tensor.cuda.launches import Launch, Other
from nnet3tools.tensor.cuda.operands import overlap
from nnet3tools.tensor.cuda.wave_source import (
    GROUP,
    PART,
    STEP,
    THREADS,
    Function,
    as_function,
    as_word,
    wave_source,
)
from nnet3tools.tensor.cuda.wave_table import Table, in_turns, is_for_a_warp, smaller_grids

__all__ = ["Wave", "fits"]

_SMALL = 1024
"""Points that one block may do at the end of a wave."""
_MOST_CLOSING = 32
"""Kernels that one block may do there."""
_LARGE = 1 << 20
"""Bytes that a launch reads and writes."""
_MOST_FUNCTIONS, _MOST_SHARED = 24, 40 << 10
"""Of a wave: different kernels, which all have the registers of the one that needs most; bytes."""


class _Part:
    """Steps that a range of blocks does one after the other; all of one space."""

    def __init__(self, first: Launch, group: int) -> None:
        self.steps, self.group = [first], group

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along x and y, all steps the same."""
        x, y, _ = self.steps[0].grid
        return x, y

    @property
    def loops(self) -> bool:
        """Whether fewer blocks do the same work."""
        return all(step.loops for step in self.steps)

    def takes(self, launch: Launch) -> bool:
        """Whether its threads can go on with a launch at the same points."""
        first = self.steps[0]
        if launch.space is None or launch.space != first.space or launch.grid != first.grid:
            return False
        return all(_by_points(step, launch) for step in self.steps)


def _by_points(before: Launch, after: Launch) -> bool:
    """Whether what both use, and one changes, are the same points in the same threads."""
    own = {id(a) for a in before.points}, {id(a) for a in after.points}
    for ours, theirs in (
        (before.writes, (*after.reads, *after.writes)),
        (before.reads, after.writes),
    ):
        for a in ours:
            for b in theirs:
                how = overlap(a, b)
                if how and not (how == "same" and id(a) in own[0] and id(b) in own[1]):
                    return False
    return True


class Wave:
    """Launches that one kernel does."""

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._closing: dict[int, list[Launch]] = {}
        """Group -> what its last block does, in order."""
        self._part_of: dict[int, _Part] = {}
        self._group_of: dict[int, int] = {}
        self._functions: dict[str, Function] = {}
        self._shared = 0
        self._loops: bool | None = None
        """Whether its large launches loop, as those do that work by points; None: it has none."""

    def takes(self, i: int, launch: Launch, waits_for: Iterable[int]) -> bool:
        """Make a launch part of this wave, if it can be; `waits_for` are numbers of launches."""
        needed = list(waits_for)
        function = as_function(launch.source)
        if (
            function is None
            or not self._has_room(function)
            or not (needed or self._is_of_a_kind(launch))
        ):
            return False
        if not needed:
            part = _Part(launch, len(self._parts))
            self._parts.append(part)
            self._closing[part.group] = []
            self._part_of[i], self._group_of[i] = part, part.group
        elif not (self._continues(i, launch, needed) or self._closes(i, launch, needed)):
            return False
        if function.name not in self._functions:
            self._functions[function.name] = function
            self._shared += function.shared_bytes
        return True

    def _is_of_a_kind(self, launch: Launch) -> bool:
        """Whether the large launches of this wave all reduce, or none does.

        Kernels that reduce have many registers, so that fewer blocks are at work at once: copies in
        one wave with them took an H100 twice the time of two kernels.
        """
        if launch.num_bytes < _LARGE:
            return True
        if self._loops is None:
            self._loops = launch.loops
        return self._loops == launch.loops

    def _has_room(self, function: Function) -> bool:
        if function.name in self._functions:
            return True
        few = len(self._functions) < _MOST_FUNCTIONS
        return few and self._shared + function.shared_bytes <= _MOST_SHARED

    def _continues(self, i: int, launch: Launch, needed: list[int]) -> bool:
        parts = {id(p): p for p in map(self._part_of.get, needed)}
        part = next(iter(parts.values()))
        if len(parts) > 1 or part is None or not part.takes(launch):
            return False
        part.steps.append(launch)
        self._part_of[i], self._group_of[i] = part, part.group
        return True

    def _closes(self, i: int, launch: Launch, needed: list[int]) -> bool:
        if launch.grid != (1, 1, 1) and not (launch.loops and launch.size <= _SMALL):
            return False
        groups = sorted({self._group_of[n] for n in needed})
        if sum(len(self._closing[g]) for g in groups) >= _MOST_CLOSING:
            return False
        first, *others = groups
        for group in others:
            self._closing[first] += self._closing.pop(group)
            for part in self._parts:
                if part.group == group:
                    part.group = first
            for n, g in self._group_of.items():
                if g == group:
                    self._group_of[n] = first
        self._closing[first].append(launch)
        self._group_of[i] = first
        return True

    @property
    def num_bytes(self) -> int:
        """Bytes of the arrays that its launches read or write."""
        launches = [step for part in self._parts for step in part.steps]
        return sum(x.num_bytes for x in (*launches, *itertools.chain(*self._closing.values())))

    # -- as a kernel

    @property
    def source(self) -> tuple[str, str] | None:
        """Source and name of its kernel; None if it is a launch with a kernel of its own."""
        if len(self._parts) == 1 and len(self._part_of) == 1 and not any(self._closing.values()):
            return None
        functions = [self._functions[name] for name in sorted(self._functions)]
        return wave_source(functions, any(self._closing.values()))

    def bound(self, device: Device, table: Table) -> Callable[[], None]:
        """The kernel, loaded, with what it has to know added to a table."""
        if (source := self.source) is None:
            return self._parts[0].steps[0]
        kernel = device.kernel(*source)
        grids = smaller_grids(
            [part.grid for part in self._parts],
            [part.loops for part in self._parts],
            device.num_processors,
        )
        words, numbers, blocks = self._table(grids)
        begin = len(table.words)
        table.words += words
        tickets = len(table.words)
        table.words += [0] * len(self._closing)

        def run() -> None:
            args = table.address(begin), table.address(tickets), *map(np.int64, numbers)
            kernel((blocks, 1, 1), (THREADS, 1, 1), args)
            self  # noqa: B018 (the kernel knows arrays by address only)

        return run

    def _table(
        self, grids: Sequence[tuple[int, int]]
    ) -> tuple[list[int], tuple[int, int, int], int]:
        """The table; the number of parts, where groups and steps begin in it; blocks."""
        kinds = {name: k for k, name in enumerate(sorted(self._functions))}
        parts, groups, steps = list[int](), list[int](), list[Launch]()
        numbers = {group: n for n, group in enumerate(self._closing)}
        of_group = dict.fromkeys(self._closing, 0)
        blocks = 0
        for part, (x, y) in zip(self._parts, grids, strict=True):
            parts += [blocks, x, y, 0, 0, len(steps), len(part.steps), numbers[part.group]]
            steps += part.steps
            blocks += x * y
            of_group[part.group] += x * y
        side_by_side = [0] * len(steps)
        for group, launches in self._closing.items():
            groups += [of_group[group], len(steps), len(launches)]
            for turn in in_turns(launches):
                steps += turn
                side_by_side += [len(turn) if is_for_a_warp(turn[0]) else 0]
                side_by_side += [0] * (len(turn) - 1)
        begin = len(parts) + len(groups)
        at = begin + STEP * len(steps)
        described, args = list[int](), list[int]()
        for step, side in zip(steps, side_by_side, strict=True):
            function = as_function(step.source)
            assert function is not None
            x, y, _ = step.block
            described += [kinds[function.name], at + len(args), x, y, side]
            args += map(as_word, step.args)
        assert len(parts) == PART * len(self._parts)
        assert len(groups) == GROUP * len(self._closing)
        table = [*parts, *groups, *described, *args]
        return table, (len(self._parts), len(parts), begin), blocks


def fits(node: Launch | Other) -> bool:
    """Whether a node can be part of a wave."""
    if isinstance(node, Other):
        return False
    function = as_function(node.source)
    if function is None or node.grid[2] != 1 or node.block[2] != 1:
        return False
    if function.shared_bytes > _MOST_SHARED:
        return False
    threads = node.block[0] * node.block[1]
    return threads == THREADS if function.has_barriers else threads <= THREADS

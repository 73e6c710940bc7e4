"""A graph's launches in fewer kernels: what does not depend on each other runs as one wave.

A list of launches (launches.py), each with the memory it reads and writes, is a graph of what has
to wait for what. It is done in turns: all products that wait for nothing, then one wave of all
kernels that wait for nothing, and so on, so that there are no more waves than the longest chain
has. Into a wave go, besides,

- kernels that work, point by point, on what one before made of the same points: the thread that has
  made it goes on with it;
- kernels so small that one block can do them: the last block of what they wait for does them.

So neither fills nor copies nor numbers have kernels of their own. Every element is computed as it
would have been by itself, and sums are added in the same order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.cupy_backend.device import Array, Device, get_device, pointer
from nnet3tools.tensor.cupy_backend.launches import Launch, Other, Product, noted
from nnet3tools.tensor.cupy_backend.operands import overlap
from nnet3tools.tensor.cupy_backend.products import joined
from nnet3tools.tensor.cupy_backend.wave_source import (
    GROUP,
    PART,
    STEP,
    THREADS,
    Function,
    as_function,
    as_word,
    wave_source,
)

__all__ = ["capture", "waves_of"]

Node = Launch | Other

_SMALL = 1024
"""Points that one block may do at the end of a wave."""
_MOST_CLOSING = 32
"""Kernels that one block may do there."""
_MOST_FUNCTIONS, _MOST_SHARED = 24, 40 << 10
"""Of a wave: different kernels, which all have the registers of the one that needs most; bytes."""


def capture(work: Callable[[], None]) -> Callable[[], None]:
    """A graph of what some work launches, in waves; see Device.capture."""
    device = get_device()
    _steps(work, device, prepare=True)  # loads kernels, which a capture does not allow

    steps = list[Callable[[], Any]]()

    def in_waves() -> None:
        steps.extend(_steps(work, device))
        for step in steps:
            step()

    graph = device.capture(in_waves)

    def replay() -> None:
        graph()
        steps  # noqa: B018 (its kernels know arrays by address only)

    return replay


def _steps(
    work: Callable[[], None], device: Device, prepare: bool = False
) -> list[Callable[[], Any]]:
    """What does the work; with `prepare` its kernels are loaded, and nothing more."""
    with noted() as nodes:
        work()
    table, steps = Table(), list[Callable[[], Any]]()
    for group in waves_of(nodes):
        if isinstance(group, Wave):
            steps.append(group.bound(device, table))
        else:
            steps += _alone(group)
    if not prepare:
        table.upload(device)
    return steps


def _alone(nodes: Sequence[Node]) -> list[Callable[[], Any]]:
    """Work of nodes that do not wait for each other; products are joined where they can be."""
    steps, products = list[Callable[[], Any]](), dict[object, list[Product]]()
    for node in nodes:
        if isinstance(node, Product) and node.form is not None:
            products.setdefault(node.form, []).append(node)
        else:
            steps.append(node.run if isinstance(node, Other) else node)
    for same in products.values():
        steps += joined(same)
    return steps


class Table:
    """The words that the kernels of a graph look things up in: one array."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self._array: Array = None

    def upload(self, device: Device) -> None:
        """Make an array of it, which is then all there is to it."""
        if self.words:
            self._array = device.upload(np.array(self.words, np.int64))

    def address(self, word: int) -> np.uint64:
        """Where a word lies."""
        return np.uint64(pointer(self._array) + 8 * word)


# -- what waits for what


def _spans(arrays: Sequence[Array]) -> np.ndarray:
    """A row for each array: first byte, one past the last, and a block of columns' pitch and width.

    The two are bytes, and 0 for what is no block of columns.
    """
    rows = np.zeros((len(arrays), 4), np.int64)
    for row, a in zip(rows, arrays, strict=True):
        low = high = pointer(a)
        if 0 in a.shape:
            row[:2] = low
            continue
        for size, stride in zip(a.shape, a.strides, strict=True):
            if stride < 0:
                low += (size - 1) * stride
            else:
                high += (size - 1) * stride
        row[:2] = low, high + a.dtype.itemsize
        if a.ndim == 2 and a.strides[1] > 0 and a.shape[0] > 1:
            width = (a.shape[1] - 1) * a.strides[1] + a.dtype.itemsize
            if 0 < width <= a.strides[0]:
                row[2:] = a.strides[0], width
    return rows


def _dependencies(nodes: Sequence[Node]) -> list[set[int]]:
    """For each node the earlier ones that it must wait for."""
    owners, arrays, writes = list[int](), list[Array](), list[bool]()
    for i, node in enumerate(nodes):
        written = {id(a) for a in node.writes}
        for a in {id(a): a for a in (*node.reads, *node.writes)}.values():
            owners.append(i)
            arrays.append(a)
            writes.append(id(a) in written)
    spans, owner, write = _spans(arrays), np.array(owners), np.array(writes, bool)
    low, high, pitch, width = spans.T
    found: list[set[int]] = [set() for _ in nodes]
    for k in range(len(owners)):
        begin = int(np.searchsorted(owner, owner[k]))
        meets = (low[:begin] < high[k]) & (low[k] < high[:begin])
        if not write[k]:
            meets &= write[:begin]
        (others,) = np.nonzero(meets)
        if pitch[k] and others.size:
            gap = (low[others] - low[k]) % pitch[k]
            apart = (pitch[others] == pitch[k]) & (gap >= width[k])
            others = others[~(apart & (gap + width[others] <= pitch[k]))]
        found[owner[k]].update(owner[others].tolist())
    return found


# -- waves


class _Part:
    """Steps that a range of blocks does one after the other; all of one space."""

    def __init__(self, first: Launch, group: int) -> None:
        self.steps, self.group = [first], group

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

    def takes(self, i: int, launch: Launch, waits_for: Iterable[int]) -> bool:
        """Make a launch part of this wave, if it can be; `waits_for` are numbers of launches."""
        needed = list(waits_for)
        function = as_function(launch.source)
        if function is None or not self._has_room(function):
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

    def bound(self, device: Device, table: Table) -> Callable[[], None]:
        """The kernel, loaded, with what it has to know added to a table."""
        if len(self._parts) == 1 and len(self._part_of) == 1 and not any(self._closing.values()):
            return self._parts[0].steps[0]
        names = sorted(self._functions)
        kernel = device.kernel(
            *wave_source([self._functions[n] for n in names], any(self._closing.values()))
        )
        words, numbers, blocks = self._table({n: k for k, n in enumerate(names)})
        begin = len(table.words)
        table.words += words
        tickets = len(table.words)
        table.words += [0] * len(self._closing)

        def run() -> None:
            args = table.address(begin), table.address(tickets), *map(np.int64, numbers)
            kernel((blocks, 1, 1), (THREADS, 1, 1), args)
            self  # noqa: B018 (the kernel knows arrays by address only)

        return run

    def _table(self, kinds: dict[str, int]) -> tuple[list[int], tuple[int, int, int], int]:
        """The table; the number of parts, where groups and steps begin in it; blocks."""
        parts, groups, steps = list[int](), list[int](), list[Launch]()
        numbers = {group: n for n, group in enumerate(self._closing)}
        of_group = dict.fromkeys(self._closing, 0)
        blocks = 0
        for part in self._parts:
            x, y, _ = part.steps[0].grid
            parts += [blocks, x, y, 0, 0, len(steps), len(part.steps), numbers[part.group]]
            steps += part.steps
            blocks += x * y
            of_group[part.group] += x * y
        for group, launches in self._closing.items():
            groups += [of_group[group], len(steps), len(launches)]
            steps += launches
        begin = len(parts) + len(groups)
        at = begin + STEP * len(steps)
        described, args = list[int](), list[int]()
        for step in steps:
            function = as_function(step.source)
            assert function is not None
            x, y, _ = step.block
            described += [kinds[function.name], at + len(args), x, y]
            args += map(as_word, step.args)
        assert len(parts) == PART * len(self._parts)
        assert len(groups) == GROUP * len(self._closing)
        table = [*parts, *groups, *described, *args]
        return table, (len(self._parts), len(parts), begin), blocks


def _fits(node: Node) -> bool:
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


def waves_of(nodes: Sequence[Node]) -> list[Wave | list[Node]]:
    """In turns: nodes that are done as they are, and waves."""
    waits_for = _dependencies(nodes)
    followers: list[list[int]] = [[] for _ in nodes]
    for i, earlier in enumerate(waits_for):
        for j in earlier:
            followers[j].append(i)
    left = [len(earlier) for earlier in waits_for]
    fits = [_fits(node) for node in nodes]
    ready = {i for i, n in enumerate(left) if n == 0}
    turns = list[tuple[Wave | None, list[int]]]()
    while ready:
        wave, now = None, sorted(i for i in ready if not fits[i])
        if not now:
            wave, now = _next_wave(nodes, sorted(ready), waits_for, followers, left, fits)
        turns.append((wave, now))
        for i in now:
            for j in followers[i]:
                left[j] -= 1
        ready |= {j for i in now for j in followers[i] if left[j] == 0}
        ready.difference_update(now)
    alone = _gathered(nodes, turns, followers)
    return [
        wave or [nodes[i] for i in now]
        for (wave, _), now in zip(turns, alone, strict=True)
        if wave is not None or now
    ]


def _gathered(
    nodes: Sequence[Node],
    turns: Sequence[tuple[Wave | None, list[int]]],
    followers: Sequence[list[int]],
) -> list[list[int]]:
    """The nodes of each turn after some products were put off, for others of their form to join.

    None comes later than the turn before the first that waits for it.
    """
    turn = {i: t for t, (_, now) in enumerate(turns) for i in now}
    by_form: dict[object, list[int]] = {}
    for i in sorted(turn, key=turn.__getitem__):
        node = nodes[i]
        if isinstance(node, Product) and node.form is not None:
            by_form.setdefault(node.form, []).append(i)
    for same in by_form.values():
        latest = turn[same[-1]]
        for i in reversed(same):
            if all(turn[j] > latest for j in followers[i]):
                turn[i] = latest
            else:
                latest = turn[i]
    found: list[list[int]] = [[] for _ in turns]
    for i, t in turn.items():
        found[t].append(i)
    return [sorted(now) for now in found]


def _next_wave(
    nodes: Sequence[Node], ready: list[int], waits_for: list[set[int]],
    followers: list[list[int]], left: list[int], fits: list[bool],
) -> tuple[Wave, list[int]]:  # fmt: skip
    """A wave of all that is ready, and of what can follow within it; their numbers."""
    wave, taken = Wave(), dict[int, None]()
    within = dict[int, int]()
    candidates = sorted(ready)
    while candidates:
        i = heapq.heappop(candidates)
        node = nodes[i]
        assert isinstance(node, Launch)
        if not wave.takes(i, node, (j for j in waits_for[i] if j in taken)):
            continue
        taken[i] = None
        for j in followers[i]:
            within[j] = within.get(j, 0) + 1
            if within[j] == left[j] and fits[j]:
                heapq.heappush(candidates, j)
    return wave, list(taken)

"""A fused level: launches that one kernel does, concurrently or in sequence (level_source.py).

A level contains launches that wait for nothing, and of the launches that wait for others of it

- those that work on the points that the launch before them wrote: the same thread continues;
- those so small that one block can do them: the last block of the launches before does them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.cuda.device import get_device
from nnet3tools.tensor.cuda.launches import Launch, LibraryCall, zero_tickets
from nnet3tools.tensor.cuda.level_source import (
    GROUP,
    MOST_WORDS,
    PART,
    STEP,
    THREADS,
    Function,
    as_function,
    as_word,
    level_source,
    size_of_table,
)
from nnet3tools.tensor.cuda.level_table import closing_turns, is_for_a_warp, smaller_grids
from nnet3tools.tensor.recording import NotCapturable

_SMALL = 1024
"""Points that a closing step may have."""
_MOST_CLOSING = 32
"""Closing steps of one group."""
_LARGE = 1 << 20
"""Bytes that a launch reads and writes before it counts as large."""
_MOST_FUNCTIONS, _MOST_SHARED = 8, 40 << 10
"""Different kernels of a level (each gets the registers of the greediest), and their shared bytes.

More than 8 kernels save no nodes: 129 / 300 / 336 a minibatch of tdnn / tdnnf / lstm, with 24
kernels 128 / 300 / 335 (on paper)."""


class _Part:
    """Launches over one index space that the same blocks of threads do one after the other.

    Several parts make a fused level, a kernel that does them at the same time.
    """

    def __init__(self, first: Launch, group: int) -> None:
        self.steps, self.group = [first], group

    @property
    def grid(self) -> tuple[int, int]:
        """(x, y): the numbers of blocks along each axis, which all launches of the part share."""
        x, y, _ = self.steps[0].grid
        return x, y

    @property
    def loops(self) -> bool:
        """Whether all launches loop over their work, so that fewer blocks than `grid` would do."""
        return all(step.loops for step in self.steps)

    def can_add(self, launch: Launch) -> bool:
        """Whether each thread of the part can do its share of `launch` without others' results."""
        first = self.steps[0]
        if launch.space is None or launch.space != first.space or launch.grid != first.grid:
            return False
        return all(_meet_by_points(step, launch) for step in self.steps)


def _meet_by_points(before: Launch, after: Launch) -> bool:
    """Whether each thread of `after` depends only on the same thread's work in `before`."""
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


class FusedLevel:
    """Launches (of kernels, with arguments) that one CUDA kernel does.

    Parts are sequences of launches and run concurrently, each by blocks of its own. Parts are
    divided into groups. When all parts of a group are done, its last block does the launches that
    depend on them and are small: the group's closing steps.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []
        self._closing: dict[int, list[Launch]] = {}
        """Group -> its closing steps, in order."""
        self._part_of: dict[int, _Part] = {}
        self._group_of: dict[int, int] = {}
        self._functions: dict[str, Function] = {}
        self._step_words = self._shared = 0
        self._loops: bool | None = None
        """`loops` of the level's large launches; None: it has none."""

    def add(self, i: int, launch: Launch, waits_for: Iterable[int]) -> bool:
        """Add the launch with number `i` to the level, if possible; returns whether it was added.

        `waits_for` are the numbers of launches of this level on which the launch depends.
        """
        needed = list(waits_for)
        function = as_function(launch.source)
        words = STEP + len(launch.args)
        if function is None or not self._has_room(function, words):
            return False
        if needed:
            if not (self._continues(i, launch, needed) or self._closes(i, launch, needed)):
                return False
        elif self._can_start(launch):
            part = _Part(launch, len(self._parts))
            self._parts.append(part)
            self._closing[part.group] = []
            self._part_of[i], self._group_of[i] = part, part.group
        else:
            return False
        self._step_words += words
        if function.name not in self._functions:
            self._functions[function.name] = function
            self._shared += function.shared_bytes
        return True

    def _can_start(self, launch: Launch) -> bool:
        """Whether a launch may be the first of a sequence of launches by the same blocks (a part).

        In one kernel all large launches contain reductions, or none does. Reductions need many
        registers, so that fewer blocks fit on a processor: an H100 took twice as long for copies in
        one kernel with reductions as for two kernels.
        """
        if launch.num_bytes < _LARGE:
            return True
        if self._loops is None:
            self._loops = launch.loops
        return self._loops == launch.loops

    @property
    def _num_words(self) -> int:
        """The number of 8-byte words in the kernel's table of parts, groups and launches."""
        return PART * len(self._parts) + GROUP * len(self._closing) + self._step_words

    def _has_room(self, function: Function, words: int) -> bool:
        """Whether a launch of `function` with `words` words in the kernel's table may be added."""
        small = self._num_words + words + PART + GROUP <= MOST_WORDS
        if function.name in self._functions:
            return small
        few = small and len(self._functions) < _MOST_FUNCTIONS
        return few and self._shared + function.shared_bytes <= _MOST_SHARED

    def _continues(self, i: int, launch: Launch, needed: list[int]) -> bool:
        """Append launch `i` to the sequence (part) with all of `needed`; False if impossible."""
        parts = {id(p): p for p in map(self._part_of.get, needed)}
        part = next(iter(parts.values()))
        if len(parts) > 1 or part is None or not part.can_add(launch):
            return False
        part.steps.append(launch)
        self._part_of[i], self._group_of[i] = part, part.group
        return True

    def _closes(self, i: int, launch: Launch, needed: list[int]) -> bool:
        """Make launch `i`, if small, a closing step of a group; returns whether that worked.

        It depends on the launches number `needed`; their groups are joined to this group.
        """
        if launch.grid != (1, 1, 1) and not (launch.loops and launch.size <= _SMALL):
            return False
        groups = sorted({self._group_of[n] for n in needed})
        if sum(len(self._closing[g]) for g in groups) >= _MOST_CLOSING:
            return False
        first, *others = groups
        for group in others:
            self._closing[first] += self._closing.pop(group)
        for part in self._parts:
            part.group = first if part.group in others else part.group
        self._group_of = {n: first if g in others else g for n, g in self._group_of.items()}
        self._closing[first].append(launch)
        self._group_of[i] = first
        return True

    @property
    def launches(self) -> list[Launch]:
        """The launches in the level, those of parts first."""
        in_parts = [step for part in self._parts for step in part.steps]
        return [*in_parts, *itertools.chain(*self._closing.values())]

    # -- as a kernel

    @property
    def source(self) -> tuple[str, str] | None:
        """(source, name) of a kernel for all launches; None for a single, unconditional launch."""
        if len(self.launches) == 1 and self._parts[0].steps[0].flag is None:
            return None
        functions = [self._functions[name] for name in sorted(self._functions)]
        size = size_of_table(self._num_words)
        return level_source(functions, any(self._closing.values()), size)

    def bound(self) -> Callable[[], None]:
        """A callable that launches the level's kernel."""
        if (source := self.source) is None:
            return self._parts[0].steps[0]
        device = get_device()
        kernel = device.kernel(*source)
        grids = smaller_grids(
            [part.grid for part in self._parts],
            [part.loops for part in self._parts],
            device.num_processors,
        )
        words, numbers, blocks = self._table(grids)
        padded = np.zeros(size_of_table(len(words)), np.int64)
        padded[: len(words)] = words
        given = padded.view((np.void, padded.nbytes))  # CuPy passes an array of size 1 by value
        tickets = zero_tickets(len(self._closing))

        def run() -> None:
            args = given, np.uint64(address(tickets)), *map(np.int64, numbers)
            kernel((blocks, 1, 1), (THREADS, 1, 1), args)
            self  # noqa: B018 (the kernel knows arrays by address only)

        return run

    def _table(
        self, grids: Sequence[tuple[int, int]]
    ) -> tuple[list[int], tuple[int, int, int], int]:
        """(words, numbers, number of blocks): the level's table, its other arguments, its grid.

        The numbers are the number of parts, and the positions of the first group and of the first
        step in the words (see level_source.py). `grids` are the grids of the parts.
        """
        kinds = {name: k for k, name in enumerate(sorted(self._functions))}
        parts, groups, steps = list[int](), list[int](), list[Launch]()
        numbers = {group: n for n, group in enumerate(self._closing)}
        of_group = dict.fromkeys(self._closing, 0)
        blocks = 0
        for part, (x, y) in zip(self._parts, grids, strict=True):
            parts += [blocks, x, y, len(steps), len(part.steps), numbers[part.group]]
            steps += part.steps
            blocks += x * y
            of_group[part.group] += x * y
        side_by_side = [0] * len(steps)
        for group, launches in self._closing.items():
            groups += [of_group[group], len(steps), len(launches)]
            for turn in closing_turns(launches):
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
            flag = 0 if step.flag is None else address(step.flag)
            kind = kinds[function.name] | side << 32
            described += [kind, at + len(args), x | y << 32, flag]
            args += map(as_word, step.args)
        table = [*parts, *groups, *described, *args]
        assert len(table) == self._num_words
        return table, (len(self._parts), len(parts), begin), blocks


def can_be_fused(node: Launch | LibraryCall) -> bool:
    """Whether a kernel that does several launches may do this one; it cannot do a library call."""
    if isinstance(node, LibraryCall):
        return False
    function, threads = as_function(node.source), node.block[0] * node.block[1]
    if function is not None and node.grid[2] == node.block[2] == 1:
        fits = threads == THREADS if function.has_barriers else threads <= THREADS
        words = PART + GROUP + STEP + len(node.args)
        if fits and function.shared_bytes <= _MOST_SHARED and words <= MOST_WORDS:
            return True
    if node.flag is not None:
        raise NotCapturable  # only a fused level looks at flags
    return False

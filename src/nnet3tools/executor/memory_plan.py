"""Where in one arena every matrix of a program lives: liveness, then offsets.

A *block* is a stretch of memory with a life: from the first to the last command that touches a
matrix kept in it. A matrix that takes over another's memory (SwapMatrix) shares its block; a
compressed matrix has a smaller block of its own. Blocks that live at the same time never overlap.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import ProgramError
from nnet3tools.program.analysis import AccessTable
from nnet3tools.program.command import Command
from nnet3tools.program.commands import (
    AcceptInput,
    CompressionType,
    CompressMatrix,
    DecompressMatrix,
    GotoLabel,
    NoOperationPermanent,
    ProvideOutput,
    SwapMatrix,
)
from nnet3tools.program.computation import Computation

__all__ = ["ALIGNMENT", "Block", "MemoryPlan", "assign_offsets", "io_blocks", "plan_memory"]

ALIGNMENT = 64
"""Bytes: a cache line, and what vector loads want."""

Ints = NDArray[np.int64]

COMPRESSED_DTYPES: dict[int, str] = {
    CompressionType.INT8: "int8",
    CompressionType.UINT8: "uint8",
    CompressionType.INT16: "int16",
    CompressionType.UINT16: "uint16",
}


@dataclass
class Block:
    """A stretch of the arena and its life."""

    matrix: int
    """The matrix it was made for."""
    dtype: str
    num_bytes: int
    first: int
    """First command that touches it."""
    last: int
    """Last command that touches it."""

    def touch(self, first: int, last: int) -> None:
        """Lengthen the life so that it covers these commands."""
        self.first, self.last = min(self.first, first), max(self.last, last)


class Move(NamedTuple):
    """Contents to carry to where the first round of a loop had them."""

    matrix: int
    source: int
    dest: int


@dataclass
class MemoryPlan:
    """Blocks, their offsets in the arena (bytes), and which block holds a matrix when."""

    blocks: list[Block]
    offsets: list[int]
    num_bytes: int
    """Size of the arena."""
    live_bytes: int
    """Most bytes alive at one command: no plan can do with less."""
    moves: list[Move] = field(default_factory=list)
    """What a looped program carries over at its goto."""
    _since: list[list[int]] = field(default_factory=list)
    _block: list[list[int]] = field(default_factory=list)

    def after(self, command: int, matrix: int) -> int:
        """The block that holds a matrix once a command has run; ProgramError if none does."""
        at = bisect.bisect_right(self._since[matrix], command) - 1
        if at < 0 or self._block[matrix][at] < 0:
            raise ProgramError(f"m{matrix} has no memory at command c{command}")
        return self._block[matrix][at]

    def before(self, command: int, matrix: int) -> int:
        """The block that holds a matrix just before a command."""
        return self.after(command - 1, matrix)


def assign_offsets(
    sizes: ArrayLike, first: ArrayLike, last: ArrayLike, alignment: int = ALIGNMENT
) -> tuple[list[int], int]:
    """Offsets such that intervals [first, last] that intersect get disjoint bytes; and the total.

    One block after the other goes into the tightest gap left by those it meets in time (Pisarchyk &
    Lee 2020, "Efficient Memory Management for Deep Neural Net Inference"). Longest-lived first,
    which suits training programs, and largest first are tried, and the smaller result is taken.
    """
    size = np.asarray(sizes, np.int64)
    size = (size + alignment - 1) // alignment * alignment
    begin, end = np.asarray(first, np.int64), np.asarray(last, np.int64)
    bound = _live_bytes(size, begin, end)
    best, best_total = np.zeros(len(size), np.int64), -1
    for order in (np.lexsort((-size, begin - end)), np.argsort(-size, kind="stable")):
        offsets = _place(order.tolist(), size, begin, end)
        total = int((offsets + size).max(initial=0))
        if best_total < 0 or total < best_total:
            best, best_total = offsets, total
        if best_total == bound:
            break
    return best.tolist(), best_total


def _place(order: list[int], size: Ints, begin: Ints, end: Ints) -> Ints:
    offsets = np.zeros(len(size), np.int64)
    placed = np.empty(0, np.int64)  # kept in the order of their offsets
    for i in order:
        meets = placed[(begin[placed] <= end[i]) & (end[placed] >= begin[i])]
        offsets[i] = _best_gap(offsets[meets], offsets[meets] + size[meets], int(size[i]))
        placed = np.insert(placed, np.searchsorted(offsets[placed], offsets[i]), i)
    return offsets


def _best_gap(begins: Ints, ends: Ints, size: int) -> int:
    """Start of the smallest gap of at least `size` between occupied ranges sorted by begin."""
    if not len(begins):
        return 0
    reached = np.maximum.accumulate(ends)
    gap_begin = np.concatenate([[0], reached[:-1]])
    gap = begins - gap_begin
    fits = np.flatnonzero(gap >= size)
    if not len(fits):
        return int(reached[-1])
    return int(gap_begin[fits[np.argmin(gap[fits])]])


def io_blocks(commands: Sequence[Command]) -> list[tuple[int, int]]:
    """Ranges [begin, end) of commands at which the program waits for its user.

    A range begins and ends with AcceptInput or ProvideOutput; markers, labels and commands that
    only give or take memory may stand in between, as nothing is done there. The purpose of
    NoOperationPermanent is to count as work: where input is handed out unchanged, it is all.
    """
    blocks: list[tuple[int, int]] = []
    idle_since = 0  # first of the commands before c that do nothing
    for c, command in enumerate(commands):
        if isinstance(command, AcceptInput | ProvideOutput):
            if blocks and blocks[-1][1] >= idle_since:
                blocks[-1] = (blocks[-1][0], c + 1)
            else:
                blocks.append((c, c + 1))
        elif not _idle(command):
            idle_since = c + 1
    return blocks


def _idle(command: Command) -> bool:
    if isinstance(command, NoOperationPermanent):
        return False
    return command.ALLOCATES is not None or command.FREES is not None or not command.OPERANDS


class _Walk:
    """Follows every matrix through the program and notes which block holds it when."""

    def __init__(self, computation: Computation, accesses: AccessTable, compress_lossy: bool):
        self.computation, self.accesses = computation, accesses
        self.compress_lossy = compress_lossy
        self.blocks: list[Block] = []
        size = len(computation.matrices)
        self.since: list[list[int]] = [[] for _ in range(size)]
        self.block: list[list[int]] = [[] for _ in range(size)]

    def place(self, c: int, matrix: int, block: int) -> None:
        """From after command c on, a matrix is in this block (-1: nowhere)."""
        self.since[matrix].append(c)
        self.block[matrix].append(block)

    def current(self, matrix: int) -> int:
        return self.block[matrix][-1] if self.block[matrix] else -1

    def new_block(self, matrix: int, dtype: str = "float32") -> int:
        info = self.computation.matrices[matrix]
        num_bytes = info.num_rows * info.num_cols * np.dtype(dtype).itemsize
        # An empty life: the accesses to the matrix will lengthen it.
        self.blocks.append(Block(matrix, dtype, num_bytes, len(self.computation.commands), -1))
        return len(self.blocks) - 1

    def compresses(self, command: CompressMatrix) -> bool:
        """Whether the command is obeyed; a sign is all that a ReLU's derivative needs anyway."""
        return self.compress_lossy or command.range == 0.0

    def run(self) -> None:
        matrix_of = self.computation.matrix_of
        for c, command in enumerate(self.computation.commands):
            if isinstance(command, SwapMatrix):
                a, b = matrix_of(command.a), matrix_of(command.b)
                block_a, block_b = self.current(a), self.current(b)
                self.place(c, a, block_b)
                self.place(c, b, block_a)
            elif command.ALLOCATES is not None:
                matrix = matrix_of(getattr(command, command.ALLOCATES))
                self.place(c, matrix, self.new_block(matrix))
            elif command.FREES is not None:
                self.place(c, matrix_of(getattr(command, command.FREES)), -1)
            elif isinstance(command, AcceptInput):
                matrix = matrix_of(command.submatrix)
                if self.current(matrix) < 0:
                    self.place(c, matrix, self.new_block(matrix))
            elif isinstance(command, CompressMatrix | DecompressMatrix):
                self._recode(c, command)

    def _recode(self, c: int, command: CompressMatrix | DecompressMatrix) -> None:
        matrix = self.computation.matrix_of(command.submatrix)
        if isinstance(command, CompressMatrix):
            if not self.compresses(command):
                return
            new = self.new_block(matrix, COMPRESSED_DTYPES[command.format])
        elif self.blocks[self.current(matrix)].dtype == "float32":
            return
        else:
            new = self.new_block(matrix)
        # Source and destination are both alive while the command runs.
        self.blocks[self.current(matrix)].touch(c, c)
        self.blocks[new].touch(c, c)
        self.place(c, matrix, new)


def plan_memory(
    computation: Computation, accesses: AccessTable, compress_lossy: bool = False
) -> MemoryPlan:
    """The plan of a program; `accesses` are its matrices' (Analysis.matrix_accesses).

    With `compress_lossy` false only those CompressMatrix commands are obeyed that lose nothing.
    """
    walk = _Walk(computation, accesses, compress_lossy)
    walk.run()
    plan = MemoryPlan(walk.blocks, [], 0, 0, [], walk.since, walk.block)
    waits = io_blocks(computation.commands)
    begins = [begin for begin, _ in waits]
    for matrix in range(1, len(computation.matrices)):
        for c in accesses.of(matrix)[0].tolist():
            block = plan.blocks[plan.after(c, matrix)]
            # While the program waits, its user hands over inputs and looks at outputs in any order.
            at = bisect.bisect_right(begins, c) - 1
            if at >= 0 and c < waits[at][1]:
                block.touch(waits[at][0], waits[at][1] - 1)
            else:
                block.touch(c, c)
    _carry_over(computation, plan)
    used = [
        block if block.last >= 0 else Block(block.matrix, block.dtype, 0, 0, 0)
        for block in plan.blocks
    ]
    plan.blocks = used
    first, last = np.array([b.first for b in used], int), np.array([b.last for b in used], int)
    sizes = np.array([b.num_bytes for b in used], int)
    plan.offsets, plan.num_bytes = assign_offsets(sizes, first, last)
    plan.live_bytes = _live_bytes(sizes, first, last)
    return plan


def _carry_over(computation: Computation, plan: MemoryPlan) -> None:
    """For a looped program: what must be moved at the goto, and blocks that outlive a round."""
    commands = computation.commands
    if not commands or not isinstance(goto := commands[-1], GotoLabel):
        return
    end = len(commands) - 1
    for matrix in range(1, len(computation.matrices)):
        try:
            at_label = plan.after(goto.label, matrix)
        except ProgramError:
            continue  # not alive when the loop begins
        now = plan.after(end, matrix)
        for block in {at_label, now}:
            plan.blocks[block].touch(0, end)
        if now != at_label:
            plan.moves.append(Move(matrix, now, at_label))
    # The next round's inputs may be handed over while the last outputs are still looked at.
    entry = next((wait for wait in io_blocks(commands) if wait[1] > goto.label), (0, 0))
    for command in commands[slice(*entry)]:
        if isinstance(command, AcceptInput):
            matrix = computation.matrix_of(command.submatrix)
            plan.blocks[plan.after(entry[1] - 1, matrix)].touch(entry[0], end)


def _live_bytes(size: Ints, begin: Ints, end: Ints) -> int:
    if not len(size):
        return 0
    change = np.zeros(int(end.max()) + 2, np.int64)
    np.add.at(change, begin, size)
    np.add.at(change, end + 1, -size)
    return int(np.cumsum(change).max())

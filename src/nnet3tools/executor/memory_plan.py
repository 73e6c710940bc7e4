"""The memory plan: liveness of a program's matrices, and their offsets in the arena.

A *block* is a part of the arena with a lifetime: from the first to the last command that touches a
matrix in it. A matrix that takes over another's memory (SwapMatrix) shares its block. A compressed
matrix has a smaller block of its own. Blocks with overlapping lifetimes never overlap in memory.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.program.analysis import AccessTable
from nnet3tools.program.command import Command
from nnet3tools.program.commands import (
    AcceptInput,
    CompressMatrix,
    DecompressMatrix,
    GotoLabel,
    NoOperationPermanent,
    ProvideOutput,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.lifetimes import Holdings, follow_matrices
from nnet3tools.tensor.offsets import assign_offsets


@dataclass
class Block:
    """A part of the arena (memory of all matrices) that holds one matrix at a time.

    It is in use from command `first` to `last`. The matrix number `matrix` decides its size.
    """

    matrix: int
    dtype: str
    num_bytes: int
    first: int
    last: int

    def touch(self, first: int, last: int) -> None:
        """Extend the block's lifetime to include the commands with numbers `first` and `last`."""
        self.first, self.last = min(self.first, first), max(self.last, last)


class Move(NamedTuple):
    """A copy of a matrix, made at a loop's goto, from arena block `source` to block `dest`."""

    matrix: int
    source: int
    dest: int


@dataclass
class MemoryPlan:
    """A program's blocks of memory, their places in one arena, and the block of each matrix.

    Block i begins at byte offsets[i] of the arena of `num_bytes`. `holdings` tells which block
    holds a matrix after each command. `moves`: copies that a looped program makes at its goto.
    """

    blocks: list[Block]
    holdings: Holdings
    offsets: list[int] = field(default_factory=list)
    num_bytes: int = 0
    moves: list[Move] = field(default_factory=list)

    def after(self, command: int, matrix: int) -> int:
        """Number of the block that holds a matrix after a command; ProgramError if none does."""
        block = self.holdings.after(command, matrix)
        if block < 0:
            raise ProgramError(f"m{matrix} has no memory at command c{command}")
        return block

    def before(self, command: int, matrix: int) -> int:
        """Number of the block that holds a matrix before a command; ProgramError if none does."""
        return self.after(command - 1, matrix)


def io_blocks(commands: Sequence[Command]) -> list[tuple[int, int]]:
    """Ranges [begin, end) of command numbers in which a program exchanges matrices with its user.

    A range begins and ends with AcceptInput or ProvideOutput. Between them may be commands without
    work: markers, labels and allocations. NoOperationPermanent counts as work; it is the only work
    of a program that returns its input unchanged.
    """
    blocks: list[tuple[int, int]] = []
    for c, command in enumerate(commands):
        if isinstance(command, (AcceptInput, ProvideOutput)):
            if blocks and all(map(_idle, commands[blocks[-1][1] : c])):
                blocks[-1] = (blocks[-1][0], c + 1)
            else:
                blocks.append((c, c + 1))
    return blocks


def _idle(command: Command) -> bool:
    if isinstance(command, NoOperationPermanent):
        return False
    return command.ALLOCATES is not None or command.FREES is not None or not command.OPERANDS


def plan_memory(
    computation: Computation, accesses: AccessTable, compress_lossy: bool = False
) -> MemoryPlan:
    """Plan the memory of a program; `accesses` has the commands that access each matrix.

    Without `compress_lossy`, the plan ignores CompressMatrix commands that lose precision.
    """
    commands = computation.commands
    # Range 0 keeps signs only, which is all that the derivative reads.
    holdings = follow_matrices(computation, lambda c: compress_lossy or c.range == 0.0)
    # an empty lifetime, which accesses extend
    blocks = [Block(*storage, len(commands), -1) for storage in holdings.storages]
    plan = MemoryPlan(blocks, holdings)
    for c, command in enumerate(commands):
        if isinstance(command, (CompressMatrix, DecompressMatrix)):
            # Source and destination are both alive while the command runs.
            matrix = computation.matrix_of(command.submatrix)
            blocks[plan.before(c, matrix)].touch(c, c)
    waits = io_blocks(commands)
    begins = [begin for begin, _ in waits]
    for matrix in range(1, len(computation.matrices)):
        for c in accesses.of_item(matrix)[0].tolist():
            block = blocks[plan.after(c, matrix)]
            # While the program waits, its user fills inputs and reads outputs in any order.
            at = bisect.bisect_right(begins, c) - 1
            if at >= 0 and c < waits[at][1]:
                block.touch(waits[at][0], waits[at][1] - 1)
            else:
                block.touch(c, c)
    _carry_over(computation, plan)
    used = [
        block if block.last >= 0 else Block(block.matrix, block.dtype, 0, 0, 0) for block in blocks
    ]
    plan.blocks = used
    first, last = np.array([b.first for b in used], int), np.array([b.last for b in used], int)
    sizes = np.array([b.num_bytes for b in used], int)
    plan.offsets, plan.num_bytes = assign_offsets(sizes, first, last)
    return plan


def _carry_over(computation: Computation, plan: MemoryPlan) -> None:
    """For a looped program, add to `plan.moves` the copies of matrices from one round to the next.

    A block lives on to the goto, the last command, if the next round reads its matrix.
    """
    commands = computation.commands
    if not commands or not isinstance(goto := commands[-1], GotoLabel):
        return
    end = len(commands) - 1
    for matrix in range(1, len(computation.matrices)):
        if (at_label := plan.holdings.after(goto.label, matrix)) < 0:
            continue  # not alive when the loop begins
        now = plan.after(end, matrix)
        for block in {at_label, now}:
            plan.blocks[block].touch(0, end)
        if now != at_label:
            plan.moves.append(Move(matrix, now, at_label))
    # The user may fill the next round's inputs before reading the last outputs.
    entry = next((wait for wait in io_blocks(commands) if wait[1] > goto.label), (0, 0))
    for command in commands[slice(*entry)]:
        if isinstance(command, AcceptInput):
            matrix = computation.matrix_of(command.submatrix)
            plan.blocks[plan.after(entry[1] - 1, matrix)].touch(entry[0], end)

"""Binding a program to its networks and to memory, for all minibatches of one shape."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nnet3tools.errors import ProgramError, UserError
from nnet3tools.executor.bound_program import BoundProgram, Segment, Step
from nnet3tools.executor.lowering import lower_command, lower_moves
from nnet3tools.executor.memory_need import memory_need, need_text
from nnet3tools.executor.memory_plan import MemoryPlan, io_blocks, plan_memory
from nnet3tools.executor.partial_sums import find_parts
from nnet3tools.nnet.components.base import Array
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import AcceptInput, GotoLabel, ProvideOutput
from nnet3tools.program.computation import Computation
from nnet3tools.tensor.host_memory import populate_in_background
from nnet3tools.tensor.plain.threads import num_threads
from nnet3tools.tensor.registry import device_of
from nnet3tools.tensor.workspace import GrowingBytes, Workspace

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet


class Arena:
    """A block of device memory that several programs share, if their runs do not interleave."""

    def __init__(self, like: Array | None = None) -> None:
        self._memory = GrowingBytes(like)
        self.workspace = Workspace(like)
        """Scratch memory of recordings and, on the host, of live runs."""

    @property
    def moves(self) -> int:
        """How often the arena moved to new memory; programs bound earlier keep the old memory."""
        return self._memory.moves

    def take(self, num_bytes: int) -> Array:
        """The first `num_bytes` bytes of the arena, aligned; results of several calls overlap."""
        before = self._memory.size
        taken = self._memory.first(num_bytes)
        if device_of(taken) == "numpy" and num_threads() > 1:
            populate_in_background(taken[before:])
        return taken


def bind_program(
    computation: Computation,
    nnet: Nnet,
    nnet_to_update: Nnet | None = None,
    nnet_to_store_stats: Nnet | None = None,
    *,
    arena: Arena | None = None,
    compress_lossy: bool | None = None,
) -> BoundProgram:
    """Plan the memory of a compiled program, and return the program bound to memory and networks.

    The matrices are in `arena` (default: new host memory). `nnet_to_update` receives the model
    derivative, `nnet_to_store_stats` statistics. ProgramError if the program is broken. Matrices
    may lose precision by compression with `compress_lossy` (default: true on a GPU only).
    """
    arena = arena or Arena()
    if compress_lossy is None:
        compress_lossy = device_of(arena.take(0)) != "numpy"
    analysis = Analysis(computation, nnet)
    plan = plan_memory(computation, analysis.matrix_accesses, compress_lossy)
    try:
        memory = arena.take(plan.num_bytes)
    except MemoryError:
        raise out_of_memory(plan, computation, nnet, _free_bytes(arena)) from None
    program = BoundProgram(computation, plan, memory, nnet, nnet_to_update, nnet_to_store_stats)
    program.parts = find_parts(program, analysis)
    program.segments = _segments(program)
    return program


def _free_bytes(arena: Arena) -> tuple[int, int] | None:
    """The free and total bytes of the GPU that holds the arena, as a pair; None on the host."""
    if device_of(arena.take(0)) == "numpy":
        return None
    from nnet3tools.tensor.cuda.device import get_device

    return get_device().memory()


def out_of_memory(
    plan: MemoryPlan, computation: Computation, nnet: Nnet, free: tuple[int, int] | None
) -> UserError:
    """Make the error for lack of memory: bytes needed, the largest matrices, and remedies.

    `free` is the pair (free, total) of bytes of the GPU; None on the host.
    """
    largest = sorted(plan.blocks, key=lambda block: -block.num_bytes)[:3]
    names = ", ".join(
        f"m{b.matrix} ({computation.matrices[b.matrix].num_rows} x "
        f"{computation.matrices[b.matrix].num_cols}, {b.num_bytes / 2**20:.1f} MB)"
        for b in largest
    )
    where = ""
    if free is not None:
        limited = os.environ.get("CUPY_GPU_MEMORY_LIMIT")
        whose = "the GPU's" if not limited else f"CUPY_GPU_MEMORY_LIMIT={limited}, which is"
        where = (
            f"; of {whose} {free[1] / 2**20:.1f} MB {free[0] / 2**20:.1f} are free now, and all "
            f"needs about {need_text(memory_need(computation, nnet, plan))}"
        )
    if computation.need_model_derivative:
        advice = (
            "smaller minibatches (nnet3-merge-egs --minibatch-size) or "
            "--optimization.memory-compression-level=2 need less"
        )
    else:
        advice = "smaller minibatches (--minibatch-size) or chunks (--frames-per-chunk) need less"
    return UserError(
        f"out of memory{' on the GPU' if free else ''}: the matrices of this computation take "
        f"{plan.num_bytes / 2**20:.1f} MB at their peak, the largest being {names}{where}; "
        f"{advice} (nnet3-computation-info tells beforehand)"
    )


def _segments(program: BoundProgram) -> list[Segment]:
    commands = program.computation.commands
    waits = io_blocks(commands)
    if not waits or _steps(program, 0, waits[0][0]):
        waits = [(0, 0), *waits]
    ends = [begin for begin, _ in waits[1:]] + [len(commands)]
    segments = [
        Segment(*_exchange(program, begin, first), _steps(program, first, end), i + 1)
        for i, ((begin, first), end) in enumerate(zip(waits, ends, strict=True))
    ]
    if commands and isinstance(goto := commands[-1], GotoLabel):
        _close_loop(program, waits, segments, goto.label)
    return segments


def _close_loop(
    program: BoundProgram, waits: list[tuple[int, int]], segments: list[Segment], label: int
) -> None:
    """Make the last of `segments` move matrices at the end of a loop, then jump to command `label`.

    `waits`: ranges of commands that exchange matrices with the user; `segments`: steps in between.
    """
    if (entry := next((i for i, (_, end) in enumerate(waits) if end > label), None)) is None:
        raise ProgramError("a looped program takes and gives nothing in its loop")
    begin, first = waits[entry]
    last = segments[-1]
    end = len(program.computation.commands) - 1
    before_wait = _steps(program, label, begin)
    carry = [(end, step) for step in lower_moves(program)]
    accepts, provides = _exchange(program, max(begin, label), first)
    if not last.steps and not before_wait:
        # There is no work between the last wait and the entry's wait, so they become one wait.
        last.accepts.update(accepts)
        last.provides.update(provides)
        last.steps, last.next = carry + segments[entry].steps, entry + 1
        return
    last.steps += carry + before_wait
    if begin > label:
        last.next = entry
    else:
        last.next = len(segments)
        segments.append(Segment(accepts, provides, segments[entry].steps, entry + 1))


def _exchange(
    program: BoundProgram, begin: int, end: int
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Matrices by node number that commands [begin, end) accept, and those that they provide."""
    accepts: dict[int, Array] = {}
    provides: dict[int, Array] = {}
    for c in range(begin, end):
        command = program.computation.commands[c]
        if isinstance(command, AcceptInput):
            accepts[command.node] = program.view(c, command.submatrix)
        elif isinstance(command, ProvideOutput):
            provides[command.node] = program.view(c, command.submatrix)
    return accepts, provides


def _steps(program: BoundProgram, begin: int, end: int) -> list[tuple[int, Step]]:
    lowered = ((c, lower_command(program, c)) for c in range(begin, end))
    return [(c, step) for c, step in lowered if step is not None]

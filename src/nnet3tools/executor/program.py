"""A program bound to its networks and memory: what every minibatch of the same shape runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.lowering import Binding, Step, lower_command, lower_moves
from nnet3tools.executor.memory_plan import ALIGNMENT, MemoryPlan, io_blocks, plan_memory
from nnet3tools.nnet.components.base import Array
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import AcceptInput, GotoLabel, ProvideOutput
from nnet3tools.program.computation import Computation

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet

__all__ = ["Arena", "BoundProgram", "Segment", "bind_program"]


class Arena:
    """Memory that programs run in. Several may share one if they never run interleaved."""

    def __init__(self, like: Array | None = None) -> None:
        self._like, self._memory = like, tensor.empty(0, like, np.uint8)

    def take(self, num_bytes: int) -> Array:
        """Aligned bytes, at least so many; those taken before stay valid and may be the same."""
        if self._memory.size < num_bytes:
            raw = tensor.empty(num_bytes + ALIGNMENT, self._like, np.uint8)
            address = raw.ctypes.data if isinstance(raw, np.ndarray) else raw.data.ptr
            self._memory = raw[-address % ALIGNMENT :]
        return self._memory[:num_bytes]


@dataclass
class Segment:
    """What happens between two waits for the user."""

    accepts: dict[int, Array]
    """Node -> matrix to fill before this segment runs."""
    provides: dict[int, Array]
    """Node -> matrix to look at before this segment runs."""
    steps: list[tuple[int, Step]]
    """(command, work) in order."""


@dataclass
class BoundProgram:
    """A lowered program; `segments` run one after the other, from `loop_to` again if it loops."""

    computation: Computation
    nnet: Nnet
    plan: MemoryPlan
    binding: Binding
    segments: list[Segment]
    loop_to: int | None


def bind_program(
    computation: Computation,
    nnet: Nnet,
    nnet_to_update: Nnet | None = None,
    nnet_to_store_stats: Nnet | None = None,
    *,
    arena: Arena | None = None,
    compress_lossy: bool = False,
) -> BoundProgram:
    """Plan the memory of a program and bind all its commands. ProgramError if it is broken."""
    analysis = Analysis(computation, nnet)
    plan = plan_memory(computation, analysis.matrix_accesses, compress_lossy)
    memory = (arena or Arena()).take(plan.num_bytes)
    binding = Binding(computation, plan, memory, nnet, nnet_to_update, nnet_to_store_stats)
    segments, loop_to = _segments(binding)
    return BoundProgram(computation, nnet, plan, binding, segments, loop_to)


def _segments(binding: Binding) -> tuple[list[Segment], int | None]:
    commands = binding.computation.commands
    waits = io_blocks(commands)
    if not waits or _steps(binding, 0, waits[0][0]):
        waits = [(0, 0), *waits]
    ends = [begin for begin, _ in waits[1:]] + [len(commands)]
    segments = []
    for (begin, first), end in zip(waits, ends, strict=True):
        segment = Segment({}, {}, _steps(binding, first, end))
        for c in range(begin, first):
            command = commands[c]
            if isinstance(command, AcceptInput):
                segment.accepts[command.node] = binding.view(c, command.submatrix)
            elif isinstance(command, ProvideOutput):
                segment.provides[command.node] = binding.view(c, command.submatrix)
        segments.append(segment)
    if not commands or not isinstance(goto := commands[-1], GotoLabel):
        return segments, None
    # The goto carries matrices over and runs what stands between the label and the next wait.
    label = goto.label
    loop_to = next((i for i, (begin, _) in enumerate(waits) if begin > label), None)
    end = len(commands) if loop_to is None else waits[loop_to][0]
    goto_steps = [(len(commands) - 1, step) for step in lower_moves(binding)]
    segments[-1].steps += goto_steps + _steps(binding, label, end)
    return segments, loop_to


def _steps(binding: Binding, begin: int, end: int) -> list[tuple[int, Step]]:
    lowered = ((c, lower_command(binding, c)) for c in range(begin, end))
    return [(c, step) for c, step in lowered if step is not None]

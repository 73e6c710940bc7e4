"""Allocate matrices as late, and free them as early, as their accesses allow."""

import itertools

from nnet3tools.compiler.io_order import consolidate_io
from nnet3tools.optimizer.access_times import is_zeroing
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import AllocMatrix, DeallocMatrix
from nnet3tools.program.computation import Computation


def move_sizing_commands(computation: Computation, context: PassContext) -> Computation:
    """The program with AllocMatrix moved to the first access, DeallocMatrix to the last access."""
    analysis = context.analyst.analyze(computation)
    commands = computation.commands
    zeroed_by_next = [
        type(c) is AllocMatrix and is_zeroing(after) and after.submatrix == c.submatrix  # type: ignore[attr-defined]
        for c, after in itertools.pairwise(commands)
    ] + [False]
    # Thrice the position, so that -1 and +1 place a command just before and just after another.
    place = [3 * c for c in range(len(commands))]
    bounds = itertools.pairwise(analysis.matrix_accesses.offsets.tolist())
    all_accesses = analysis.matrix_accesses.commands.tolist()
    lifetimes = analysis.lifetimes.allocate_command, analysis.lifetimes.deallocate_command
    allocations, frees = (times.tolist() for times in lifetimes)
    for (begin, end), allocate, free in zip(bounds, allocations, frees, strict=True):
        accesses = all_accesses[begin:end]
        if allocate != -1 and type(commands[allocate]) is AllocMatrix:
            first = 1 if zeroed_by_next[allocate] and accesses[:1] == [allocate + 1] else 0
            if len(accesses) > first:
                place[allocate] = 3 * accesses[first] - 1
        if free != -1 and accesses and type(commands[free]) is DeallocMatrix:
            place[free] = 3 * accesses[-1] + 1
    out = computation.copy()
    out.commands = []
    for c in sorted(range(len(place)), key=place.__getitem__):
        if c > 0 and zeroed_by_next[c - 1]:
            continue
        out.commands.append(commands[c])
        if zeroed_by_next[c]:
            out.commands.append(commands[c + 1])
    # A matrix of zeros that is an output is now allocated just before its ProvideOutput.
    consolidate_io(out)
    return out

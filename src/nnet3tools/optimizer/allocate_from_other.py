"""Reuse memory: replace freeing one matrix and allocating another of its shape by a swap."""

import bisect
from collections import defaultdict

from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import remove_no_operations
from nnet3tools.program.commands import AllocMatrix, DeallocMatrix, NoOperation, SwapMatrix
from nnet3tools.program.computation import Computation, MatrixInfo


def allocate_from_other(computation: Computation, context: PassContext) -> Computation:
    """The program in which freeing a matrix, then allocating one of its shape, becomes a swap."""
    frees: dict[MatrixInfo, list[int]] = defaultdict(list)
    allocations: dict[MatrixInfo, list[int]] = defaultdict(list)
    for position, command in enumerate(computation.commands):
        kind = type(command)
        if kind is DeallocMatrix or kind is AllocMatrix:
            shape = computation.matrices[computation.matrix_of(command.submatrices()[0])]
            (frees if kind is DeallocMatrix else allocations)[shape].append(position)
    out = computation.copy()
    for shape, positions in frees.items():
        open_allocations = allocations[shape]
        # From last to first: each gets the nearest later allocation without a partner.
        for free in reversed(positions):
            following = bisect.bisect(open_allocations, free)
            if following < len(open_allocations):
                allocate = open_allocations.pop(following)
                freed = out.commands[free].submatrices()[0]
                made = out.commands[allocate].submatrices()[0]
                out.commands[allocate] = SwapMatrix(made, freed)
                out.commands[free] = NoOperation()
    return remove_no_operations(out)

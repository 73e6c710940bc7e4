"""Leave out the zeroing of matrices that are written everywhere before they are read."""

from __future__ import annotations

from nnet3tools.optimizer.access_times import is_zeroing
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import remove_no_operations
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.command import AccessType
from nnet3tools.program.commands import NoOperation
from nnet3tools.program.computation import Computation

__all__ = ["initialize_undefined"]


def initialize_undefined(computation: Computation, context: PassContext) -> Computation:
    """Remove the zeroing that follows an allocation where each variable's next access writes it.

    Variables that nothing else touches need no zeros either, unless the user gets the matrix.
    """
    analysis = Analysis(computation, context.nnet)
    out = computation.copy()
    for matrix in range(1, len(out.matrices)):
        commands, _ = analysis.matrix_accesses.of(matrix)
        if len(commands) and is_zeroing(out.commands[commands[0]]):
            if not _zeros_matter(analysis, matrix, int(commands[0])):
                out.commands[commands[0]] = NoOperation()
    return remove_no_operations(out)


def _zeros_matter(analysis: Analysis, matrix: int, zeroing: int) -> bool:
    for variable in analysis.variables.of_matrix(matrix):
        commands, types = analysis.variable_accesses.of(variable)
        if len(commands) == 0 or commands[0] != zeroing:
            # Zeroed in part only; what is outside that part was never defined by it.
            continue
        if len(commands) == 1:
            if analysis.is_output[matrix]:
                return True
        elif types[1] != AccessType.WRITE:
            return True
    return False

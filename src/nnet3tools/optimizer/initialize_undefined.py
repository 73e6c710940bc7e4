"""Remove the zeroing of matrices of which each part is written before it is read."""

import numpy as np

from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.optimizer.access_times import zeroings
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import remove_no_operations
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import NoOperation
from nnet3tools.program.computation import Computation
from nnet3tools.program.operands import AccessType


def initialize_undefined(computation: Computation, context: PassContext) -> Computation:
    """The program without the zeroing of matrices of which each part is written before it is read.

    A part that no command accesses needs no zeros, unless its matrix is an output of the program.
    """
    analysis = context.analyst.analyze(computation)
    end = len(computation.commands)
    first = analysis.matrix_accesses.first(end)
    zeroed = np.append(zeroings(analysis), False)[first]
    zeroed[:1] = False  # matrix 0 is none
    unneeded = zeroed & ~_zeros_matter(analysis, first)
    out = computation.copy()
    for position in first[unneeded].tolist():
        out.commands[position] = NoOperation()
    return remove_no_operations(out)


def _zeros_matter(analysis: Analysis, zeroing: np.ndarray) -> BoolArray:
    """(matrices,) whether zeros that command zeroing[m] writes in matrix m are ever read."""
    table, variables = analysis.variable_accesses, analysis.variables
    counts = np.diff(table.offsets)
    used = np.flatnonzero(counts)
    starts, matrix = table.offsets[used], variables.matrix_of[used]
    # The command may zero a part of the matrix only, which other variables do not need.
    here = table.commands[starts] == zeroing[matrix]
    again = counts[used] > 1
    next_type = table.types[np.where(again, starts + 1, starts)]
    is_output = analysis.lifetimes.is_output[matrix]
    needed = here & np.where(again, next_type != int(AccessType.WRITE), is_output)
    matter = np.zeros(len(analysis.computation.matrices), np.bool_)
    matter[matrix[needed]] = True
    return matter

"""Shrink or drop derivative matrices whose rows outside the wanted times are no longer used."""

from collections.abc import Sequence

import numpy as np

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import NoOperation, SetConst
from nnet3tools.program.computation import Computation, MatrixDebugInfo, SubMatrixInfo


def prune_matrices(
    computation: Computation, nnet: Nnet, rows: Sequence[tuple[int, int]]
) -> Computation:
    """The program with each derivative matrix m cut to rows begin..end-1; rows[m] = (begin, end).

    A matrix is dropped if no row remains. Rows are cut only if commands do nothing but set them
    to a constant. Inputs and outputs of the program do not change.
    """
    analysis = Analysis(computation, nnet)
    out = computation.copy()
    lifetimes, limited = analysis.lifetimes, {}
    for m in range(1, len(out.matrices)):
        is_of_user = lifetimes.is_input[m] or lifetimes.is_output[m]
        if is_of_user or not out.matrix_debug_info[m].is_deriv:
            continue
        begin, end = rows[m]
        if begin == end:
            _drop_if_unused(out, analysis, m)
        elif end - begin < out.matrices[m].num_rows and _can_cut(out, analysis, m, begin, end):
            limited[m] = (begin, end)
    if limited:
        _cut(out, limited)
    return out


def _only_set(computation: Computation, commands: np.ndarray) -> bool:
    """Whether all the commands, given by position, set a submatrix to a constant."""
    return all(type(computation.commands[c]) in (SetConst, NoOperation) for c in commands.tolist())


def _drop_if_unused(computation: Computation, analysis: Analysis, m: int) -> None:
    commands, _ = analysis.matrix_accesses.of_item(m)
    if _only_set(computation, commands):
        lifetimes = analysis.lifetimes
        sizing = lifetimes.allocate_command[m], lifetimes.deallocate_command[m]
        for c in (*commands.tolist(), *map(int, sizing)):
            if c != -1:
                computation.commands[c] = NoOperation()


def _can_cut(computation: Computation, analysis: Analysis, m: int, begin: int, end: int) -> bool:
    """Whether commands only set constants in blocks of matrix m with rows outside [begin, end)."""
    for variable in analysis.variables.of_matrix(m):
        block = analysis.variables.block(variable)
        first, last = block.row_offset, block.row_offset + block.num_rows
        if first < begin or last > end:
            commands, _ = analysis.variable_accesses.of_item(variable)
            if not _only_set(computation, commands):
                return False
    return True


def _cut(computation: Computation, limited: dict[int, tuple[int, int]]) -> None:
    """Cut matrix m, in place, to the rows [begin, end) = limited[m]; shift submatrices to match."""
    was_whole = [computation.is_whole_matrix(s) for s in range(len(computation.submatrices))]
    for s, info in enumerate(computation.submatrices):
        m = info.matrix_index
        if m in limited:
            begin, end = limited[m]
            first = info.row_offset - begin
            if first >= 0 and first + info.num_rows <= end - begin:
                computation.submatrices[s] = info._replace(row_offset=first)
            elif was_whole[s]:
                computation.submatrices[s] = info._replace(row_offset=0, num_rows=end - begin)
            else:
                # No command uses this submatrix any more; it gets a valid size.
                computation.submatrices[s] = SubMatrixInfo(m, 0, 1, 0, 1)
    for m, (begin, end) in limited.items():
        computation.matrices[m] = computation.matrices[m]._replace(num_rows=end - begin)
        debug = computation.matrix_debug_info[m]
        computation.matrix_debug_info[m] = MatrixDebugInfo(
            debug.is_deriv, debug.nodes[begin:end], debug.indexes[begin:end]
        )

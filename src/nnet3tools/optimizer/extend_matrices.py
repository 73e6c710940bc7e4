"""Let matrices share memory if they differ only in a few last rows.

If all but the last rows of a matrix are copied to the end of another matrix, the destination is
made longer and the whole matrix is copied. `merge_variables` can then remove the copy. In TDNNs the
parts of an Append thus become parts of their source matrix.
"""

import numpy as np

from nnet3tools.nnet.indexes import NO_TIME
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import renumber
from nnet3tools.program.commands import (
    AllocMatrix,
    Command,
    DeallocMatrix,
    MatrixCopy,
    SetConst,
)
from nnet3tools.program.computation import Computation, MatrixDebugInfo, SubMatrixInfo

MIN_PROPORTION = 0.8
"""A copy is extended only if it copies at least this share of its source's rows."""


_SIZED = frozenset({AllocMatrix, DeallocMatrix, SetConst})


def extend_matrices(computation: Computation, context: PassContext) -> Computation:
    """The program in which copies of most of a matrix become copies of the whole matrix."""
    analysis = context.analyst.analyze(computation)
    if (copies := analysis.groups.get(MatrixCopy)) is None:
        return computation
    out = computation.copy()
    old_rows = [m.num_rows for m in out.matrices]
    protected = analysis.lifetimes.is_input | analysis.lifetimes.is_output
    changed = False
    for position in copies.positions.tolist():
        command = out.commands[position]
        if isinstance(command, MatrixCopy) and command.alpha == 1.0:
            dest, src = out.submatrices[command.dest], out.submatrices[command.src]
            if _extensible(out, dest, src, old_rows) and not protected[dest.matrix_index]:
                out.commands[position] = _extend(out, command)
                changed = True
    if not changed:
        return computation
    _refer_to_whole_matrices(out, old_rows)
    _extend_debug_info(out)
    return renumber(out)


def _extensible(
    computation: Computation, dest: SubMatrixInfo, src: SubMatrixInfo, old_rows: list[int]
) -> bool:
    """Whether a copy src -> dest can become a copy of the whole source, after dest gets more rows.

    `src` must begin its matrix, `dest` end another one. Matrix m had old_rows[m] rows at first.
    """
    src_matrix = computation.matrices[src.matrix_index]
    return (
        src.matrix_index != dest.matrix_index
        and src.num_rows >= MIN_PROPORTION * old_rows[src.matrix_index]
        and src.row_offset == src.col_offset == 0
        and src.num_cols == src_matrix.num_cols
        and src.num_rows < src_matrix.num_rows
        and dest.row_offset + dest.num_rows == old_rows[dest.matrix_index]
    )


def _extend(computation: Computation, command: MatrixCopy) -> MatrixCopy:
    """Lengthen dest's matrix, in place, to hold src's whole matrix; return the copy command."""
    dest, src = computation.submatrices[command.dest], computation.submatrices[command.src]
    src_matrix = computation.matrices[src.matrix_index]
    dest_matrix = computation.matrices[dest.matrix_index]
    end = dest.row_offset + src_matrix.num_rows
    if end > dest_matrix.num_rows:
        dest_matrix = dest_matrix._replace(num_rows=end)
        computation.matrices[dest.matrix_index] = dest_matrix
        computation.submatrices.append(
            SubMatrixInfo(dest.matrix_index, 0, end, 0, dest_matrix.num_cols)
        )
    computation.submatrices.append(dest._replace(num_rows=src_matrix.num_rows))
    computation.submatrices.append(src._replace(num_rows=src_matrix.num_rows))
    last = len(computation.submatrices) - 1
    return command.replace(dest=last - 1, src=last)


def _refer_to_whole_matrices(computation: Computation, old_rows: list[int]) -> None:
    """Let commands that sized or zeroed all old_rows[m] rows of matrix m do so for all its rows."""
    whole = computation.whole_submatrices()

    def followed(command: Command) -> Command:
        assert isinstance(command, AllocMatrix | DeallocMatrix | SetConst)
        info = computation.submatrices[command.submatrix]
        was_whole = (
            info.row_offset == info.col_offset == 0
            and info.num_rows == old_rows[info.matrix_index]
            and info.num_cols == computation.matrices[info.matrix_index].num_cols
        )
        new = whole[info.matrix_index]
        if new == command.submatrix or not was_whole:
            return command
        is_value = isinstance(command, SetConst) and command.value != 0.0
        return command if is_value else command.replace(submatrix=new)

    computation.commands = [
        followed(command) if type(command) in _SIZED else command
        for command in computation.commands
    ]


def _extend_debug_info(computation: Computation) -> None:
    """Give added rows the cindexes of the rows before them, with t = NO_TIME, in place."""
    for m, debug in enumerate(computation.matrix_debug_info):
        extra = computation.matrices[m].num_rows - len(debug.nodes)
        if extra > 0:
            rows = np.arange(len(debug.nodes) - extra, len(debug.nodes))
            indexes = debug.indexes[rows].copy()
            indexes[:, 1] = NO_TIME
            computation.matrix_debug_info[m] = MatrixDebugInfo(
                debug.is_deriv,
                np.concatenate([debug.nodes, debug.nodes[rows]]),
                np.concatenate([debug.indexes, indexes]),
            )

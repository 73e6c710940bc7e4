"""Replace row operations over consecutive rows by operations on whole submatrices."""

from nnet3tools.nnet.indexes import IntArray, is_increasing
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import AddRows, Command, CopyRows, MatrixAdd, MatrixCopy
from nnet3tools.program.computation import Computation

_ROW_OPS = (CopyRows, AddRows)


def optimize_row_ops(computation: Computation, context: PassContext) -> Computation:
    """The program in which CopyRows of consecutive rows becomes MatrixCopy, and AddRows MatrixAdd.

    Rows of "nothing" (-1) may stand before and after. For CopyRows they mean zeros, and can be left
    out because this pass comes before all that remove zeroing, so that those rows are still zero.
    """
    out = computation.copy()
    out.commands = [
        _as_matrix_op(out, command) if isinstance(command, _ROW_OPS) else command
        for command in out.commands
    ]
    return out


def _as_matrix_op(computation: Computation, command: CopyRows | AddRows) -> Command:
    if (run := _single_run(computation.indexes[command.indexes])) is None:
        return command
    place, source_row, length = run
    dest = computation.new_submatrix(command.dest, place, length)
    src = computation.new_submatrix(command.src, source_row, length)
    kind = MatrixCopy if isinstance(command, CopyRows) else MatrixAdd
    return kind(dest, src, command.alpha)


def _single_run(rows: IntArray) -> tuple[int, int, int] | None:
    """(position, first row, length) of a run r, r+1, ...; None unless all other rows are -1."""
    used = (rows >= 0).nonzero()[0]
    if len(used) == 0:
        return None
    first, length = int(used[0]), len(used)
    if used[-1] - first + 1 != length:
        return None
    start, run = int(rows[first]), rows[first : first + length]
    if int(run[-1]) - start + 1 != length or not is_increasing(run):
        return None
    return first, start, length

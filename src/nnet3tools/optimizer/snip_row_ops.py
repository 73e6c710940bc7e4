"""Shorten row operations whose index lists begin or end with -1 (no row)."""

from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import Command, CopyRows, CopyRowsMulti, RowsCommand, has_row
from nnet3tools.program.computation import Computation


def snip_row_ops(computation: Computation, context: PassContext) -> Computation:
    """The program without the leading and trailing rows that AddRows and similar commands skip.

    CopyRows and CopyRowsMulti do not change, because their "no row" means a row of zeros.
    """
    out = computation.copy()
    out.commands = [
        _snipped(out, command) if isinstance(command, RowsCommand) else command
        for command in out.commands
    ]
    return out


def _snipped(computation: Computation, command: RowsCommand) -> Command:
    entries = command.entries(computation)
    used = has_row(entries).nonzero()[0]
    if isinstance(command, CopyRows | CopyRowsMulti) or not len(used):
        return command
    begin, end = int(used[0]), int(used[-1]) + 1
    if (begin, end) == (0, len(entries)):
        return command
    own = computation.new_submatrix(command.own, begin, end - begin)
    return command.with_entries(computation, own, entries[begin:end])

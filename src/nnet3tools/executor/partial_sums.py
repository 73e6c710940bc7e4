"""Finds Backprop commands of a recurrence that can add up the sums of a later parameter update.

One Backprop command of all rows updates the parameters. Earlier ones, one for each step, give the
input derivatives of some rows. Without their sums, an LSTM would compute everything twice.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.executor.bound_program import BoundProgram
from nnet3tools.program.analysis import Analysis
from nnet3tools.program.commands import Backprop, BackpropNoModelUpdate
from nnet3tools.program.operands import AccessType
from nnet3tools.tensor.registry import on_host


def find_parts(program: BoundProgram, analysis: Analysis) -> dict[int, int]:
    """A dictionary: number of a step's Backprop command -> number of the updating command.

    The steps of an update have all its rows, each once, and no later command changes their inputs.
    """
    found: dict[int, int] = {}
    if not (program.computation.need_model_derivative and on_host(program.arena)):
        return found  # on a GPU, sums of few rows at a time take longer
    commands = program.computation.commands
    for c, command in enumerate(commands):
        if type(command) is not Backprop or command.in_deriv:
            continue
        if program.nnet.component(command.component).sums_shape:
            parts = [
                p for p, other in enumerate(commands[:c])
                if type(other) is BackpropNoModelUpdate and other.component == command.component
            ]  # fmt: skip
            if parts and _cover(program, parts, c) and _stay(analysis, parts, c):
                found |= dict.fromkeys(parts, c)
    return found


def _cover(program: BoundProgram, parts: list[int], c: int) -> bool:
    """Whether commands `parts` read exactly the rows that command `c` reads, none of them twice."""
    computation, plan = program.computation, program.plan
    found = []
    for name in ("in_value", "out_deriv"):
        own, *others = (
            computation.submatrices[getattr(computation.commands[p], name)] for p in (c, *parts)
        )
        matrix, columns = own.matrix_index, (own.col_offset, own.num_cols)
        if any((s.matrix_index, s.col_offset, s.num_cols) != (matrix, *columns) for s in others):
            return False
        if any(plan.after(p, matrix) != plan.after(c, matrix) for p in parts):
            return False
        begins = [s.row_offset - own.row_offset for s in others]
        found.append([(b, b + s.num_rows) for b, s in zip(begins, others, strict=True)])
    begin, end = zip(*sorted(found[0]), strict=True)
    return found[0] == found[1] and (*begin, own.num_rows) == (0, *end)


def _stay(analysis: Analysis, parts: list[int], c: int) -> bool:
    """Whether what each command of `parts` reads is not written again before command `c`."""
    for p in parts:
        command = analysis.computation.commands[p]
        assert isinstance(command, BackpropNoModelUpdate)
        read = np.array([command.in_value, command.out_deriv])
        for variable in analysis.variables.of_submatrices(read)[1].tolist():
            commands, types = analysis.variable_accesses.of_item(variable)
            if ((commands > p) & (commands < c) & (types & int(AccessType.WRITE) != 0)).any():
                return False
    return True

"""Turn the first addition to zeroed memory into a copy."""

import numpy as np

from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.optimizer.access_times import AccessTimes
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.program.commands import (
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Command,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    MatrixAdd,
    MatrixCopy,
)
from nnet3tools.program.computation import Computation
from nnet3tools.program.groups import CommandGroup
from nnet3tools.program.operands import AccessType

_COPYING: dict[type[Command], type[Command]] = {
    MatrixAdd: MatrixCopy,
    AddRows: CopyRows,
    AddRowsMulti: CopyRowsMulti,
    AddToRowsMulti: CopyToRowsMulti,
}


def convert_addition(computation: Computation, context: PassContext) -> Computation:
    """The program in which additions to matrices that hold only zeros become copies."""
    times = AccessTimes(context.analyst.analyze(computation))
    out = computation.copy()
    for cls, copying in _COPYING.items():
        if (group := times.analysis.groups.get(cls)) is None:
            continue
        convertible = _writes_first(times, group)
        if copying is CopyToRowsMulti:
            convertible &= group.alphas() == 1.0
        for i in np.flatnonzero(convertible).tolist():
            command = group.commands[i]
            out.commands[group.positions[i]] = command.turned_into(copying)
    return out


def _writes_first(times: AccessTimes, group: CommandGroup) -> BoolArray:
    """(commands,) whether nothing but zeroing accesses a command's target before the command."""
    is_first = np.ones(times.end, np.bool_)
    computation, components = times.analysis.computation, times.analysis.components
    for commands, submatrices, kinds in group.cls.accesses_of(group, computation, components):
        writes = np.broadcast_to((np.asarray(kinds) & AccessType.WRITE) != 0, commands.shape)
        commands = commands[writes]
        first = times.first_nontrivial_access(submatrices[writes])
        is_first[commands[first != commands]] = False
    return is_first[group.positions]

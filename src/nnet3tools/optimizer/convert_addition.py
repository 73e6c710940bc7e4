"""Turn the first addition to zeroed memory into a copy."""

from __future__ import annotations

from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.access_times import AccessTimes
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.program.command import AccessType
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
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation

__all__ = ["convert_addition"]

_COPYING: dict[type[Command], type[Command]] = {
    MatrixAdd: MatrixCopy,
    AddRows: CopyRows,
    AddRowsMulti: CopyRowsMulti,
    AddToRowsMulti: CopyToRowsMulti,
}


def convert_addition(computation: Computation, nnet: Nnet, options: OptimizeOptions) -> Computation:
    """Replace each Add command by its Copy where nothing but zeros was there before."""
    times = AccessTimes(computation, nnet)
    components = ComponentTable(nnet)
    out = computation.copy()
    for position, command in enumerate(out.commands):
        copying = _COPYING.get(type(command))
        if copying is None or (copying is CopyToRowsMulti and command.alpha != 1.0):  # type: ignore[attr-defined]
            continue
        written = (
            access.submatrix
            for access in command.accesses(out, components)
            if access.type & AccessType.WRITE
        )
        if all(times.first_nontrivial_access(s) == position for s in written):
            out.commands[position] = copying.from_args(*command.to_args())
    return out

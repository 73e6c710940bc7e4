"""Join parameter updates: recurrent networks run Backprop of a component once for each step.

The input values and output derivatives of all those steps are gathered in one matrix, and one
Backprop over it updates the model; the steps themselves become BackpropNoModelUpdate.
"""

import itertools
from collections import defaultdict
from typing import Any

import numpy as np

from nnet3tools.compiler.io_order import consolidate_io
from nnet3tools.optimizer.pass_context import PassContext
from nnet3tools.optimizer.renumber import remove_no_operations
from nnet3tools.program.commands import (
    AllocMatrix,
    Backprop,
    BackpropNoModelUpdate,
    Command,
    DeallocMatrix,
    MatrixCopy,
    NoOperation,
    SetConst,
)
from nnet3tools.program.component_facts import ComponentTable
from nnet3tools.program.computation import Computation, MatrixDebugInfo, StrideType


def consolidate_model_update(computation: Computation, context: PassContext) -> Computation:
    """The program with the model updates of each simple updatable component joined to one."""
    steps = _backprops_by_component(computation, context.analyst.components)
    if not computation.need_model_derivative or not steps:
        return computation
    out = computation.copy()
    before: dict[int, list[Command]] = defaultdict(list)
    updates: list[Command] = []
    deallocations: list[Command] = []
    for component, positions in sorted(steps.items()):
        backprops = [c for p in positions if isinstance(c := out.commands[p], Backprop)]
        gathered: dict[str, Any] = {}
        for operand in ("in_value", "out_value", "out_deriv"):
            parts = [getattr(command, operand) for command in backprops]
            gathered[operand] = 0
            if parts[0]:
                gathered[operand] = whole = _gather(out, parts)
                before[0] += [AllocMatrix(whole), SetConst(whole, 0.0)]
                deallocations.append(DeallocMatrix(whole))
                row = 0
                for position, part in zip(positions, parts, strict=True):
                    rows = out.submatrices[part].num_rows
                    place = out.new_submatrix(whole, row, rows)
                    before[position].append(MatrixCopy(place, part))
                    row += rows
        updates.append(Backprop(component, 0, **gathered, in_deriv=0))
        for position, command in zip(positions, backprops, strict=True):
            out.commands[position] = (
                command.turned_into(BackpropNoModelUpdate) if command.in_deriv else NoOperation()
            )
    commands: list[Command] = []
    for begin, end in itertools.pairwise([*sorted({0, *before}), len(out.commands)]):
        commands += before[begin] + out.commands[begin:end]
    out.commands = commands + updates + deallocations
    consolidate_io(out)
    return remove_no_operations(out)


def _backprops_by_component(
    computation: Computation, components: ComponentTable
) -> dict[int, list[int]]:
    """For each component number with several joinable Backprops, the numbers of these commands."""
    positions: dict[int, list[int]] = defaultdict(list)
    for c, command in enumerate(computation.commands):
        if type(command) is Backprop:
            facts = components[command.component]
            if facts.updatable and facts.simple and not facts.uses_memo:
                positions[command.component].append(c)
    return {component: found for component, found in positions.items() if len(found) > 1}


def _gather(computation: Computation, parts: list[int]) -> int:
    """Declare a matrix for the rows of all submatrices `parts`; return its submatrix number."""
    infos = [computation.submatrices[s] for s in parts]
    equal_stride = any(
        computation.is_whole_matrix(s)
        and computation.matrices[info.matrix_index].stride_type == StrideType.EQUAL_NUM_COLS
        for s, info in zip(parts, infos, strict=True)
    )
    stride = StrideType.EQUAL_NUM_COLS if equal_stride else StrideType.DEFAULT
    whole = computation.new_matrix(sum(i.num_rows for i in infos), infos[0].num_cols, stride)
    if computation.matrix_debug_info:
        debug = [computation.matrix_debug_info[i.matrix_index] for i in infos]
        rows = [slice(i.row_offset, i.row_offset + i.num_rows) for i in infos]
        computation.matrix_debug_info.append(
            MatrixDebugInfo(
                debug[0].is_deriv,
                np.concatenate([d.nodes[r] for d, r in zip(debug, rows, strict=True)]),
                np.concatenate([d.indexes[r] for d, r in zip(debug, rows, strict=True)]),
            )
        )
    return whole

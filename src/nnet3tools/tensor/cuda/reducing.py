"""Formulas with reductions of rows or columns on CUDA: binds operands to kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import get_device
from nnet3tools.tensor.cuda.launches import (
    COLUMNS,
    LANES,
    Launch,
    Step,
    arguments,
    block_of,
    grid_for,
    slices_of,
    zero_tickets,
)
from nnet3tools.tensor.emit.cuda_columns import column_kernels
from nnet3tools.tensor.emit.cuda_rows import row_kernel
from nnet3tools.tensor.emit.walk import Walk, merged_strides, walk_of
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.operands import checked_arrays

_MOST_BLOCKS = 1 << 20


def bind_rows(assignments: Assignments, operands: Sequence[Any]) -> Step:
    """A callable that does a formula's assignments, with row reductions, by one kernel."""
    arrays, full, targets = checked_arrays(assignments, operands)
    if 0 in full:
        return lambda: None
    walk, sizes, strides = _walk(operands, arrays, full, -1)
    device, rows = get_device(), math.prod(sizes[:-1])
    found = row_kernel(assignments, walk)
    args = arguments([*sizes, rows, *walk.arguments(operands, strides)])
    grid, block = (min(rows, _MOST_BLOCKS), 1, 1), (block_of(full[-1]), 1, 1)
    return Launch(device.kernel(*found), *found, grid, block, args, arrays, targets)


def bind_columns(assignments: Assignments, operands: Sequence[Any]) -> Step:
    """A callable that runs `assignments` that reduce columns: a kernel for each pass over rows."""
    arrays, full, targets = checked_arrays(assignments, operands)
    walk, sizes, strides = _walk(operands, arrays, full, -2)
    if len(sizes) != 2 or assignments.reduces_rows:
        raise ProgramError(f"a formula reduces columns of operands of {len(sizes)} axes, or rows")
    if full[-1] == 0:
        return lambda: None
    found, device, (rows, columns) = column_kernels(assignments, walk), get_device(), sizes
    slices, tiles = slices_of(rows, columns, device.num_processors)
    kept = device.empty((max(1, found.num_kept), columns), np.float64)
    partial = device.empty((slices, found.num_sums, columns), np.float64)
    tickets = zero_tickets(tiles)
    shared = [*sizes, *walk.arguments(operands, strides), kept]
    args = arguments([*shared, partial, tickets, -(-rows // slices)])
    own, steps = [kept, partial, tickets], list[Step]()
    for number, source in enumerate(found.reducing):
        written = [operands[t] for t in found.stored_first] if number == 0 else []
        if number == len(found.reducing) - 1:
            written += [operands[t] for t in found.totals]
        steps.append(
            Launch(
                device.kernel(*source), *source, (tiles, slices, 1), (COLUMNS, LANES, 1), args,
                [*arrays, *own], [*written, *own],
            )
        )  # fmt: skip
    if found.storing is not None and rows:
        grid, block = grid_for(columns, rows, device.num_processors)
        whole = [a for a in arrays if a.shape == full]
        written = [t for t in targets if t.shape == full]
        steps.append(
            Launch(
                device.kernel(*found.storing), *found.storing, grid, block, arguments(shared),
                [*arrays, kept], written, loops=True, size=rows * columns,
                space=(columns, rows, "columns"), points=whole,
            )
        )  # fmt: skip
    return in_turn(steps)


def _walk(
    operands: Sequence[Any], arrays: Sequence[Any], full: tuple[int, ...], reduced: int
) -> tuple[Walk, list[int], list[list[int]]]:
    """(walk, sizes, strides): how a kernel finds the operands' elements, with outer axes merged.

    `arrays` are the operands that are arrays, broadcast to shape `full`; sizes are the merged
    shape, strides those of each array. `reduced` is the axis to reduce, -1 or -2; it is not merged.
    """
    sizes, strides = merged_strides(arrays, full, kept_axes=1)
    if 0 in sizes:  # strides of arrays without elements may be 0
        strides = [s if a.size else [1] * len(s) for a, s in zip(arrays, strides, strict=True)]
    single = reduced if sizes[reduced] == 1 else 0
    walk = walk_of(operands, strides, exact=len(sizes), single=single)
    return walk, sizes, strides

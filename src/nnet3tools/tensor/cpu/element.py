"""Jobs of compiled kernels for formulas: elementwise, or with reductions of rows or columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.cpu.kernels import Formula, Job, Kernel
from nnet3tools.tensor.emit.c import C, element_kernel
from nnet3tools.tensor.emit.c_columns import GROUP, ROWS, column_kernel
from nnet3tools.tensor.emit.c_rows import row_kernel
from nnet3tools.tensor.emit.walk import Walk, merged_strides, walk_of
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.operands import broadcast_shape, is_number, remembered, target_fits

_MAX_KEPT = 1 << 14
"""Elements of a row that a kernel keeps on its stack between stages."""

_CACHE_BYTES = 1 << 19
"""Of a tile of columns that more than one pass reads: it shall stay in the second cache."""

_WHOLE_TILE = 1 << 30
"""Columns of a tile where not even the fewest fit the cache: as many as a kernel has room for."""

_MAX_PLANS = 4096
"""Layouts of operands that are remembered; when there are more, all are forgotten."""

_DTYPES = frozenset(np.dtype(t.value) for t in C.types if not t.is_weak)


class Plan:
    """A kernel (C text) with the arguments that are equal for all operands of one layout.

    The kernel's arguments are the integers `first` (sizes of axes), then addresses, strides and
    values of operands. `steps` is the outermost loop's size, `work` roughly the number of elements.
    """

    def __init__(
        self, kernel: str, walk: Walk, first: Sequence[int], strides: Sequence[Sequence[int]],
        steps: int, work: int,
    ) -> None:  # fmt: skip
        self._kernel, self._steps, self._work = Kernel.of_body(kernel), steps, work
        slots = [[i] for i in range(len(walk.types))]
        words = [*first, *walk.arguments(slots, strides)]
        self._words = np.array([0 if isinstance(w, list) else w for w in words], np.int64)
        self._slots = [(k, w[0]) for k, w in enumerate(words) if isinstance(w, list)]

    def job(self, operands: Sequence[Any]) -> Job:
        """The job of this kernel for operands with the shapes, strides and types of the plan."""
        words = self._words.copy()
        for k, i in self._slots:
            operand = operands[i]
            if operand.__class__ is np.ndarray:
                words[k] = address(operand)
            elif isinstance(operand, (float, np.floating)):
                words.view(np.float64)[k] = operand
            else:
                words[k] = address(operand.array) if is_number(operand) else operand
        return Job(self._kernel, words, [*operands], self._steps, self._work)


_plans: dict[tuple[Any, ...], Plan | bool] = {}
"""What a job depends on but for addresses and floats -> its plan; True: there is nothing to do."""


def plan_of(key: tuple[Any, ...], make: Callable[[], Plan | bool]) -> Plan | bool:
    """The cached result of `make()` for `key`: a Plan, True (nothing to do), False (for NumPy)."""
    return remembered(_plans, key, make, _MAX_PLANS)


def layout(operand: Any) -> Any:
    """A hashable key for a kernel operand: all its properties except addresses and float values."""
    if operand.__class__ is np.ndarray:
        return operand.dtype, operand.shape, operand.strides
    return operand if isinstance(operand, (int, np.integer, np.bool_)) else operand.__class__


def can_walk(operands: Sequence[Any]) -> bool:
    """Whether compiled kernels accept the operands: known types, strides of whole elements."""
    for operand in operands:
        if isinstance(operand, np.ndarray):
            if operand.dtype not in _DTYPES or any(s % operand.itemsize for s in operand.strides):
                return False
        elif not isinstance(operand, (int, float, np.integer, np.floating, np.bool_)):
            if not is_number(operand):
                return False
    return True


def element_jobs(assignments: Assignments, operands: Sequence[Any]) -> list[Job] | None:
    """Jobs (kernels with arguments) that compute the assignments; None if NumPy has to do it."""
    key = assignments, *map(layout, operands)
    plan = plan_of(key, lambda: _plan(assignments, operands))
    if not isinstance(plan, Plan):
        return [] if plan else None
    for n in assignments.targets:
        target = operands[n - 1]
        for o in operands:
            if o is not target and o.__class__ is np.ndarray and overlap(target, o) == "partial":
                return None
    job = plan.job(operands)
    if not assignments.reduces_rows and not assignments.reduces_columns:
        job.formula = Formula(assignments, tuple(operands))
    return [job]


def _plan(assignments: Assignments, operands: Sequence[Any]) -> Plan | bool:
    if not can_walk(operands):
        return False
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    full = broadcast_shape([a.shape for a in arrays]) or (1,)
    by_rows, by_columns = assignments.reduces_rows, assignments.reduces_columns
    for n in assignments.targets:
        shape = operands[n - 1].shape if isinstance(operands[n - 1], np.ndarray) else None
        if shape is None or not target_fits(shape, full, assignments):
            return False
    if 0 in full or (by_columns and (len(full) < 2 or by_rows)):
        return not by_columns
    sizes, strides = merged_strides(arrays, full, kept_axes=int(by_rows or by_columns))
    if by_columns:
        is_matrix = len(sizes) == 2
        return is_matrix and column_plan(assignments, operands, sizes, strides, ROWS)
    single = -1 if by_rows and full[-1] == 1 else 0
    walk = walk_of(operands, strides, exact=1, single=single)
    if by_rows:
        kernel = row_kernel(assignments, walk, full[-1] <= _MAX_KEPT)
    else:
        kernel = element_kernel(assignments, walk)
    return Plan(kernel, walk, sizes, strides, sizes[0], math.prod(full) * len(arrays))


def column_plan(
    assignments: Assignments, operands: Sequence[Any], sizes: Sequence[int],
    strides: Sequence[Sequence[int]], rows: int,
) -> Plan:  # fmt: skip
    """The kernel, as a Plan, of a formula (`assignments`) that reduces axis -2 of its operands.

    `rows` rows are summed in the values' own type before the sum goes to float64. `sizes` are those
    of the axes; `strides` has one sequence for each array of `operands`, in elements.
    """
    single = -2 if sizes[-2] == 1 else 0
    walk = walk_of(operands, strides, exact=2, single=single)
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    written = [operands[n - 1] for n in assignments.targets]
    read = [
        a.itemsize for a, s in zip(arrays, strides, strict=True)
        if s[-2] and s[-1] and not any(a is target for target in written)
    ]  # fmt: skip
    tile = _CACHE_BYTES // max(1, sizes[-2] * sum(read)) // GROUP * GROUP or _WHOLE_TILE
    kernel = column_kernel(assignments, walk, rows)
    steps, work = -(-sizes[-1] // GROUP), math.prod(sizes) * len(arrays)
    return Plan(kernel, walk, [tile, *sizes], strides, steps, work)

"""Element as C: one loop nest for each formula, types and layout.

What reduces rows is in row_formula.py.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Formula, Job, Kernel, Words, indented
from nnet3tools.tensor.cpu.row_formula import Rows
from nnet3tools.tensor.cpu.spelling import C_TYPES, C
from nnet3tools.tensor.cpu.walks import SIMD, Parameters, Walk, arguments, can_walk, walk
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.formulas.lowered import Kind, used
from nnet3tools.tensor.formulas.stages import varying
from nnet3tools.tensor.plain.operands import overlap
from nnet3tools.tensor.source_body import Body
from nnet3tools.tensor.strides import broadcast_shape

__all__ = ["element_jobs"]

MAX_KEPT = 1 << 14
"""Elements of a row that a kernel keeps on its stack between stages."""

_MAX_PLANS = 4096
"""Layouts of operands that are remembered; when there are more, all are forgotten."""


class _Plan:
    """What the jobs of a formula have in common for operands of one layout."""

    def __init__(
        self, assignments: Assignments, operands: Sequence[Any], full: tuple[int, ...]
    ) -> None:
        by_rows = assignments.reduces_rows
        self._found, self._sizes, self._strides = walk(operands, full, by_rows)
        if by_rows:
            self._kernel = _row_kernel(assignments, self._found, full[-1] <= MAX_KEPT)
        else:
            self._kernel = _kernel(assignments, self._found)
        self._words = Words(self._arguments(operands))
        self._work = math.prod(full) * len(self._strides)

    def _arguments(self, operands: Sequence[Any]) -> list[Any]:
        return [*self._sizes, *arguments(self._found, operands, self._strides)]

    def job(self, operands: Sequence[Any]) -> Job:
        """The job for operands of the layout."""
        given = self._arguments(operands)
        alive = [a for a in given if isinstance(a, np.ndarray)]
        words = self._words.filled(given)
        return Job.of_words(self._kernel, words, alive, self._sizes[0], self._work)


_plans: dict[tuple[Any, ...], _Plan | bool] = {}
"""Formula and layouts -> the plan; True: there is nothing to do; False: NumPy does it."""


def element_jobs(assignments: Assignments, operands: Sequence[Any]) -> list[Job] | None:
    """What does the assignments to these operands; None where that is left to NumPy."""
    key = assignments, *[_layout(operand) for operand in operands]
    if (plan := _plans.get(key)) is None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = _plan(assignments, operands)
    if plan is False or not _are_apart(operands, assignments.targets):
        return None
    if not isinstance(plan, _Plan):
        return []
    job = plan.job(operands)
    if not assignments.reduces_rows:
        job.formula = Formula(assignments, tuple(operands))
    return [job]


def _layout(operand: Any) -> Any:
    """All of an operand that its job depends on but for addresses and floats."""
    if isinstance(operand, np.ndarray):
        return operand.dtype, operand.shape, operand.strides
    return operand if isinstance(operand, (int, np.integer, np.bool_)) else type(operand)


def _plan(assignments: Assignments, operands: Sequence[Any]) -> _Plan | bool:
    if not can_walk(operands):
        return False
    full = broadcast_shape([o.shape for o in operands if isinstance(o, np.ndarray)]) or (1,)
    by_rows = assignments.reduces_rows
    if assignments.reduces_columns or not _targets_fit(
        operands, assignments.targets, full, by_rows
    ):
        return False
    if 0 in full:
        return True
    # a walk does not tell a row of one element from a number
    return False if by_rows and full[-1] == 1 else _Plan(assignments, operands, full)


def _targets_fit(
    operands: Sequence[Any], targets: Sequence[int], full: tuple[int, ...], by_rows: bool
) -> bool:
    """Whether targets are whole."""
    for n in targets:
        shape = operands[n - 1].shape if isinstance(operands[n - 1], np.ndarray) else None
        if shape != full and not (by_rows and shape == (*full[:-1], 1)):
            if shape != () or full != (1,):
                return False
    return True


def _are_apart(operands: Sequence[Any], targets: Sequence[int]) -> bool:
    """Whether targets share memory with nothing askew."""
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    for n in targets:
        target = operands[n - 1]
        if any(a is not target and overlap(target, a) == "partial" for a in arrays):
            return False
    return True


def _nest(found: Walk, inner: Sequence[str], rows: Sequence[int]) -> list[str]:
    """Loops over all axes but the last around some lines; `rows` are the operands used."""
    indexes = [f"i{axis}" for axis in range(found.last)]
    lines = [found.row(i, indexes) for i in rows]
    lines += inner
    for axis in reversed(range(found.last)):
        begin, end = ("begin", "end") if axis == 0 else ("0", f"n{axis}")
        head = f"for (i64 i{axis} = {begin}; i{axis} < {end}; ++i{axis}) {{"
        lines = [head, *indented(lines), "}"]
    return lines


def _text(found: Walk, lines: Sequence[str]) -> Kernel:
    taken = Parameters()
    for axis in range(found.axes):
        taken.size(f"n{axis}")
    taken.walked(found)
    body = [*taken.lines, "(void)n0;", *lines]
    return Kernel("".join(f"  {line}\n" for line in body))


@functools.lru_cache(maxsize=1024)
def _kernel(assignments: Assignments, found: Walk) -> Kernel:
    """An elementwise formula as nested loops."""
    body = Body(found.types, C)
    roots = [body.lower(value) for _, value in assignments.items]
    targets = [n - 1 for n in assignments.targets]
    instructions = used(body.instructions, roots)
    read = [v.number for v in instructions if v.kind is Kind.OPERAND and not v.type.is_weak]
    varies = varying(instructions, found.varies)
    lines: dict[bool, list[str]] = {False: [], True: []}
    for v in instructions:
        if v.kind is Kind.OPERAND:
            if not v.type.is_weak:
                lines[v in varies].append(found.load(v.number))
        else:
            lines[v in varies] += body.emit(v)
    for t, root in zip(targets, roots, strict=True):
        lines[True].append(found.store(t, body.name(root), C_TYPES[root.type]))
    first, end = ("begin", "end") if found.last == 0 else ("0", f"n{found.last}")
    loop = [SIMD, f"for (i64 i = {first}; i < {end}; ++i) {{", *indented(lines[True]), "}"]
    arrays = list(dict.fromkeys([*targets, *read]))
    return _text(found, _nest(found, [*lines[False], *loop], arrays))


@functools.lru_cache(maxsize=256)
def _row_kernel(assignments: Assignments, found: Walk, may_keep: bool) -> Kernel:
    """A formula with reductions of rows; `may_keep`: whether rows fit on the stack."""
    rows = Rows(assignments, found, may_keep)
    lines = rows.lines()
    fence = ["NN_FENCE();"] if rows.streams else []
    return _text(found, [*_nest(found, lines, rows.arrays), *fence])

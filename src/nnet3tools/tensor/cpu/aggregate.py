"""Jobs of compiled kernels for aggregates: formulas that reduce rows, columns or everything."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.addresses import overlap
from nnet3tools.tensor.cpu.element import Plan, can_walk, column_plan, layout, plan_of
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.emit.c_rows import row_kernel
from nnet3tools.tensor.emit.walk import walk_of
from nnet3tools.tensor.formulas import Assignments, Expr, Placeholder, Type, cast
from nnet3tools.tensor.formulas.functions import COLUMN_REDUCTIONS, ROW_REDUCTIONS
from nnet3tools.tensor.operands import broadcast_strides, merge_axes, operand_types, target_of

_NAMES = {"sum": "sum", "mean": "sum", "max": "max", "min": "min"}
_ADDED = {False: 512, True: 128}
"""Numbers of a row that are added up in float32; fewer if the output is float64."""
_ROWS = {False: 64, True: 16}
"""The same for rows of columns."""
_CHUNK = 4096
"""Elements of a vector that are reduced by themselves; a float64 each is then added up."""


def aggregate_jobs(
    expr: Expr, reduce: str, axis: int, out: np.ndarray, ins: Sequence[Any],
    alpha: Any, beta: float,
) -> list[Job] | None:  # fmt: skip
    """Jobs (kernels with arguments) for out = beta * out + alpha * (`expr` reduced along `axis`).

    `reduce` is the reduction's name, `ins` the inputs of `expr`. None if NumPy has to compute it.
    """
    if reduce not in _NAMES or out.dtype.kind != "f" or not can_walk([out, *ins, alpha]):
        return None
    if any(isinstance(a, np.ndarray) and overlap(out, a) for a in ins):
        return None
    full = np.broadcast_shapes(*(a.shape for a in ins if isinstance(a, np.ndarray)))
    if 0 in full or not -len(full) <= axis < len(full):
        return None
    factors = _factors(alpha, full[axis] if reduce == "mean" else 1)
    operands = [out, *ins, float(beta), *factors]
    key = expr, reduce, axis, beta != 0.0, *map(layout, operands)
    plan = plan_of(key, lambda: _plan(expr, reduce, axis % len(full), full, operands, len(ins)))
    return [plan.job(operands)] if isinstance(plan, Plan) else None


def _factors(alpha: Any, divisor: float) -> list[Any]:
    """The factors of a reduction: [alpha / divisor]; [alpha, 1 / divisor] if alpha is in memory."""
    if isinstance(alpha, (int, float)):
        return [float(alpha) / divisor]
    return [alpha, 1.0 / divisor]


def _plan(
    expr: Expr, reduce: str, axis: int, full: tuple[int, ...], operands: Sequence[Any],
    num_ins: int,
) -> Plan | bool:  # fmt: skip
    out, *ins = (a for a in operands if isinstance(a, np.ndarray))
    target = target_of(out, tuple(1 if i == axis else n for i, n in enumerate(full)), axis)
    walks = [broadcast_strides(a, full) for a in (target, *ins)]
    kept = [i for i in range(len(full)) if i != axis]
    sizes, steps = merge_axes([full[i] for i in kept], [[w[i] for i in kept] for w in walks])
    reduced = [w[axis] for w in walks]
    along = min((abs(s[-1]) for s in steps[1:] if s[-1]), default=0)
    down = min((abs(r) for r in reduced if r), default=1)
    count, is_wide = full[axis], out.dtype == np.float64
    has_beta = operands[1 + num_ins] != 0.0
    if 0 < along < down and reduce in ("sum", "mean"):
        strides = [[*s[:-1], r, s[-1]] for s, r in zip(steps, reduced, strict=True)]
        total = _assignments(expr, "col_sum", operand_types(operands), num_ins, has_beta)
        if not _differs(expr, operands, strides, -2):
            return False
        sizes = [*sizes[:-1], count, sizes[-1]]
        return column_plan(total, operands, sizes, strides, _ROWS[is_wide])
    strides = [[*s, r] for s, r in zip(steps, reduced, strict=True)]
    return _innermost_plan(
        expr, reduce, operands, num_ins, has_beta, [*sizes, count], strides, _ADDED[is_wide]
    )


def number_jobs(
    expr: Expr, reduce: str, out: np.ndarray, operands: Sequence[Any], alpha: Any
) -> list[Job] | None:
    """Jobs for out[0] = alpha * (`expr` of `operands`, all reduced); None if NumPy has to do it."""
    if reduce not in _NAMES or not can_walk([*operands, alpha]):
        return None
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    full = np.broadcast_shapes(*(a.shape for a in arrays))
    if 0 in full:
        return None
    sizes, strides = merge_axes(full, [broadcast_strides(a, full) for a in arrays])
    chunk, outer = 0, sizes[:-1]
    if not outer:
        chunk, outer = _CHUNK, [-(-sizes[0] // _CHUNK)]
        strides = [[s[0] * _CHUNK, s[0]] for s in strides]
    parts = np.empty(math.prod(outer), np.float64)
    down = [math.prod(outer[axis + 1 :]) for axis in range(len(outer))]
    first = [parts, *operands, 0.0, 1.0]
    factors = _factors(alpha, math.prod(full) if reduce == "mean" else 1)
    last = [out, parts, 0.0, *factors]
    size, both = [*outer, sizes[-1]], [[*down, 0], *strides]

    found = plan_of(
        ("chunks", expr, reduce, *map(layout, first)),
        lambda: _innermost_plan(
            expr, reduce, first, len(operands), False, size, both, _ADDED[True], chunk
        ),
    )
    merged = plan_of(
        ("merge", reduce, len(factors), len(parts), *map(layout, last)),
        lambda: _innermost_plan(
            Placeholder(1), reduce, last, 1, False, [1, len(parts)], [[0, 0], [0, 1]], 1 << 30
        ),
    )
    if not isinstance(found, Plan) or not isinstance(merged, Plan):
        return None
    return [found.job(first), merged.job(last)]


def _innermost_plan(
    expr: Expr, reduce: str, operands: Sequence[Any], num_ins: int, has_beta: bool,
    sizes: Sequence[int], strides: Sequence[Sequence[int]], added: int, chunk: int = 0,
) -> Plan | bool:  # fmt: skip
    """The kernel, as a Plan, that reduces `expr` along the last axis; False if NumPy has to do it.

    `operands` are out, `num_ins` inputs, beta and factors, in this order (`has_beta`: beta is not
    0). `sizes` are those of the axes; `strides` has one sequence for each array. `added` elements
    are summed in float32 before the sum goes to float64. If `chunk` is not 0, operands are vectors,
    of which each piece of `chunk` elements is reduced by itself.
    """
    if not _differs(expr, operands, strides, -1):
        return False
    walk = walk_of(operands, strides, exact=1)
    assignments = _assignments(expr, f"row_{_NAMES[reduce]}", walk.types, num_ins, has_beta)
    kernel = row_kernel(assignments, walk, False, added, chunk)
    work = math.prod(sizes) * (len(strides) - 1)
    return Plan(kernel, walk, sizes, strides, sizes[0], work)


def _differs(
    expr: Expr, operands: Sequence[Any], strides: Sequence[Sequence[int]], axis: int
) -> bool:
    """Whether the value of `expr` may differ along `axis`; its placeholder _n is operands[n].

    `strides` has one sequence for each array of `operands`.
    """
    walked = iter(strides)
    steps = [next(walked)[axis] if isinstance(o, np.ndarray) else 0 for o in operands]
    return any(steps[n] for n in expr.placeholders())


@functools.lru_cache(maxsize=512)
def _assignments(
    expr: Expr, name: str, types: tuple[Type, ...], num_ins: int, has_beta: bool
) -> Assignments:
    """The formula out = beta * out + factors * reduction of `expr`; `name` is the reduction's.

    Operands are out, the `num_ins` inputs, beta, and the factors (one or two, as `types`, the types
    of all operands, say). Without `has_beta` out is not read.
    """
    moved: dict[Expr, Expr] = {Placeholder(n): Placeholder(n + 1) for n in range(1, num_ins + 1)}
    value = expr.substitute(moved)
    known = {i + 1: t for i, t in enumerate(types)}
    if value.type(known) not in (Type.FLOAT32, Type.FLOAT64):
        value = cast(value, Type.FLOAT64)
    functions = COLUMN_REDUCTIONS if name in COLUMN_REDUCTIONS else ROW_REDUCTIONS
    result = cast(functions[name](value), Type.FLOAT64)
    factor: Expr = Placeholder(num_ins + 3)
    if len(types) == num_ins + 4:
        factor = factor * Placeholder(num_ins + 4)
    result = factor * result
    out = Placeholder(1)
    if has_beta:
        result = result + Placeholder(num_ins + 2) * cast(out, Type.FLOAT64)
    return Assignments(((out, result),))

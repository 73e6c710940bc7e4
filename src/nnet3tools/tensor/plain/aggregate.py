"""Aggregate on NumPy: blocks of values, each reduced while it is in the cache.

Blocks are reduced by NumPy (pairwise along rows, a few rows at a time along columns; in float64 if
the output is that or a number), and their results in float64, in an order that depends on shapes
only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.element import FORMULA_BACKENDS
from nnet3tools.tensor.formulas import FUNCTIONS, Expr, Placeholder
from nnet3tools.tensor.operands import (
    broadcast_shape,
    collapse,
    is_number,
    operand_types,
    reduced_axes,
    remembered,
    target_of,
    with_axes,
)
from nnet3tools.tensor.plain.blocks import BlockPlan, sum_of_rows
from nnet3tools.tensor.plain.threads import LOCK, Call, run_calls

_REDUCE: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0.0),
    "mean": (np.add, 0.0),
    "max": (np.maximum, -math.inf),
    "min": (np.minimum, math.inf),
    "prod": (np.multiply, 1.0),
}
"""Reduction -> its ufunc and the value of nothing."""

_MAX_ADDED = 512
"""float32 numbers that may be added one after another; rounding grows with their number."""

_ALIGNED_ROWS = 64


def prepare(
    ins: Sequence[Any], axis: int | None
) -> tuple[list[Any], tuple[int, ...], tuple[int, ...]]:
    """What a reduction of `ins` along `axis` (None: all axes) works on.

    Returns (operands with equal numbers of axes, the axes to reduce, the operands' common shape).
    """
    axes = max(1, *(o.ndim for o in ins if isinstance(o, np.ndarray)))
    operands = [with_axes(o, axes) if isinstance(o, np.ndarray) else o for o in ins]
    full = broadcast_shape([o.shape for o in operands if isinstance(o, np.ndarray)])
    if axis is None:
        flat = collapse(operands, full) if full else None
        if flat is not None:
            return flat, (0,), full
    return operands, tuple(reduced_axes(axis, full)), full


def _store(
    out: np.ndarray | None, values: np.ndarray, alpha: Any, divisor: int, beta: float
) -> float | None:
    """Set out to beta * out + alpha / divisor * values.

    Without `out`, `values` has one element, and alpha / divisor times it is returned.
    """
    factor = (alpha.value() if is_number(alpha) else alpha) / divisor
    if out is None:
        return factor * float(values.reshape(())[()])
    if factor != 1.0:
        values = values * factor
    if beta != 0.0:
        values = values + (out if beta == 1.0 else beta * out)
    np.copyto(out, values, casting="unsafe")
    return None


class _Plan:
    """A reduction of operands of given types and shapes, computed in blocks of rows."""

    def __init__(
        self, expr: Expr, reduce: str, axis: int | None, ins: Sequence[Any], wide: bool
    ) -> None:
        operands, self.axes, whole = prepare(ins, axis)
        shapes = {i: o.shape for i, o in enumerate(operands) if isinstance(o, np.ndarray)}
        types = operand_types(operands)
        self.blocks = BlockPlan([expr], types, shapes, aligned_rows=_ALIGNED_ROWS)
        self.full = self.blocks.full
        self.shape = tuple(1 if i in self.axes else n for i, n in enumerate(self.full))
        self.ufunc, self.start = _REDUCE[reduce]
        self._wide = wide
        count = math.prod(whole) if axis is None else whole[self.axes[0]]
        if count == 0 and reduce in ("max", "min"):
            raise ProgramError(f"{reduce} of nothing: operands have shape {whole}")
        self.divisor = count if reduce == "mean" and count else 1

    def reduced(self, values: np.ndarray, part: np.ndarray, rows: slice) -> Call:
        """A call that reduces `part`, the values of a block, and combines the result with `values`.

        `values` are the results of all blocks so far, `rows` the rows of the block.
        """
        shape = (rows.stop - rows.start, *self.full[1:])
        if part.shape != shape:
            part = np.broadcast_to(part, shape)
        if part.dtype == bool:
            part = part.view(np.int8)
        return self._reduce, (part, values if 0 in self.axes else values[rows])

    def _reduce(self, part: np.ndarray, values: np.ndarray) -> None:
        if self.ufunc is np.add and self.axes == (0,) and part.ndim > 1:
            values += sum_of_rows(part, self._wide)
            return
        added = math.prod(part.shape[axis] for axis in self.axes if axis != part.ndim - 1)
        exact = part.dtype == np.float32 and (self._wide or added > _MAX_ADDED)
        found = self.ufunc.reduce(part, self.axes, np.float64 if exact else None, None, True)
        self.ufunc(values, found, out=values)


class _Aggregate:
    """Binds operands to a reduction of `expr` along `axis` (None: all axes).

    `reduce` is a key of _REDUCE, such as "sum". A call with (out, ins, alpha, beta) computes no
    values: it returns a callable without arguments, which reduces `expr` (ins[0] is its operand _1,
    and so on) and sets out to beta * out + alpha * result. If `out` is None, the callable returns
    alpha * result as a float.
    """

    def __init__(self, expr: Expr, reduce: str, axis: int | None) -> None:
        self._given = expr, reduce, axis
        self._plans: dict[Any, _Plan] = {}

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: Any, beta: float
    ) -> Callable[[], float | None]:
        wide = out is None or out.dtype == np.float64
        layouts = [
            (o.dtype, o.shape, o.flags.c_contiguous) if isinstance(o, np.ndarray) else o.__class__
            for o in ins
        ]
        key = wide, *layouts
        plan = remembered(self._plans, key, lambda: _Plan(*self._given, ins, wide))
        values = np.empty(plan.shape)
        operands = prepare(ins, self._given[2])[0]
        calls = plan.blocks.bind(operands, [functools.partial(plan.reduced, values)])
        target = None if out is None else target_of(out, plan.shape, plan.axes[0])

        def run() -> float | None:
            with LOCK:
                values.fill(plan.start)
                run_calls(calls)
                return _store(target, values, alpha, plan.divisor, beta)

        return run


class _LogSumExp:
    """Returns, when called with operands, a callable for log(sum(exp(`expr`))) along `axis`."""

    def __init__(self, expr: Expr, axis: int | None) -> None:
        self._axis = axis
        self._number = max(expr.placeholders(), default=0) + 1
        self._max = _Aggregate(expr, "max", axis)
        shifted = FUNCTIONS["exp"](expr - Placeholder(self._number))
        self._sum = _Aggregate(shifted, "sum", axis)

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: Any, beta: float
    ) -> Callable[[], float | None]:
        operands, axes, _ = prepare(ins[: self._number - 1], self._axis)
        arrays = [o for o in operands if isinstance(o, np.ndarray)]
        full = broadcast_shape([o.shape for o in arrays])
        shape = tuple(1 if i in axes else n for i, n in enumerate(full))
        dtype = np.float64 if any(o.dtype == np.float64 for o in arrays) else np.float32
        top, total = np.empty(shape, dtype), np.empty(shape, np.float64)
        find_max = self._max(top, operands, 1.0, 0.0)
        find_sum = self._sum(total, [*operands, top], 1.0, 0.0)
        target = None if out is None else target_of(out, shape, axes[0])

        def run() -> float | None:
            find_max()
            # bounded, so that rows of -inf (or with inf) do not become inf - inf
            np.clip(top, np.finfo(dtype).min, np.finfo(dtype).max, out=top)
            find_sum()
            with np.errstate(divide="ignore"):
                np.add(np.log(total, out=total), top, out=total)
            return _store(target, total, alpha, 1, beta)

        return run


FORMULA_BACKENDS["aggregate", "numpy"] = lambda expr, reduce, axis: (
    _LogSumExp(expr, axis) if reduce == "logsumexp" else _Aggregate(expr, reduce, axis)
)

"""Aggregate on NumPy: a formula computed tile by tile, each tile reduced while it is in cache.

Tiles are summed by NumPy (pairwise along rows, row after row along columns; in float64 if the
output is that or a number) and the tiles' sums in float64, in an order that depends on shapes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import AGGREGATE_BACKENDS
from nnet3tools.tensor.functional import FUNCTIONS, Expr, Placeholder, Type, simplify
from nnet3tools.tensor.numpy_backend.calls import TileCalls, split_groups
from nnet3tools.tensor.numpy_backend.element import MAX_PLANS, used_values
from nnet3tools.tensor.numpy_backend.lowering import Lowering
from nnet3tools.tensor.numpy_backend.operands import collapse, operand_types, with_axes
from nnet3tools.tensor.numpy_backend.threads import LOCK, Call, run_calls
from nnet3tools.tensor.numpy_backend.tiles import Layout, Shape, Slices, broadcast_shape

_REDUCE: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0.0),
    "mean": (np.add, 0.0),
    "max": (np.maximum, -math.inf),
    "min": (np.minimum, math.inf),
    "prod": (np.multiply, 1.0),
}
"""Reduction -> its ufunc and the value of nothing."""


_MAX_ADDED = 512
"""How many float32 numbers may be added one after another; rounding grows with their number."""


class _Plan:
    """One reduction for operands of given shapes (equal numbers of axes)."""

    def __init__(
        self, lowering: Lowering, root: Any, reduce: str, axes: tuple[int, ...],
        operands: Sequence[Any], wide: bool,
    ) -> None:  # fmt: skip
        shapes = {i: o.shape for i, o in enumerate(operands) if isinstance(o, np.ndarray)}
        self.full = broadcast_shape(list(shapes.values()))
        self.axes = axes
        self.out_shape = tuple(1 if i in axes else n for i, n in enumerate(self.full))
        self._ufunc, self._start = _REDUCE[reduce]
        self._dtype = np.dtype(np.float64) if wide and root.dtype == np.float32 else None
        values = used_values(lowering.values, [root])
        self._layout = Layout(values, shapes, self.full, keep=[root])
        work = (len(values) + 1) * math.prod(self.full)
        self._groups = split_groups(self._layout.tiles, work) if work else []
        self._tile_calls = TileCalls(self._layout, self._groups)
        # one accumulator a group: threads must not add to the same place
        self.sums = np.empty((max(1, len(self._groups)), *self.out_shape), np.float64)

    def bind(self, operands: Sequence[Any]) -> Callable[[], np.ndarray]:
        """What computes the reduction (before alpha, beta) into an array of `out_shape`."""
        numbers = self._tile_calls.bind_numbers(operands)
        groups = []
        for group, tiles in enumerate(self._tile_calls.tiles(operands, numbers)):
            calls: list[Call] = []
            for slices, tile in zip(self._groups[group], tiles, strict=True):
                calls += tile.calls
                calls.append(self._add_tile(tile.kept[0], slices, self.sums[group]))
            groups.append(calls)
        first = self._tile_calls.once(operands, numbers)

        def run() -> np.ndarray:
            # the sums belong to the plan, which other bound operators may share: hold LOCK
            self.sums.fill(self._start)
            run_calls(first, groups)
            for other in self.sums[1:]:
                self._ufunc(self.sums[0], other, out=self.sums[0])
            return self.sums[0]

        return run

    def _add_tile(self, part: np.ndarray, slices: Slices, sums: np.ndarray) -> Call:
        """The call that adds a tile's reduction to its place in the sums."""
        shape = tuple([s.stop - s.start for s in slices])
        if part.shape != shape:
            part = np.broadcast_to(part, shape)
        if part.dtype == bool:
            part = part.view(np.int8)
        if self._layout.full[1:] != shape[1:] or 0 not in self.axes:
            at = [s if i not in self.axes else slice(0, 1) for i, s in enumerate(slices)]
            sums = sums[tuple(at)]
        return _add_tile, (self._ufunc, self.axes, self._sum_dtype(part), part, sums)

    def _sum_dtype(self, part: np.ndarray) -> np.dtype | None:
        """The type to reduce a tile in: float64 if many float32 rows would be added one by one."""
        last = part.ndim - 1
        added = math.prod(part.shape[axis] for axis in self.axes if axis != last)
        if added > _MAX_ADDED and part.dtype == np.float32:
            return np.dtype(np.float64)
        return self._dtype


def _add_tile(
    ufunc: Any, axes: tuple[int, ...], dtype: np.dtype | None, part: np.ndarray, sums: np.ndarray
) -> None:
    """sums = sums (+) the tile reduced."""
    ufunc(sums, ufunc.reduce(part, axes, dtype, None, True), out=sums)


class _NumpyAggregate:
    """Binds operands to a reduction; lowerings are kept by types, plans by shapes."""

    def __init__(self, expr: Expr, reduce: str, axis: int | None) -> None:
        self._expr, self._reduce, self._axis = simplify(expr), reduce, axis
        self._lowered: dict[tuple[Type, ...], tuple[Lowering, Any]] = {}
        self._plans: dict[Any, _Plan] = {}

    def _plan(self, operands: Sequence[Any], axes: tuple[int, ...], wide: bool) -> _Plan:
        types = operand_types(operands)
        if (lowered := self._lowered.get(types)) is None:
            lowering = Lowering(types)
            lowered = self._lowered[types] = lowering, lowering.lower(self._expr)
        key = types, tuple(getattr(o, "shape", None) for o in operands), wide
        if (plan := self._plans.get(key)) is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = _Plan(
                lowered[0], lowered[1], self._reduce, axes, operands, wide
            )
        return plan

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], float | None]:
        operands, axes, full = _prepare(ins, self._axis)
        wide = out is None or out.dtype == np.float64
        plan = self._plan(operands, axes, wide)
        count = math.prod(full[i] for i in range(len(full)) if self._axis is None or i in axes)
        if count == 0 and self._reduce in ("max", "min"):
            raise ProgramError(f"{self._reduce} of nothing: operands have shape {full}")
        factor = alpha / count if self._reduce == "mean" and count else alpha
        run = plan.bind(operands)
        target = None if out is None else _target(out, plan.out_shape, axes[0])

        def finish() -> float | None:
            with LOCK:
                if target is None:
                    return factor * float(run().reshape(())[()])
                _store(target, run(), factor, beta)
                return None

        return finish


def _prepare(
    ins: Sequence[Any], axis: int | None
) -> tuple[list[Any], tuple[int, ...], tuple[int, ...]]:
    """Operands with equal numbers of axes, the axes to reduce, and the full shape."""
    axes = max(1, *(o.ndim for o in ins if isinstance(o, np.ndarray)))
    operands = [with_axes(o, axes) if isinstance(o, np.ndarray) else o for o in ins]
    full = broadcast_shape([o.shape for o in operands if isinstance(o, np.ndarray)])
    if axis is None:
        flat = collapse(operands, full) if full else None
        if flat is not None:
            return flat, (0,), full
        return operands, tuple(range(axes)), full
    if not -axes <= axis < axes:
        raise ProgramError(f"cannot reduce axis {axis} of shape {full}")
    return operands, (axis % axes,), full


def _target(out: np.ndarray, shape: Shape, axis: int) -> np.ndarray:
    """The output with the reduced axis as an axis of size 1."""
    target = np.expand_dims(out, axis) if out.ndim == len(shape) - 1 else out
    if target.shape != shape:
        raise ProgramError(f"an aggregate of shape {shape} does not fit an output {out.shape}")
    return target


def _store(out: np.ndarray, value: np.ndarray, factor: float, beta: float) -> None:
    """out = beta * out + factor * value; out is not read if beta is 0."""
    if factor != 1.0:
        value = value * factor
    if beta != 0.0:
        value = value + (out if beta == 1.0 else beta * out)
    np.copyto(out, value, casting="unsafe")


class _LogSumExp:
    """log of sum of exp: the maximum first, then the sum of exp of what lies below it."""

    def __init__(self, expr: Expr, axis: int | None) -> None:
        self._axis = axis
        self._number = max(expr.placeholders(), default=0) + 1
        # bounded, so that rows of -inf (or with inf) do not become inf - inf
        self._max = _NumpyAggregate(expr, "max", axis)
        shifted = FUNCTIONS["exp"](expr - Placeholder(self._number))
        self._sum = _NumpyAggregate(shifted, "sum", axis)

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], float | None]:
        operands, axes, full = _prepare(ins, self._axis)
        reduced = range(len(full)) if self._axis is None else axes
        shape = tuple(1 if i in reduced else n for i, n in enumerate(full))
        dtype = np.float64 if any(getattr(o, "dtype", 0) == np.float64 for o in ins) else np.float32
        top, total = np.empty(shape, dtype), np.empty(shape, np.float64)
        unused = [0.0] * (self._number - 1 - len(operands))
        whole = [with_axes(o, len(full)) if isinstance(o, np.ndarray) else o for o in ins]
        if self._axis is None:
            find_max = self._max(None, ins, 1.0, 0.0)
            find_sum = self._sum(None, [*whole, *unused, top], 1.0, 0.0)
        else:
            find_max = self._max(top, ins, 1.0, 0.0)
            find_sum = self._sum(total, [*whole, *unused, top], 1.0, 0.0)
        target = None if out is None else _target(out, shape, axes[0])

        def run() -> float | None:
            largest = find_max()
            if largest is not None:
                top.fill(largest)
            np.clip(top, np.finfo(dtype).min, np.finfo(dtype).max, out=top)
            if (value := find_sum()) is not None:
                total.fill(value)
            with np.errstate(divide="ignore"):
                np.add(np.log(total, out=total), top, out=total)
            if target is None:
                return alpha * float(total.reshape(())[()])
            _store(target, total, alpha, beta)
            return None

        return run


def _lower(expr: Expr, reduce: str, axis: int | None) -> Callable[..., Callable[[], Any]]:
    if reduce == "logsumexp":
        return _LogSumExp(expr, axis)
    return _NumpyAggregate(expr, reduce, axis)


AGGREGATE_BACKENDS["numpy"] = _lower

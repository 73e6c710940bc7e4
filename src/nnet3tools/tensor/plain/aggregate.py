"""Aggregate on NumPy: a formula computed tile by tile, each tile reduced while it is in cache.

Tiles are summed by NumPy (pairwise along rows, row after row along columns; in float64 if the
output is that or a number) and the tiles' sums in float64, in an order that depends on shapes only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.plain.calls import TileCalls, split_groups
from nnet3tools.tensor.plain.element import MAX_PLANS
from nnet3tools.tensor.plain.fusion import fuse
from nnet3tools.tensor.plain.lowering import Steps, Value
from nnet3tools.tensor.plain.operands import collapse, is_number, operand_types, with_axes
from nnet3tools.tensor.plain.threads import LOCK, Call, run_calls
from nnet3tools.tensor.plain.tiles import Layout, Shape, Slices, broadcast_shape

__all__ = ["TiledAggregate", "prepare", "store", "target_of"]

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

_BLOCK_ROWS = {False: 64, True: 16}
"""Rows of which sums of products are added up in float32; fewer if the output is float64."""


class _Plan:
    """One reduction for operands of given shapes (equal numbers of axes)."""

    def __init__(
        self, steps: Steps, root: Any, reduce: str, axes: tuple[int, ...],
        operands: Sequence[Any], wide: bool,
    ) -> None:  # fmt: skip
        shapes = {i: o.shape for i, o in enumerate(operands) if isinstance(o, np.ndarray)}
        self.full = broadcast_shape(list(shapes.values()))
        self.axes = axes
        self.out_shape = tuple(1 if i in axes else n for i, n in enumerate(self.full))
        self._ufunc, self._start = _REDUCE[reduce]
        self._dtype = np.dtype(np.float64) if wide and root.dtype == np.float32 else None
        values, (root,) = fuse(steps.values, [root], shapes)
        self._layout = Layout(values, shapes, self.full, keep=[root], reduced=True)
        work = (len(values) + 1) * math.prod(self.full)
        self._groups = split_groups(self._layout.tiles, work) if work else []
        self._tile_calls = TileCalls(self._layout, self._groups)
        self._factors = self._find_factors(root)
        self._rows = min(_BLOCK_ROWS[wide], self.full[0]) if self._factors else 0
        # one accumulator a group: threads must not add to the same place
        self.sums = np.empty((max(1, len(self._groups)), *self.out_shape), np.float64)

    def _find_factors(self, root: Value) -> tuple[int, ...]:
        """The operands whose product is summed, if `_column_sums` will do; else nothing."""
        values = (root,) if root.kind == "operand" else root.inputs
        plain = root.kind == "operand" or (root.function is np.multiply and root.view is None)
        plain = plain or root.function is np.square
        shapes = self._layout.shapes
        fits = (
            plain
            and self._ufunc is np.add
            and self.axes == (0,)
            and len(self.full) == 2
            and root.dtype == np.float32
            and all(v.kind == "operand" and v.dtype == np.float32 for v in values)
        )
        if not fits or any(shapes[v.number] != self.full for v in values) or 0 in self.full:
            return ()
        numbers = tuple(v.number for v in values)
        return numbers * 2 if root.function is np.square else numbers

    def bind(self, operands: Sequence[Any]) -> Callable[[], np.ndarray]:
        """The bound reduction (before alpha, beta), which gives an array of `out_shape`."""
        if self._factors:
            factors = [operands[i] for i in self._factors]
            return functools.partial(_column_sums, factors, self._rows, self.sums[0])
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


def _column_sums(factors: Sequence[np.ndarray], rows: int, out: np.ndarray) -> np.ndarray:
    """Sums of the columns of a matrix, or of a product of two, block by block of rows.

    The blocks are summed in float32 without temporaries, their sums in float64.
    """
    count, rest = divmod(len(factors[0]), rows)
    whole = [x[: count * rows].reshape(count, rows, x.shape[1]) for x in factors]
    _sum_blocks(whole).sum(axis=0, dtype=np.float64, out=out[0])
    if rest:
        out += _sum_blocks([x[count * rows :][None] for x in factors])
    return out


def _sum_blocks(factors: Sequence[np.ndarray]) -> np.ndarray:
    if len(factors) == 1:
        return np.add.reduce(factors[0], axis=1)
    return np.einsum("kij,kij->kj", *factors)


class TiledAggregate:
    """Binds operands to a reduction; lowerings are kept by types, plans by shapes."""

    def __init__(self, expr: Expr, reduce: str, axis: int | None) -> None:
        self._expr, self._reduce, self._axis = expr, reduce, axis
        self._lowered: dict[tuple[Type, ...], tuple[Steps, Any]] = {}
        self._signatures: dict[Any, _Signature] = {}

    def _sign(self, ins: Sequence[Any], wide: bool) -> _Signature:
        operands, axes, full = prepare(ins, self._axis)
        types = operand_types(operands)
        if (lowered := self._lowered.get(types)) is None:
            steps = Steps(types)
            lowered = self._lowered[types] = steps, steps.lower(self._expr)
        plan = _Plan(lowered[0], lowered[1], self._reduce, axes, operands, wide)
        count = math.prod(full[i] for i in range(len(full)) if self._axis is None or i in axes)
        if count == 0 and self._reduce in ("max", "min"):
            raise ProgramError(f"{self._reduce} of nothing: operands have shape {full}")
        divisor = count if self._reduce == "mean" and count else 1
        return _Signature(plan, divisor, self._axis is None and axes == (0,) and len(full) > 0)

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], float | None]:
        wide = out is None or out.dtype == np.float64
        operands_key = [
            (o.dtype, o.shape, o.flags.c_contiguous) if o.__class__ is np.ndarray else o.__class__
            for o in ins
        ]
        key = wide, *operands_key
        if (found := self._signatures.get(key)) is None:
            if len(self._signatures) >= MAX_PLANS:
                self._signatures.clear()
            found = self._signatures[key] = self._sign(ins, wide)
        plan = found.plan
        run = plan.bind(found.operands(ins))
        if is_number(alpha):
            return functools.partial(_finish_scaled, found, run, out, alpha, beta)
        factor = alpha / found.divisor
        if out is None:
            return functools.partial(_finish_number, run, factor)
        target = target_of(out, plan.out_shape, plan.axes[0])
        return functools.partial(_finish, run, target, factor, beta)


class _Signature(NamedTuple):
    """How operands of given types, shapes and layouts are reduced."""

    plan: _Plan
    divisor: int
    flat: bool
    """Whether operands are taken as vectors."""

    def operands(self, given: Sequence[Any]) -> list[Any]:
        """The operands as the plan wants them."""
        axes = len(self.plan.full)
        return [
            o
            if o.__class__ is not np.ndarray
            else o.reshape(-1)
            if self.flat
            else with_axes(o, axes)
            for o in given
        ]


def _finish_number(run: Callable[[], np.ndarray], factor: float) -> float:
    # the sums belong to the plan, which other bound operators may share
    with LOCK:
        return factor * float(run().reshape(())[()])


def _finish_scaled(
    signature: _Signature, run: Callable[[], np.ndarray], out: np.ndarray | None, alpha: Any,
    beta: float,
) -> float | None:  # fmt: skip
    """With a factor that is what it is at the time."""
    plan, factor = signature.plan, alpha.value() / signature.divisor
    if out is None:
        return _finish_number(run, factor)
    _finish(run, target_of(out, plan.out_shape, plan.axes[0]), factor, beta)
    return None


def _finish(run: Callable[[], np.ndarray], target: np.ndarray, factor: float, beta: float) -> None:
    with LOCK:
        store(target, run(), factor, beta)


def prepare(
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


def target_of(out: np.ndarray, shape: Shape, axis: int) -> np.ndarray:
    """The output with the reduced axis as an axis of size 1."""
    target = np.expand_dims(out, axis) if out.ndim == len(shape) - 1 else out
    if target.shape != shape:
        raise ProgramError(f"an aggregate of shape {shape} does not fit an output {out.shape}")
    return target


def store(out: np.ndarray, value: np.ndarray, factor: float, beta: float) -> None:
    """out = beta * out + factor * value; out is not read if beta is 0."""
    if factor != 1.0:
        value = value * factor
    if beta != 0.0:
        value = value + (out if beta == 1.0 else beta * out)
    np.copyto(out, value, casting="unsafe")

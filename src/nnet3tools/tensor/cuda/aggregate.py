"""Aggregate on CUDA: a formula reduced along an axis by one kernel.

Axes are parted into those kept and those reduced. If neighbours in memory are reduced together, a
warp (or a block) works on one output; else the threads of a warp work on neighbouring outputs.
Where there are too few outputs to keep the device busy, chunks are reduced first; the last block
merges them in order: results do not depend on timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import AGGREGATE_BACKENDS, Fold, Reduction
from nnet3tools.tensor.cuda.aggregate_source import (
    Parts,
    Reducer,
    fold_reducer,
    reduce_source,
)
from nnet3tools.tensor.cuda.device import get_device, pointer
from nnet3tools.tensor.cuda.element import with_device_numbers
from nnet3tools.tensor.cuda.launches import Launch, zero_tickets
from nnet3tools.tensor.cuda.operands import (
    broadcast_shape,
    broadcast_strides,
    is_array,
    merge_axes,
    operand_type,
)
from nnet3tools.tensor.element import element
from nnet3tools.tensor.formulas import Expr, Type, type_of_dtype
from nnet3tools.tensor.number import Measured, Number

__all__ = ["AggregateKernel"]

_REDUCERS = {
    "sum": "nn_Sum", "mean": "nn_Sum", "max": "nn_Max", "min": "nn_Min", "prod": "nn_Prod",
    "logsumexp": "nn_LogSumExp",
}  # fmt: skip
_OF_NONE = {"prod": 1.0, "logsumexp": -math.inf, "max": None, "min": None}
"""What reductions of nothing give, where that is not 0; None: an error."""
_LONG_ROW = 1024
"""Reductions longer than this get a block of threads each, not a warp."""
_BLOCKS_A_PROCESSOR = 4
_ROW_CHUNK, _COLUMN_CHUNK = 4096, 128
"""Numbers (in a row or block, or column) that are not worth cutting up further."""
_scale = element("_1 = _1 * _2")
_fill = element("_1 = _2")
_add_scaled = element("_1 = where(_4 == 0, 0, _4 * _1) + where(_3 != 0, _3 * _2, 0)")


def _reducer(reduce: Reduction, wide: bool) -> Reducer:
    if isinstance(reduce, Fold):
        return fold_reducer(reduce, Type.FLOAT64 if wide else Type.FLOAT32)
    return Reducer(f"{_REDUCERS[reduce]}<{'double' if wide else 'float'}>")


def _letters(strides: Sequence[int]) -> str:
    return "".join("0" if s == 0 else "s" for s in strides)


def _reduced_letters(strides: Sequence[int]) -> str:
    """Those, and c for the last axis where neighbours are neighbours in memory."""
    found = _letters(strides)
    return found[:-1] + "c" if strides and strides[-1] == 1 else found


class _Reduction:
    """A reduction of operands of given types, shapes and strides."""

    def __init__(
        self, expr: Expr, reduce: Reduction, operands: Sequence[Any], axes: Sequence[int],
        full: tuple[int, ...], out: Any, out_strides: Sequence[int],
    ) -> None:  # fmt: skip
        self._device = device = get_device()
        types = tuple(operand_type(o) for o in operands)
        walks = [broadcast_strides(o, full) for o in operands if is_array(o)]
        kept_axes = [i for i in range(len(full)) if i not in axes]
        kept_sizes, kept = merge_axes(
            [full[i] for i in kept_axes],
            [[w[i] for i in kept_axes] for w in walks] + [[out_strides[i] for i in kept_axes]],
        )
        sizes, reduced = merge_axes([full[i] for i in axes], [[w[i] for i in axes] for w in walks])
        self.kept, self.reduced = math.prod(kept_sizes), math.prod(sizes)
        result = expr.type({i + 1: t for i, t in enumerate(types)})
        wide = result not in (Type.FLOAT32, Type.FLOAT16) or out.dtype == np.float64
        step = min((abs(r[-1]) for r in reduced if r[-1]), default=1)
        along = min((abs(k[-1]) for k in kept[:-1] if k[-1]), default=step)
        by_columns = self.kept > 1 and along < step
        found = iter(zip(kept, reduced, strict=False))
        rest: tuple[list[int], list[int]] = ([], [])
        both: list[tuple[list[int], list[int]]] = [
            next(found) if not t.is_weak else rest for t in types
        ]
        self.parts = Parts(
            types, tuple(_letters(k) for k, _ in both),
            tuple(_reduced_letters(r) for _, r in both),
            _reducer(reduce, wide), "double" if wide else "float", type_of_dtype(out.dtype),
            _letters(kept[-1]), by_columns,
        )  # fmt: skip
        self._sizes = [np.int64(n) for n in kept_sizes[1:]]
        self._reduced_sizes = [np.int64(n) for n in sizes[1:]]
        self._strides = [
            [
                np.int64(s)
                for s, c in zip((*k, *r), _letters(k) + _reduced_letters(r), strict=True)
                if c == "s"
            ]
            for k, r in both
        ]
        self._out_strides = [np.int64(s) for s in kept[-1] if s]
        self._geometry()
        self._found = reduce_source(expr, self.parts)
        self._kernel = device.kernel(*self._found)

    def _geometry(self) -> None:
        """Blocks, and how many chunks keep the device busy."""
        if self.parts.by_columns:
            self.block, outputs, least = (32, 8, 1), 32, _COLUMN_CHUNK
        elif self.reduced > _LONG_ROW and not self.parts.reducer.in_order:
            self.block, outputs, least = (256, 1, 1), 1, _ROW_CHUNK
        else:
            self.block, outputs, least = (32, 8, 1), 8, _ROW_CHUNK
        blocks = math.ceil(self.kept / outputs)
        wanted = math.ceil(_BLOCKS_A_PROCESSOR * self._device.num_processors / blocks)
        chunks = max(1, min(wanted, math.ceil(self.reduced / least), 65535))
        self.chunk = math.ceil(self.reduced / chunks)
        self.chunks = math.ceil(self.reduced / self.chunk)
        self.grid = (blocks, self.chunks, 1)

    def bind(
        self, operands: Sequence[Any], out: Any, factor: float, beta: float
    ) -> Callable[[], None]:
        """The reduction bound to these operands."""
        size = 2 * (8 if self.parts.accumulator == "double" else 4) * self.chunks * self.kept
        chunked = self.chunks > 1
        partial = self._device.empty((size if chunked else 1,), np.uint8)
        tickets = zero_tickets(self.grid[0]) if chunked else None
        args: list[Any] = [
            np.int64(self.kept), np.int64(self.reduced), np.int64(self.chunk),
            *self._sizes, *self._reduced_sizes,
        ]  # fmt: skip
        for operand, t, strides in zip(operands, self.parts.types, self._strides, strict=True):
            if t.is_weak:
                args.append((np.float64 if t is Type.WEAK_FLOAT else np.int64)(operand))
            else:
                args += [np.uint64(pointer(operand)), *strides]
        args += [
            np.uint64(pointer(out)), *self._out_strides, np.float64(factor), np.float64(beta),
            np.uint64(pointer(partial)), np.uint64(0 if tickets is None else pointer(tickets)),
        ]  # fmt: skip
        arrays = [o for o in operands if is_array(o)]
        own = [out, *([partial, tickets] if chunked else [])]
        return Launch(
            self._kernel,
            *self._found,
            self.grid,
            self.block,
            args,
            [*arrays, out],
            own,
            size=self.kept * self.reduced,
        )


class AggregateKernel:
    """A reduction on CUDA: binds operands; kernels and geometry are kept by layout."""

    def __init__(self, expr: Expr, reduce: Reduction, axis: int | None) -> None:
        self._expr, self._reduce, self._axis = expr, reduce, axis
        self._of_none = _OF_NONE.get(reduce, 0.0) if isinstance(reduce, str) else reduce.start
        self._plans: dict[Any, _Reduction] = {}

    def __call__(
        self, out: Any, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], Any]:
        if any(isinstance(operand, Number) for operand in ins):
            before: list[Callable[[], None]] = []
            run = self(out, with_device_numbers(ins, before), alpha, beta)
            return lambda: [*(step() for step in before), run()][-1]
        if isinstance(alpha, Number):
            return self._scaled(out, ins, alpha, beta)
        full = broadcast_shape([o.shape for o in ins if is_array(o)]) or (1,)
        axes = list(range(len(full)))
        if self._axis is not None:
            if not -len(full) <= self._axis < len(full):
                raise ProgramError(f"cannot reduce axis {self._axis} of shape {full}")
            axes = [self._axis % len(full)]
        count = math.prod(full[i] for i in axes)
        if count == 0 and self._of_none is None:
            called = "fold" if isinstance(self._reduce, Fold) else self._reduce
            raise ProgramError(f"{called} of nothing: operands have shape {full}")
        factor = alpha / count if self._reduce == "mean" and count else alpha
        if self._axis is None:
            result = get_device().empty((1,), np.float64)
            return Measured(self._into(result, ins, full, axes, factor, 0.0), Number(result))
        return self._into(out, ins, full, axes, factor, beta)

    def _scaled(
        self, out: Any, ins: Sequence[Any], alpha: Number, beta: float
    ) -> Callable[[], Any]:
        """As __call__, where the factor is on the device: reduced first, then added."""
        if self._axis is None:
            number = self(out, ins, 1.0, 0.0)
            return lambda: number() * alpha
        reduced = get_device().empty(out.shape, out.dtype)
        reduce = self(reduced, ins, 1.0, 0.0)
        add = _add_scaled.bind(out, reduced, alpha, float(beta))

        def run() -> None:
            reduce()
            add()

        return run

    def _into(
        self, out: Any, ins: Sequence[Any], full: tuple[int, ...], axes: list[int],
        factor: float, beta: float,
    ) -> Callable[[], None]:  # fmt: skip
        shape = tuple(1 if i in axes else n for i, n in enumerate(full))
        target = out
        if self._axis is not None:
            if out.ndim == len(shape) - 1:
                target = out.reshape(*out.shape[: axes[0]], 1, *out.shape[axes[0] :])
            if target.shape != shape:
                raise ProgramError(f"an aggregate of shape {shape} does not fit {out.shape}")
        if 0 in full:
            return self._of_nothing(out, factor, beta)
        strides = broadcast_strides(target, full) if self._axis is not None else (0,) * len(full)
        key = (id(get_device()), out.dtype, strides, full, *map(_signature, ins))
        if (plan := self._plans.get(key)) is None:
            if len(self._plans) >= 512:
                self._plans.clear()
            plan = self._plans[key] = _Reduction(
                self._expr, self._reduce, ins, axes, full, out, strides
            )
        return plan.bind(ins, out, factor, beta)

    def _of_nothing(self, out: Any, factor: float, beta: float) -> Callable[[], None]:
        value = (self._of_none or 0.0) * factor
        if beta == 0.0:
            return _fill.bind(out, value)
        return element("_1 = _1 * _2 + _3").bind(out, beta, value)


def _signature(operand: Any) -> Any:
    if is_array(operand):
        return operand.dtype, operand.shape, operand.strides
    return operand.__class__


AGGREGATE_BACKENDS["cupy"] = AggregateKernel

"""Aggregate on CUDA: a formula reduced along an axis by one kernel.

tensor/emit/cuda_reduce.py makes the kernel. If there are too few outputs to keep the device busy,
chunks are reduced first; the last block merges them in order, so that results do not depend on
timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import get_device
from nnet3tools.tensor.cuda.element import fits_vector, signature, with_device_numbers
from nnet3tools.tensor.cuda.launches import Launch, arguments, zero_tickets
from nnet3tools.tensor.element import FORMULA_BACKENDS, element
from nnet3tools.tensor.emit import cuda_reduce as emitted
from nnet3tools.tensor.emit.walk import walk_of
from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.number import Measured, Number
from nnet3tools.tensor.operands import (
    broadcast_shape,
    broadcast_strides,
    is_array,
    merge_axes,
    operand_types,
    reduced_axes,
    remembered,
    target_of,
)

_ACCUMULATORS = {
    "sum": "nn_Sum", "mean": "nn_Sum", "max": "nn_Max", "min": "nn_Min", "prod": "nn_Prod",
    "logsumexp": "nn_LogSumExp",
}  # fmt: skip
_OF_NONE = {"prod": 1.0, "logsumexp": -math.inf, "max": None, "min": None}
"""The values of reductions of nothing, where these are not 0; None: an error."""
_LONG, _LONG_ROW = 64, 1024
"""Lengths from which fours of elements are loaded; above which a row has a block, not a warp."""
_BLOCKS_A_PROCESSOR = 4
_ROW_CHUNK, _COLUMN_CHUNK = 4096, 128
"""The fewest elements of a chunk: of a row, of a column."""
_fill, _of_nothing = element("_1 = _2"), element("_1 = _1 * _2 + _3")
_add_scaled = element("_1 = where(_4 == 0, 0, _4 * _1) + where(_3 != 0, _3 * _2, 0)")


class _Plan:
    """A CUDA kernel that reduces operands of given types, shapes and strides, with its grid."""

    def __init__(
        self, expr: Expr, reduce: str, operands: Sequence[Any], axes: Sequence[int],
        full: tuple[int, ...], out: Any, out_strides: Sequence[int],
    ) -> None:  # fmt: skip
        self._device = device = get_device()
        walks = [out_strides, *(broadcast_strides(o, full) for o in operands if is_array(o))]
        rest = [i for i in range(len(full)) if i not in axes]
        kept_sizes, kept = merge_axes(
            [full[i] for i in rest], [[w[i] for i in rest] for w in walks]
        )
        sizes, reduced = merge_axes([full[i] for i in axes], [[w[i] for i in axes] for w in walks])
        self.kept, self.reduced = math.prod(kept_sizes), math.prod(sizes)
        result = expr.type({i: t for i, t in enumerate(operand_types(operands), 1)})
        wide = result not in (Type.FLOAT32, Type.FLOAT16) or out.dtype == np.float64
        held = Type.FLOAT64 if wide else Type.FLOAT32
        step = min((abs(r[-1]) for r in reduced[1:] if r[-1]), default=1)
        along = min((abs(k[-1]) for k in kept[1:] if k[-1]), default=step)
        self._strides = [[*k, *r] for k, r in zip(kept, reduced, strict=True)]
        self._sizes = [*kept_sizes, *sizes]
        self._walk = walk_of([out, *operands], self._strides, exact=len(self._sizes))
        accumulator = f"{_ACCUMULATORS[reduce]}<{'double' if wide else 'float'}>"
        self._by_columns = self.kept > 1 and along < step
        self._state_bytes = 2 * (8 if wide else 4)
        by_fours = sizes[-1] >= _LONG and fits_vector(self._walk, [out, *operands], self._strides)
        row = sizes[-1] // 4 if by_fours else sizes[-1]
        self._items = math.prod(sizes[:-1]) * row
        self._choose_grid()
        threads = self.block[1 if self._by_columns else 0]
        wanted = -(-row // 4) if len(sizes) > 1 else threads
        width = min(threads, 1 << (wanted - 1).bit_length())
        found = emitted.Reduction(
            self._walk, len(kept_sizes), accumulator, held, self._by_columns, by_fours, width
        )
        self._found = emitted.reduce_kernel(expr, found)
        self._kernel = device.kernel(*self._found)

    def _choose_grid(self) -> None:
        """Set block and grid; each output is reduced in chunks that keep the device busy."""
        if self._by_columns:
            self.block, outputs, least = (32, 8, 1), 32, _COLUMN_CHUNK
        elif self.reduced > _LONG_ROW:
            self.block, outputs, least = (256, 1, 1), 1, _ROW_CHUNK
        else:
            self.block, outputs, least = (32, 8, 1), 8, _ROW_CHUNK
        blocks = math.ceil(self.kept / outputs)
        wanted = math.ceil(_BLOCKS_A_PROCESSOR * self._device.num_processors / blocks)
        chunks = max(1, min(wanted, math.ceil(self.reduced / least), 65535))
        self.chunk = math.ceil(self._items / chunks)
        self.chunks = math.ceil(self._items / self.chunk)
        self.grid = (blocks, self.chunks, 1)

    def bind(
        self, operands: Sequence[Any], out: Any, factor: float, beta: float
    ) -> Callable[[], None]:
        """A callable that launches the kernel: out = beta * out + factor * (reduced operands)."""
        chunked = self.chunks > 1
        size = self._state_bytes * self.chunks * self.kept if chunked else 1
        partial = self._device.empty((size,), np.uint8)
        tickets = zero_tickets(self.grid[0]) if chunked else None
        walked = self._walk.arguments([out, *operands], self._strides)
        values = [self.kept, self._items, self.chunk, *self._sizes, *walked]
        values += [float(factor), float(beta), partial, tickets if chunked else partial]
        args = arguments(values)
        arrays = [o for o in operands if is_array(o)]
        own = [out, *([partial, tickets] if chunked else [])]
        return Launch(
            self._kernel, *self._found, self.grid, self.block, args, [*arrays, out], own,
            size=self.kept * self.reduced,
        )  # fmt: skip


class AggregateKernel:
    """Called with (out, ins, alpha, beta), returns a callable that does an Aggregate on a GPU."""

    def __init__(self, expr: Expr, reduce: str, axis: int | None) -> None:
        self._expr, self._reduce, self._axis = expr, reduce, axis
        self._of_none = _OF_NONE.get(reduce, 0.0)
        self._plans: dict[Any, _Plan] = {}

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
        axes = reduced_axes(self._axis, full)
        count = math.prod(full[i] for i in axes)
        if count == 0 and self._of_none is None:
            raise ProgramError(f"{self._reduce} of nothing: operands have shape {full}")
        factor = alpha / count if self._reduce == "mean" and count else alpha
        if self._axis is None:
            result = get_device().empty((1,), np.float64)
            return Measured(self._into(result, ins, full, axes, factor, 0.0), Number(result))
        return self._into(out, ins, full, axes, factor, beta)

    def _scaled(
        self, out: Any, ins: Sequence[Any], alpha: Number, beta: float
    ) -> Callable[[], Any]:
        """A callable for out = beta * out + `alpha`, a Number, times the reduction of `ins`."""
        if self._axis is None:
            number = self(out, ins, 1.0, 0.0)
            return lambda: number() * alpha
        reduced = get_device().empty(out.shape, out.dtype)
        add = _add_scaled.bind(out, reduced, alpha, float(beta))
        return in_turn([self(reduced, ins, 1.0, 0.0), add])

    def _into(
        self, out: Any, ins: Sequence[Any], full: tuple[int, ...], axes: list[int],
        factor: float, beta: float,
    ) -> Callable[[], None]:  # fmt: skip
        shape = tuple(1 if i in axes else n for i, n in enumerate(full))
        strides = (0,) * len(full)
        if self._axis is not None:
            strides = broadcast_strides(target_of(out, shape, axes[0]), full)
        if 0 in full:
            value = (self._of_none or 0.0) * factor
            return _of_nothing.bind(out, beta, value) if beta else _fill.bind(out, value)
        key = (id(get_device()), out.dtype, strides, full, *map(signature, ins))
        given = self._expr, self._reduce, ins, axes, full, out, strides
        plan = remembered(self._plans, key, lambda: _Plan(*given))
        return plan.bind(ins, out, factor, beta)


FORMULA_BACKENDS["aggregate", "cupy"] = AggregateKernel

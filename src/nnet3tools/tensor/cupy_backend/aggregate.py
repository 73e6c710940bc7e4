"""Aggregate on CUDA: a formula reduced along an axis by one kernel, or two.

Axes are parted into those kept and those reduced. If neighbours in memory are reduced together, a
warp (or a block) works on one output; else the threads of a warp work on neighbouring outputs.
Where there are too few outputs to keep the device busy, chunks are reduced first and then merged in
order: results do not depend on timing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import AGGREGATE_BACKENDS
from nnet3tools.tensor.cupy_backend.device import get_device, pointer
from nnet3tools.tensor.cupy_backend.element import with_device_numbers
from nnet3tools.tensor.cupy_backend.formula import C_TYPES, STORED_TYPES, Body
from nnet3tools.tensor.cupy_backend.operands import (
    broadcast_shape,
    broadcast_strides,
    is_array,
    merge_axes,
    operand_type,
)
from nnet3tools.tensor.cupy_backend.scalar import DeviceScalar
from nnet3tools.tensor.element import element
from nnet3tools.tensor.functional import Expr, Type, simplify, type_of_dtype

__all__ = ["AggregateKernel", "Parts", "finish_source", "reduce_source"]

_REDUCERS = {
    "sum": "nn_Sum", "mean": "nn_Sum", "max": "nn_Max", "min": "nn_Min", "prod": "nn_Prod",
    "logsumexp": "nn_LogSumExp",
}  # fmt: skip
_LONG_ROW = 1024
"""Reductions longer than this get a block of threads each, not a warp."""
_ROW_CHUNK, _COLUMN_CHUNK = 4096, 128
"""Numbers (in a row or block, or column) that are not worth cutting up further."""
_scale = element("_1 = _1 * _2")
_fill = element("_1 = _2")
_add_scaled = element("_1 = where(_4 == 0, 0, _4 * _1) + where(_3 != 0, _3 * _2, 0)")


@dataclass(frozen=True)
class Parts:
    """How operands are walked in a reduction: letters (0 repeated, s strided) an axis, by part."""

    types: tuple[Type, ...]
    kept: tuple[str, ...]
    reduced: tuple[str, ...]
    reducer: str
    accumulator: str
    out_type: Type
    out_letters: str
    by_columns: bool

    @property
    def state(self) -> str:
        """C++ type that a reduction is carried in."""
        return f"{self.reducer}<{self.accumulator}>"


def _coordinates(index: str, name: str, axes: int) -> list[str]:
    """Lines that take a linear index apart into coordinates `name`0, `name`1, ..."""
    lines = [f"long long {name}_rest = {index};"]
    for axis in range(axes - 1, 0, -1):
        lines.append(
            f"const long long {name}{axis} = {name}_rest % n{name}{axis}; "
            f"{name}_rest /= n{name}{axis};"
        )
    return [*lines, f"const long long {name}0 = {name}_rest;"]


def _offset(i: object, letters: str, name: str) -> list[str]:
    return [f"{name}{axis} * s{i}_{name}{axis}" for axis, c in enumerate(letters) if c == "s"]


def _store(parts: Parts) -> list[str]:
    """Lines that write `acc` to output k."""
    t, held = STORED_TYPES[parts.out_type], parts.accumulator
    place = f"out[{' + '.join(_offset('o', parts.out_letters, 'k')) or '0'}]"
    old = f"({held}){'__half2float' if t == '__half' else ''}({place})"
    value = "__float2half((float)result)" if t == "__half" else f"({t})result"
    return [
        f"{held} result = ({held})factor * acc.value();",
        f"if (beta != 0.0) result += ({held})beta * {old};",
        f"{place} = {value};",
    ]


def _size_parameters(parts: Parts) -> list[str]:
    names = ["long long kept", "long long reduced", "long long chunk"]
    names += [f"long long nk{axis}" for axis in range(1, len(parts.out_letters))]
    return names


def _out_parameters(parts: Parts) -> list[str]:
    names = [f"{STORED_TYPES[parts.out_type]}* out"]
    names += [f"long long so_k{a}" for a, c in enumerate(parts.out_letters) if c == "s"]
    return [*names, "double factor", "double beta", f"{parts.state}* partial"]


def reduce_source(expr: Expr, parts: Parts) -> tuple[str, str]:
    """Source and name of the kernel that reduces an expression over operands so walked."""
    body = Body(parts.types)
    value, _ = body.add(expr)
    reduced_axes = max((len(r) for r in parts.reduced), default=1)
    parameters = _size_parameters(parts)
    parameters += [f"long long nr{axis}" for axis in range(1, reduced_axes)]
    bases, loads = [], []
    for i, t in enumerate(parts.types, 1):
        if t.is_weak:
            parameters.append(f"{C_TYPES[t]} x{i}")
            continue
        kept, reduced = parts.kept[i - 1], parts.reduced[i - 1]
        parameters.append(f"{STORED_TYPES[t]}* p{i}")
        parameters += [f"long long s{i}_k{a}" for a, c in enumerate(kept) if c == "s"]
        parameters += [f"long long s{i}_r{a}" for a, c in enumerate(reduced) if c == "s"]
        bases.append(
            f"const {STORED_TYPES[t]}* const q{i} = "
            f"{' + '.join([f'p{i}', *_offset(i, kept, 'k')])};"
        )
        place = f"q{i}[{' + '.join(_offset(i, reduced, 'r')) or '0'}]"
        loads.append(
            f"const {C_TYPES[t]} x{i} = {f'__half2float({place})' if t is Type.FLOAT16 else place};"
        )
    parameters += _out_parameters(parts)
    work = [*_coordinates("index", "r", reduced_axes), *loads, *body.lines]
    work.append(f"acc.add(({parts.accumulator})({value}));")
    setup = [*_coordinates("output", "k", len(parts.out_letters)), *bases]
    lines = (_column_lines if parts.by_columns else _row_lines)(parts, setup, work)
    return _kernel("reduce_", parameters, lines, f"{parts.reducer} of {expr.text()}")


def _kernel(prefix: str, parameters: list[str], lines: list[str], comment: str) -> tuple[str, str]:
    text = f"({', '.join(parameters)}) {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"
    name = prefix + hashlib.sha1(text.encode()).hexdigest()[:16]
    return f'// {comment}\nextern "C" __global__ void {name}{text}', name


def _partial_or(store: list[str], setup: list[str]) -> list[str]:
    return [
        "if (gridDim.y > 1) {",
        "  partial[blockIdx.y * kept + output] = acc;",
        "} else {",
        *(f"  {line}" for line in [*setup, *store]),
        "}",
    ]


def _row_lines(parts: Parts, setup: list[str], work: list[str]) -> list[str]:
    own = [line for line in setup if not line.startswith("const") or "q" not in line]
    return [
        f"__shared__ {parts.state} part[9];",
        "const long long output = blockIdx.x * (long long)blockDim.y + threadIdx.y;",
        "if (output >= kept) return;",
        f"{parts.state} acc; acc.init();",
        "{",
        *(f"  {line}" for line in setup),
        "  const long long begin = blockIdx.y * chunk;",
        "  const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        "  for (long long index = begin + threadIdx.x; index < end; index += blockDim.x) {",
        *(f"    {line}" for line in work),
        "  }",
        "}",
        "if (blockDim.x > 32) acc = nn_block(acc, part); else acc = nn_warp(acc);",
        "if (threadIdx.x == 0) {",
        *(f"  {line}" for line in _partial_or(_store(parts), own)),
        "}",
    ]


def _column_lines(parts: Parts, setup: list[str], work: list[str]) -> list[str]:
    own = [line for line in setup if not line.startswith("const") or "q" not in line]
    return [
        f"__shared__ {parts.state} part[8][33];",
        "const long long output = blockIdx.x * 32LL + threadIdx.x;",
        f"{parts.state} acc; acc.init();",
        "if (output < kept) {",
        *(f"  {line}" for line in setup),
        "  const long long begin = blockIdx.y * chunk;",
        "  const long long end = begin + chunk < reduced ? begin + chunk : reduced;",
        "  for (long long index = begin + threadIdx.y; index < end; index += blockDim.y) {",
        *(f"    {line}" for line in work),
        "  }",
        "}",
        "part[threadIdx.y][threadIdx.x] = acc;",
        "__syncthreads();",
        "if (threadIdx.y == 0 && output < kept) {",
        "  for (int y = 1; y < blockDim.y; ++y) acc.merge(part[y][threadIdx.x]);",
        *(f"  {line}" for line in _partial_or(_store(parts), own)),
        "}",
    ]


def finish_source(parts: Parts) -> tuple[str, str]:
    """Source and name of the kernel that merges chunks, in order."""
    lines = [
        "for (long long output = blockIdx.x * (long long)blockDim.x + threadIdx.x; output < kept;",
        "     output += (long long)gridDim.x * blockDim.x) {",
        f"  {parts.state} acc = partial[output];",
        "  for (long long c = 1; c < chunk; ++c) acc.merge(partial[c * kept + output]);",
        *(f"  {x}" for x in _coordinates("output", "k", len(parts.out_letters))),
        *(f"  {x}" for x in _store(parts)),
        "}",
    ]
    parameters = [*_size_parameters(parts), *_out_parameters(parts)]
    return _kernel("finish_", parameters, lines, f"{parts.state}, chunks merged")


def _letters(strides: Sequence[int]) -> str:
    return "".join("0" if s == 0 else "s" for s in strides)


class _Reduction:
    """A reduction of operands of given types, shapes and strides."""

    def __init__(
        self, expr: Expr, reduce: str, operands: Sequence[Any], axes: Sequence[int],
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
            types, tuple(_letters(k) for k, _ in both), tuple(_letters(r) for _, r in both),
            _REDUCERS[reduce], "double" if wide else "float", type_of_dtype(out.dtype),
            _letters(kept[-1]), by_columns,
        )  # fmt: skip
        self._sizes = [np.int64(n) for n in kept_sizes[1:]]
        self._reduced_sizes = [np.int64(n) for n in sizes[1:]]
        self._strides = [[np.int64(s) for s in (*k, *r) if s] for k, r in both]
        self._out_strides = [np.int64(s) for s in kept[-1] if s]
        self._geometry()
        self._kernel = device.kernel(*reduce_source(expr, self.parts))
        self._finish = device.kernel(*finish_source(self.parts)) if self.chunks > 1 else None

    def _geometry(self) -> None:
        """Blocks, and how many chunks keep the device busy."""
        if self.parts.by_columns:
            self.block, outputs, least = (32, 8, 1), 32, _COLUMN_CHUNK
        elif self.reduced > _LONG_ROW:
            self.block, outputs, least = (256, 1, 1), 1, _ROW_CHUNK
        else:
            self.block, outputs, least = (32, 8, 1), 8, _ROW_CHUNK
        blocks = math.ceil(self.kept / outputs)
        wanted = math.ceil(4 * self._device.num_processors / blocks)
        chunks = max(1, min(wanted, math.ceil(self.reduced / least), 65535))
        self.chunk = math.ceil(self.reduced / chunks)
        self.chunks = math.ceil(self.reduced / self.chunk)
        self.grid = (blocks, self.chunks, 1)

    def bind(
        self, operands: Sequence[Any], out: Any, factor: float, beta: float
    ) -> Callable[[], None]:
        """What runs it on these operands."""
        size = 2 * (8 if self.parts.accumulator == "double" else 4) * self.chunks * self.kept
        partial = self._device.empty((size if self.chunks > 1 else 1,), np.uint8)
        head: list[Any] = [
            np.int64(self.kept),
            np.int64(self.reduced),
            np.int64(self.chunk),
            *self._sizes,
        ]
        tail: list[Any] = [
            np.uint64(pointer(out)), *self._out_strides, np.float64(factor), np.float64(beta),
            np.uint64(pointer(partial)),
        ]  # fmt: skip
        args: list[Any] = [*head, *self._reduced_sizes]
        for operand, t, strides in zip(operands, self.parts.types, self._strides, strict=True):
            if t.is_weak:
                args.append((np.float64 if t is Type.WEAK_FLOAT else np.int64)(operand))
            else:
                args += [np.uint64(pointer(operand)), *strides]
        args += tail
        head[2] = np.int64(self.chunks)
        finish, finish_args = self._finish, [*head, *tail]
        kernel, grid, block, keep = self._kernel, self.grid, self.block, (operands, out, partial)
        finish_grid = (math.ceil(self.kept / 128), 1, 1)

        def run() -> None:
            kernel(grid, block, args)
            if finish is not None:
                finish(finish_grid, (128, 1, 1), finish_args)
            keep  # noqa: B018 (the arrays must live as long as what points into them)

        return run


class AggregateKernel:
    """A reduction on CUDA: binds operands; kernels and geometry are kept by layout."""

    def __init__(self, expr: Expr, reduce: str, axis: int | None) -> None:
        self._expr, self._reduce, self._axis = simplify(expr), reduce, axis
        self._plans: dict[Any, _Reduction] = {}

    def __call__(
        self, out: Any, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], Any]:
        if any(isinstance(operand, DeviceScalar) for operand in ins):
            before: list[Callable[[], None]] = []
            run = self(out, with_device_numbers(ins, before), alpha, beta)
            return lambda: [*(step() for step in before), run()][-1]
        if isinstance(alpha, DeviceScalar):
            return self._scaled(out, ins, alpha, beta)
        full = broadcast_shape([o.shape for o in ins if is_array(o)]) or (1,)
        axes = list(range(len(full)))
        if self._axis is not None:
            if not -len(full) <= self._axis < len(full):
                raise ProgramError(f"cannot reduce axis {self._axis} of shape {full}")
            axes = [self._axis % len(full)]
        count = math.prod(full[i] for i in axes)
        if count == 0 and self._reduce in ("max", "min"):
            raise ProgramError(f"{self._reduce} of nothing: operands have shape {full}")
        factor = alpha / count if self._reduce == "mean" and count else alpha
        if self._axis is None:
            return lambda: self._number(ins, full, axes, factor)
        return self._into(out, ins, full, axes, factor, beta)

    def _scaled(
        self, out: Any, ins: Sequence[Any], alpha: DeviceScalar, beta: float
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

    def _number(
        self, ins: Sequence[Any], full: tuple[int, ...], axes: list[int], factor: float
    ) -> DeviceScalar:
        result = get_device().empty((1,), np.float64)
        self._into(result, ins, full, axes, factor, 0.0)()
        return DeviceScalar(result)

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
        value = {"prod": factor, "logsumexp": -math.inf * factor}.get(self._reduce, 0.0)
        if beta == 0.0:
            return _fill.bind(out, value)
        return element("_1 = _1 * _2 + _3").bind(out, beta, value)


def _signature(operand: Any) -> Any:
    if is_array(operand):
        return operand.dtype, operand.shape, operand.strides
    return operand.__class__


AGGREGATE_BACKENDS["cupy"] = AggregateKernel

"""Element on CUDA: one kernel for each formula, types and layout, made from the expression itself.

The layout says how many axes are walked, and for each operand whether it is repeated, contiguous or
strided along each; sizes and strides are arguments. Four elements a thread are taken at once where
all operands are contiguous and aligned along the last axis.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import get_device, pointer
from nnet3tools.tensor.cuda.formula import C_TYPES, STORED_TYPES, Body, load, stored
from nnet3tools.tensor.cuda.launch import grid_for, in_turn
from nnet3tools.tensor.cuda.launches import Launch
from nnet3tools.tensor.cuda.operands import (
    broadcast_shape,
    broadcast_strides,
    is_array,
    merge_axes,
    operand_type,
    overlap,
)
from nnet3tools.tensor.cuda.row_formula import bind_row_formula
from nnet3tools.tensor.element import ELEMENT_BACKENDS
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.number import Number

__all__ = [
    "ElementKernel",
    "Walk",
    "as_typed_number",
    "element_source",
    "walk_operands",
    "with_device_numbers",
]

_MAX_PLANS = 512
_VECTOR_TYPES = {Type.FLOAT32: "float4", Type.INT32: "int4", Type.UINT32: "uint4"}


@dataclass(frozen=True)
class Walk:
    """How operands are walked: per operand one letter an axis (0 repeated, 1 contiguous, s)."""

    types: tuple[Type, ...]
    letters: tuple[str, ...]
    """"" for plain numbers; the last letter is of the innermost axis."""
    vector: bool
    """Whether four elements are taken at once."""

    @property
    def axes(self) -> int:
        """Number of axes walked."""
        return max(len(letters) for letters in self.letters)


def walk_operands(
    operands: Sequence[Any], full: tuple[int, ...]
) -> tuple[Walk, list[int], list[list[int]]]:
    """The walk over operands broadcast to `full`, its sizes, and its strides by operand."""
    types = tuple(operand_type(o) for o in operands)
    arrays = [o for o in operands if is_array(o)]
    sizes, strides = merge_axes(full, [broadcast_strides(a, full) for a in arrays])
    letters, walked = [], iter(strides)
    for operand in operands:
        if not is_array(operand):
            letters.append("")
            continue
        steps = next(walked)
        last = str(steps[-1]) if steps[-1] in (0, 1) else "s"
        letters.append("".join("0" if s == 0 else "s" for s in steps[:-1]) + last)
    vector = sizes[-1] % 4 == 0 and all(
        _fits_vector(a, s, t)
        for a, s, t in zip(arrays, strides, (t for t in types if not t.is_weak), strict=True)
    )
    return Walk(types, tuple(letters), vector), sizes, strides


def _fits_vector(array: Any, strides: Sequence[int], element_type: Type) -> bool:
    if strides[-1] == 0:
        return True
    aligned = pointer(array) % 16 == 0 and all(s % 4 == 0 for s in strides[:-1])
    return strides[-1] == 1 and aligned and element_type in _VECTOR_TYPES


def element_source(assignments: Assignments, walk: Walk) -> tuple[str, str]:
    """Source and name of the kernel that does assignments for operands so walked."""
    body = Body(walk.types)
    stores = [(n, *body.add(value)) for n, value in _sorted_items(assignments)]
    read = {n for _, value in assignments.items for n in value.placeholders()}
    parameters, bases = _parameters(walk)
    inner = _inner_vector if walk.vector else _inner_scalar
    axes = walk.axes
    coordinates = "" if axes <= 2 else "      long long rest = r;\n"
    for axis in range(axes - 2, 0, -1):
        coordinates += f"      const long long c{axis} = rest % n{axis}; rest /= n{axis};\n"
    coordinates += "      const long long c0 = rest;\n" if axes > 2 else ""
    loop = "".join(f"      {line}\n" for line in [*bases, *inner(walk, body, stores, read)])
    if axes > 1:
        loop = (
            "    for (long long r = blockIdx.y * (long long)blockDim.y + threadIdx.y; r < rows;\n"
            "         r += (long long)gridDim.y * blockDim.y) {\n" + coordinates + loop + "    }\n"
        )
    text = f"({parameters}) {{\n{loop}}}\n"
    name = "element_" + hashlib.sha1(text.encode()).hexdigest()[:16]
    head = f"// {assignments.text()}\n" if "\\" not in assignments.text() else ""
    return f'{head}extern "C" __global__ void {name}{text}', name


def _sorted_items(assignments: Assignments) -> list[tuple[int, Any]]:
    return [(target.number, value) for target, value in assignments.items]


def _parameters(walk: Walk) -> tuple[str, list[str]]:
    """Parameter list, and the lines that find each operand's row."""
    axes = walk.axes
    parameters = [f"long long n{axis}" for axis in range(axes)]
    if axes > 1:
        parameters.append("long long rows")
    bases = []
    for i, (letters, t) in enumerate(zip(walk.letters, walk.types, strict=True), 1):
        if not letters:
            parameters.append(f"{C_TYPES[t]} x{i}")
            continue
        parameters.append(f"{STORED_TYPES[t]}* p{i}")
        offsets = []
        for axis, letter in enumerate(letters):
            if letter == "s":
                parameters.append(f"long long s{i}_{axis}")
                if axis < axes - 1:
                    offsets.append(f"{'r' if axes == 2 else f'c{axis}'} * s{i}_{axis}")
        bases.append(f"{STORED_TYPES[t]}* const q{i} = {' + '.join([f'p{i}', *offsets])};")
    return ", ".join(parameters), bases


def _inner_scalar(walk: Walk, body: Body, stores: list, read: set[int]) -> list[str]:
    last = walk.axes - 1
    lines = [
        f"for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n{last};",
        "     i += (long long)gridDim.x * blockDim.x) {",
    ]
    places = {}
    for i, letters in enumerate(walk.letters, 1):
        step = {"0": "0", "1": "i"}.get(letters[-1:], f"i * s{i}_{last}")
        places[i] = f"q{i}[{step}]"
        if letters and i in read:
            lines.append("  " + load(i - 1, walk.types[i - 1], places[i]))
    lines += ["  " + line for line in body.lines]
    for i, value, held in stores:
        lines.append(f"  {places[i]} = {stored(walk.types[i - 1], value, held)};")
    return [*lines, "}"]


def _inner_vector(walk: Walk, body: Body, stores: list, read: set[int]) -> list[str]:
    last = walk.axes - 1
    lines = [
        f"for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n{last} / 4;",
        "     i += (long long)gridDim.x * blockDim.x) {",
    ]
    loads, targets = [], {i for i, _, _ in stores}
    for i, letters in enumerate(walk.letters, 1):
        t = walk.types[i - 1]
        if letters.endswith("1") and (i in read or i in targets):
            lines.append(f"  union {{ {_VECTOR_TYPES[t]} all; {C_TYPES[t]} part[4]; }} w{i};")
            if i in read:
                lines.append(f"  w{i}.all = (({_VECTOR_TYPES[t]}*)q{i})[i];")
        if letters and i in read:
            loads.append(load(i - 1, t, f"w{i}.part[k]" if letters[-1] == "1" else f"q{i}[0]"))
    lines += ["  #pragma unroll", "  for (int k = 0; k < 4; ++k) {"]
    lines += ["    " + line for line in [*loads, *body.lines]]
    for i, value, held in stores:
        lines.append(f"    w{i}.part[k] = {stored(walk.types[i - 1], value, held)};")
    lines.append("  }")
    for i in sorted(targets):
        lines.append(f"  (({_VECTOR_TYPES[walk.types[i - 1]]}*)q{i})[i] = w{i}.all;")
    return [*lines, "}"]


class ElementKernel:
    """A formula on CUDA: binds operands; kernels and launch geometry are kept by layout."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._targets = [n - 1 for n in assignments.targets]
        self._plans: dict[Any, Any] = {}

    def __call__(self, *operands: Any) -> Callable[[], None]:
        given, copies = list(operands), list[Callable[[], None]]()
        if any(isinstance(operand, Number) for operand in given):
            given = with_device_numbers(given, copies)
        for target in self._targets:
            if not is_array(given[target]):
                raise ProgramError(
                    f"element({self._assignments.text()}) assigns to a plain number, _{target + 1}"
                )
            for i, other in enumerate(given):
                if i != target and is_array(other) and i not in self._targets:
                    if overlap(given[target], other) == "partial":
                        given[i] = get_device().empty(other.shape, other.dtype)
                        copies.append(copy_kernel(given[i], other))
        run = self._bind(given)
        return in_turn([*copies, run])

    def _bind(self, operands: list[Any]) -> Callable[[], None]:
        if self._assignments.reduces_columns:
            raise ProgramError("formulas on CUDA reduce no columns yet")
        if self._assignments.reduces_rows:
            return bind_row_formula(self._assignments, operands)
        device = get_device()
        key = (id(device), *map(_signature, operands))
        if (plan := self._plans.get(key)) is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._plan(operands)
        if plan is None:
            return _nothing
        kernel, found, grid, block, numbers, places, space = plan
        args = list(numbers)
        for i, at, make in places:
            args[at] = make(pointer(operands[i])) if make is np.uint64 else make(operands[i])
        arrays = [o for o in operands if is_array(o)]
        written = [operands[t] for t in self._targets]
        full = written[0].shape
        return Launch(
            kernel, found[0], found[1], grid, block, args, arrays, written, loops=True, space=space,
            size=math.prod(space), points=[a for a in arrays if a.shape == full],
        )  # fmt: skip

    def _plan(self, operands: list[Any]) -> Any:
        full = operands[self._targets[0]].shape
        shapes = [o.shape for o in operands if is_array(o)]
        if broadcast_shape(shapes) != full or any(operands[t].shape != full for t in self._targets):
            raise ProgramError(f"an assigned operand must have the full shape; shapes: {shapes}")
        if 0 in full:
            return None
        device = get_device()
        walk, sizes, strides = walk_operands(operands, full)
        found = element_source(self._assignments, walk)
        rows = math.prod(sizes[:-1])
        args: list[Any] = [np.int64(n) for n in sizes]
        if walk.axes > 1:
            args.append(np.int64(rows))
        places: list[tuple[int, int, Any]] = []
        walked = iter(strides)
        for i, (letters, t) in enumerate(zip(walk.letters, walk.types, strict=True)):
            if not letters:
                places.append((i, len(args), np.float64 if t is Type.WEAK_FLOAT else np.int64))
                args.append(None)
                continue
            places.append((i, len(args), np.uint64))
            args.append(None)
            steps = next(walked)
            args += [np.int64(s) for s, letter in zip(steps, letters, strict=True) if letter == "s"]
        items = sizes[-1] // 4 if walk.vector else sizes[-1]
        grid, block = grid_for(items, rows, device.num_processors)
        space = items, rows, 4 if walk.vector else 1
        return device.kernel(*found), found, grid, block, args, places, space


def with_device_numbers(operands: Sequence[Any], before: list[Callable[[], None]]) -> list[Any]:
    """Numbers on the device as arrays of one element, which take the other arrays' type."""
    types = {o.dtype for o in operands if is_array(o) and o.dtype.kind == "f"}
    wanted = np.dtype(np.float64 if np.dtype(np.float64) in types else np.float32)
    found = []
    for operand in operands:
        if isinstance(operand, Number):
            operand = as_typed_number(operand, wanted, before)
        found.append(operand)
    return found


def as_typed_number(number: Number, dtype: Any, before: list[Callable[[], None]]) -> Any:
    """A number on the device as an array (1,) of a type; `before` gets what makes it one."""
    if number.array.dtype == dtype:
        return number.array
    made = get_device().empty((1,), dtype)
    before.append(copy_kernel(made, number.array))
    return made


def _signature(operand: Any) -> Any:
    if is_array(operand):
        return operand.dtype, operand.shape, operand.strides, pointer(operand) % 16
    return operand.__class__


def _nothing() -> None:
    pass


@functools.cache
def _copier() -> ElementKernel:
    from nnet3tools.tensor.formulas import Placeholder, assign

    return ElementKernel(assign(Placeholder(1), Placeholder(2)))


def copy_kernel(out: Any, src: Any) -> Callable[[], None]:
    """The bound copy of an array into another of the same shape."""
    return _copier()(out, src)


ELEMENT_BACKENDS["cupy"] = ElementKernel

"""Kernels from a body in C++ that runs over an index space, with operands of any strides.

In a body `src` is a View (prelude.cuh): `src(r, c)` is its element at r, c, and `src` its first
element's address. T is the first array's C++ type.
`grid_step` runs the body by one thread for every point of the space, `block_step` by a block of
threads for every point.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array, get_device, pointer
from nnet3tools.tensor.cuda.launch import THREADS, block_of, grid_for
from nnet3tools.tensor.cuda.launches import Launch
from nnet3tools.tensor.cuda.operands import element_strides

_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long", "float16": "__half", "float32": "float", "float64": "double",
}  # fmt: skip


def _source(
    what: str, space: list[str], arrays: Mapping[str, Array], numbers: Mapping[str, Any],
    body: str, threads: int,
) -> tuple[str, str]:  # fmt: skip
    first = next(iter(arrays.values()))
    parameters, views = [f"long long n_{i}" for i in space], list[str]()
    for name, array in arrays.items():
        strides = [f"{name}_s{k}" for k in range(array.ndim)]
        parameters.append(f"{_NAMES[array.dtype.name]}* {name}_at")
        parameters += [f"long long {stride}" for stride in strides]
        view = f"View<{_NAMES[array.dtype.name]}, {max(array.ndim, 1)}>"
        views.append(f"  const {view} {name} = {{{name}_at, {{{', '.join(strides)}}}}};\n")
    parameters += [f"{_NAMES[value.dtype.name]} {name}" for name, value in numbers.items()]
    body = re.sub(r"\bT\b", _NAMES[first.dtype.name], body).strip("\n")
    # the last index goes along x, the others, taken together, along y
    outer, inner = (space, None) if threads else (space[:-1], space[-1])
    rows = " * ".join(f"n_{i}" for i in outer) or "1"
    lines = ["long long rest = row;"]
    for i in reversed(outer[1:]):
        lines.append(f"const long long {i} = rest % n_{i}; rest /= n_{i};")
    if outer:
        lines.append(f"const long long {outer[0]} = rest;")
    setup = "\n".join(f"    {line}" for line in lines)
    if inner is None:
        text = (
            f"({', '.join(parameters)}) {{\n{''.join(views)}"
            f"  for (long long row = blockIdx.x; row < {rows}; row += gridDim.x) {{\n"
            f"{setup}\n{body}\n  }}\n}}\n"
        )
    else:
        text = (
            f"({', '.join(parameters)}) {{\n{''.join(views)}"
            "  for (long long row = blockIdx.y * (long long)blockDim.y + threadIdx.y;"
            f" row < {rows}; row += (long long)gridDim.y * blockDim.y) {{\n{setup}\n"
            f"    for (long long {inner} = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
            f" {inner} < n_{inner}; {inner} += (long long)gridDim.x * blockDim.x) {{\n"
            f"{body}\n    }}\n  }}\n}}\n"
        )
    name = f"{what}_{hashlib.sha1(text.encode()).hexdigest()[:12]}"
    # of so many threads the compiler must know: it may give each too many registers otherwise
    bounds = f"__launch_bounds__({threads}) " if threads > THREADS else ""
    return f'extern "C" {bounds}__global__ void {name}{text}', name


_sources: dict[Any, tuple[str, str]] = {}


@functools.cache
def _pointwise(body: str, space: tuple[str, ...], names: tuple[str, ...]) -> set[str]:
    """Names of the arrays that a body accesses at the point of the space only."""
    own = r"\s*,\s*".join(space)
    return {
        name
        for name in names
        if len(re.findall(rf"\b{name}\(", body))
        == len(re.findall(rf"\b{name}\(\s*{own}\s*\)", body))
    }


def _bind(
    what: str, space: Mapping[str, int], arrays: Mapping[str, Array], numbers: Mapping[str, Any],
    body: str, threads: int, written: Collection[str], reads: Sequence[Array],
    writes: Sequence[Array],
) -> Callable[[], None]:  # fmt: skip
    if 0 in space.values():
        return lambda: None
    key = (
        what, body, min(threads, 1) if threads <= THREADS else threads,
        tuple((n, a.dtype, a.ndim) for n, a in arrays.items()),
        tuple((n, v.dtype) for n, v in numbers.items()),
    )  # fmt: skip
    if (found := _sources.get(key)) is None:
        found = _sources[key] = _source(what, list(space), arrays, numbers, body, threads)
    device = get_device()
    args: list[Any] = [np.int64(n) for n in space.values()]
    for array in arrays.values():
        args += [np.uint64(pointer(array)), *map(np.int64, element_strides(array))]
    args += numbers.values()
    sizes = tuple(space.values())
    options: dict[str, Any] = {}
    if threads:
        grid, block = (min(math.prod(sizes), 1 << 20), 1, 1), (threads, 1, 1)
    else:
        options |= {"loops": True, "size": math.prod(sizes)}
        rows = math.prod(sizes[:-1])
        grid, block = grid_for(sizes[-1], rows, device.num_processors)
        options["space"] = sizes[-1], rows, 1
        own = _pointwise(body, tuple(space), tuple(arrays))
        elsewhere = {id(a) for n, a in arrays.items() if n not in own or a.shape != sizes}
        options["points"] = [a for a in arrays.values() if id(a) not in elsewhere]
    return Launch(
        device.kernel(*found), *found, grid, block, args, [*arrays.values(), *reads],
        [*(arrays[name] for name in written), *writes], **options,
    )  # fmt: skip


def grid_step(
    what: str, space: Mapping[str, int], arrays: Mapping[str, Array], body: str,
    written: Collection[str], *, reads: Sequence[Array] = (), writes: Sequence[Array] = (),
    **numbers: Any,
) -> Callable[[], None]:  # fmt: skip
    """The bound kernel that runs the body for every point of `space`, index name -> size.

    The last index varies fastest. The body writes to the arrays named `written`. `numbers` are
    NumPy scalars by the names that the body uses. `reads` and `writes` are arrays whose addresses
    the body finds in other arrays.
    """
    return _bind(what, space, arrays, numbers, body, 0, written, reads, writes)


def block_step(
    what: str, space: Mapping[str, int], length: int, arrays: Mapping[str, Array], body: str,
    written: Collection[str], *, most_threads: int = THREADS, **numbers: Any,
) -> Callable[[], None]:  # fmt: skip
    """The bound kernel that runs the body by a block of threads for every point.

    `length` is the number of elements that a block works on. The other arguments are as above.
    """
    threads = block_of(length, most_threads)
    return _bind(what, space, arrays, numbers, body, threads, written, (), ())


def last_axis(array: Array, axis: int) -> Array:
    """The array with four axes, the given one last."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    moved = array.transpose(order)
    return moved[(None,) * (4 - array.ndim)] if array.ndim < 4 else moved

"""Functions in .cuh files, run for every point of an index space.

A file has functions of the form

    // What it does.
    template <typename T>
    __device__ void NAME(long long r, long long c, View<T, 2> out, View<const int, 1> at, T alpha) {
      out(r, c) += alpha * at(r);
    }

The first parameters are the indexes of a point. Then come arrays: views of any strides (View in
prelude.cuh), or pointers to arrays without gaps. The last parameters are numbers. T stands for the
element type of the first array. The caller may replace a word in capitals by a text.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launches import THREADS, Launch, Step, block_of, grid_for
from nnet3tools.tensor.emit.body import loop
from nnet3tools.tensor.emit.cuda import Source, coordinates, grid_loop, kernel_source
from nnet3tools.tensor.operands import element_strides

_FUNCTION = re.compile(r"^__device__ void (\w+)\(([^)]*)\) \{\n(.*?)^\}$", re.M | re.S)
_ARRAY = re.compile(r"View<(?:const )?([\w ]+), \d+>|(?:const )?([\w ]+)\*")
_NUMBERS: dict[str, type] = {"long long": np.int64, "int": np.int32, "double": np.float64}
_NAMES = {
    "bool": "bool", "int8": "signed char", "uint8": "unsigned char", "int16": "short",
    "uint16": "unsigned short", "int32": "int", "uint32": "unsigned", "int64": "long long",
    "uint64": "unsigned long long", "float16": "__half", "float32": "float", "float64": "double",
}  # fmt: skip
_MOST_BLOCKS = 1 << 20

Shape = Sequence[int] | Mapping[str, int]
"""Sizes of a space, in the order of the function's indexes or by the names of all indexes."""


@dataclass(frozen=True)
class CudaFunction:
    """A function of a .cuh file that computes one point of an index space.

    Its parameters are `indexes`, then `arrays` (name -> element type), then `numbers` (name ->
    type). `written` are the arrays whose element type is not const.
    """

    name: str
    indexes: tuple[str, ...]
    arrays: dict[str, str]
    written: tuple[str, ...]
    numbers: dict[str, str]
    body: str

    def by_blocks(
        self, space: Shape, length: int, *, most_threads: int = THREADS, **more: Any
    ) -> Step:
        """A callable that runs the function by a block of threads for every point of a space.

        `length` is the number of elements that a block works on; `more` is as for `on_grid`.
        """
        return self.on_grid(space, threads=block_of(length, most_threads), **more)

    def on_grid(
        self, space: Shape, *, threads: int = 0, reads: Sequence[Array] = (),
        writes: Sequence[Array] = (), words: Mapping[str, object] | None = None, **operands: Any,
    ) -> Step:  # fmt: skip
        """A callable that runs the function at each point of `space` in `threads` threads (0: one).

        The last index varies fastest. `operands` are arrays and numbers by their names in the
        function. `reads` and `writes` are further arrays, whose addresses are elements of operands.
        `words` maps words in the function's text to what replaces them.
        """
        if unknown := operands.keys() ^ {*self.arrays, *self.numbers}:
            raise ProgramError(f"{self.name}: missing or unknown operands {sorted(unknown)}")
        named = space if isinstance(space, Mapping) else dict(zip(self.indexes, space, strict=True))
        sizes = tuple(named.values())
        if 0 in sizes:
            return in_turn([])
        arrays = {name: operands[name] for name in self.arrays}
        types = dict(_NUMBERS)
        for name, kind in self.arrays.items():
            types.setdefault(kind, arrays[name].dtype.type)
        numbers = {name: types[kind](operands[name]) for name, kind in self.numbers.items()}
        body = self.body
        for word, value in (words or {}).items():
            body = re.sub(rf"\b{word}\b", str(value), body)
        found = _source(
            self.name, body, tuple(named), tuple((n, a.dtype, a.ndim) for n, a in arrays.items()),
            tuple((n, v.dtype) for n, v in numbers.items()),
            threads if threads > THREADS else min(threads, 1),
        )  # fmt: skip
        device, options = get_device(), dict[str, Any]()
        if threads:
            grid, block = (min(math.prod(sizes), _MOST_BLOCKS), 1, 1), (threads, 1, 1)
        else:
            rows = math.prod(sizes[:-1])
            grid, block = grid_for(sizes[-1], rows, device.num_processors)
            own = _pointwise(body, tuple(named), tuple(arrays))
            elsewhere = {id(a) for n, a in arrays.items() if n not in own or a.shape != sizes}
            points = [a for a in arrays.values() if id(a) not in elsewhere]
            options = {"loops": True, "size": math.prod(sizes), "points": points}
            options["space"] = sizes[-1], rows, 1
        args: list[Any] = [np.int64(n) for n in sizes]
        for array in arrays.values():
            args += [np.uint64(address(array)), *map(np.int64, element_strides(array))]
        written = [*(arrays[name] for name in self.written), *writes]
        return Launch(
            device.kernel(*found), *found, grid, block, [*args, *numbers.values()],
            [*arrays.values(), *reads], written, **options,
        )  # fmt: skip


@functools.cache
def _pointwise(body: str, space: tuple[str, ...], names: tuple[str, ...]) -> set[str]:
    """Those of `names` that C text `body` uses only as name(i, j, ...), i, j, ... being `space`."""
    own = r"\s*,\s*".join(space)
    return {
        name
        for name in names
        if len(re.findall(rf"\b{name}\(", body))
        == len(re.findall(rf"\b{name}\(\s*{own}\s*\)", body))
    }


@functools.cache
def _source(
    name: str, body: str, space: tuple[str, ...], arrays: tuple[tuple[str, np.dtype, int], ...],
    numbers: tuple[tuple[str, np.dtype], ...], threads: int,
) -> Source:  # fmt: skip
    """The CUDA kernel (source, name) that runs a function's body for each point of `space`.

    A point has `threads` threads, or one thread if 0. `arrays` are (name, type, number of
    axes), `numbers` (name, type), `space` the names of indexes.
    """
    parameters, views = [f"long long n_{i}" for i in space], list[str]()
    for array, dtype, axes in arrays:
        kind, strides = _NAMES[dtype.name], [f"{array}_s{k}" for k in range(axes)]
        parameters += [f"{kind}* {array}_at", *[f"long long {stride}" for stride in strides]]
        values = f"{{{array}_at, {{{', '.join(strides)}}}}}"
        views.append(f"const View<{kind}, {max(axes, 1)}> {array} = {values};")
    parameters += [f"{_NAMES[dtype.name]} {number}" for number, dtype in numbers]
    lines = re.sub(r"\bT\b", _NAMES[arrays[0][1].name], body).strip("\n").split("\n")
    # the last index goes along x, the others, taken together, along y
    outer = list(space)
    if not threads:
        inner = outer.pop()
        lines = grid_loop(inner, f"n_{inner}", "x", lines)
    rows = " * ".join(f"n_{i}" for i in outer) or "1"
    if outer:
        lines = [*coordinates("row", [f"n_{i}" for i in outer], outer), *lines]
    if threads:
        head = f"for (long long row = blockIdx.x; row < {rows}; row += gridDim.x)"
        lines = loop(head, lines)
    else:
        lines = grid_loop("row", rows, "y", lines)
    text, kernel = kernel_source(name, parameters, [*views, *lines])
    if threads > THREADS:  # the compiler may give each thread too many registers otherwise
        text = text.replace("__global__", f"__launch_bounds__({threads}) __global__", 1)
    return text, kernel


@functools.cache
def cuda_functions(module: str) -> dict[str, CudaFunction]:
    """Function name -> CudaFunction, for kernel.cuh beside the Python file `module`."""
    path = Path(module).with_name("kernel.cuh")
    found = {}
    for name, parameters, body in _FUNCTION.findall(path.read_text(encoding="utf-8")):
        indexes: list[str] = []
        arrays: dict[str, str] = {}
        numbers: dict[str, str] = {}
        written = []
        for parameter in re.split(r",\s*(?![^<]*>)", parameters.strip()):
            kind, _, variable = parameter.rpartition(" ")
            if array := _ARRAY.fullmatch(kind):
                arrays[variable] = array[1] or array[2]
                if "const " not in kind:
                    written.append(variable)
            elif arrays:
                numbers[variable] = kind
            else:
                indexes.append(variable)
        found[name] = CudaFunction(name, tuple(indexes), arrays, tuple(written), numbers, body)
    return found


def last_axis(array: Any, axis: int) -> Any:
    """A view with four axes: axes of size 1 in front, then the array's other axes, then `axis`."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    return array.transpose(order)[(None,) * (4 - array.ndim)]

"""Functions in .cuh files, run for every point of an index space.

A file has functions of the form

    // What it does.
    template <typename T>
    __device__ void NAME(long long r, long long c, View<T, 2> out, View<const int, 1> at, T alpha) {
      out(r, c) += alpha * at(r);
    }

The first parameters are the indexes of a point. Then come arrays: views of any strides, or pointers
to arrays without gaps. The last parameters are numbers. A template parameter stands for the element
type of the arrays that have it. The caller may replace a word in capitals by a text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.strided import block_step, grid_step

_FUNCTION = re.compile(r"^__device__ void (\w+)\(([^)]*)\) \{\n(.*?)^\}$", re.M | re.S)
_ARRAY = re.compile(r"View<(?:const )?([\w ]+), \d+>|(?:const )?([\w ]+)\*")
_NUMBERS: dict[str, type] = {"long long": np.int64, "int": np.int32, "double": np.float64}


Shape = Sequence[int] | Mapping[str, int]
"""Sizes of a space, in the order of the function's indexes or by the names of all indexes."""


@dataclass(frozen=True)
class CudaFunction:
    """A function of a .cuh file."""

    name: str
    indexes: tuple[str, ...]
    arrays: dict[str, str]
    """Name -> element type."""
    written: tuple[str, ...]
    """Names of the arrays whose element type is not const."""
    numbers: dict[str, str]
    """Name -> type."""
    body: str

    def on_grid(
        self, space: Shape, *, reads: Sequence[Array] = (), writes: Sequence[Array] = (),
        words: Mapping[str, object] | None = None, **operands: Any,
    ) -> Callable[[], None]:  # fmt: skip
        """The bound kernel that runs the function for every point of a space of this shape.

        `operands` are arrays and numbers by their names in the function, `reads` and `writes`
        arrays whose addresses the function finds in other arrays.
        """
        return grid_step(
            self.name, self._space(space), self._arrays(operands), self._text(words or {}),
            self.written, reads=reads, writes=writes, **self._numbers(operands),
        )  # fmt: skip

    def by_blocks(
        self, space: Shape, length: int, *, words: Mapping[str, object] | None = None,
        most_threads: int = 256, **operands: Any,
    ) -> Callable[[], None]:  # fmt: skip
        """The bound kernel that runs the function by a block of threads for every point.

        `length` is the number of elements that a block works on.
        """
        return block_step(
            self.name, self._space(space), length, self._arrays(operands), self._text(words or {}),
            self.written, most_threads=most_threads, **self._numbers(operands),
        )  # fmt: skip

    def _space(self, shape: Shape) -> Mapping[str, int]:
        if isinstance(shape, Mapping):
            return shape
        return dict(zip(self.indexes, shape, strict=True))

    def _arrays(self, operands: Mapping[str, Any]) -> dict[str, Array]:
        unknown = operands.keys() ^ {*self.arrays, *self.numbers}
        if unknown:
            raise ProgramError(f"{self.name}: missing or unknown operands {sorted(unknown)}")
        return {name: operands[name] for name in self.arrays}

    def _numbers(self, operands: Mapping[str, Any]) -> dict[str, Any]:
        types = dict(_NUMBERS)
        for name, kind in self.arrays.items():
            types.setdefault(kind, operands[name].dtype.type)
        return {name: types[kind](operands[name]) for name, kind in self.numbers.items()}

    def _text(self, words: Mapping[str, object]) -> str:
        text = self.body
        for word, value in words.items():
            text = re.sub(rf"\b{word}\b", str(value), text)
        return text


@functools.cache
def cuda_functions(module: str) -> dict[str, CudaFunction]:
    """The functions by name in the file kernel.cuh beside a module, given by its `__file__`."""
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

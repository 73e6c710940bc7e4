"""Compiles and loads the C library of this folder."""

from __future__ import annotations

import ctypes
import functools
import os
import typing
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.options import SearchOptions
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.library import load_files

_FILES = ("strings.h", "determinize.c", "search.c", "best_path.c")
_TYPES: dict[Any, tuple[str, Any]] = {
    float: ("float", ctypes.c_float),
    int: ("int64_t", ctypes.c_int64),
}
_OPTIONS = {name: _TYPES[kind] for name, kind in typing.get_type_hints(SearchOptions).items()}


class OptionStruct(ctypes.Structure):
    """The C struct `search_options`: a member for each field of SearchOptions."""

    _fields_ = tuple((name, kind) for name, (_, kind) in _OPTIONS.items())

    @classmethod
    def of(cls, options: SearchOptions) -> Self:
        """Copy the values of `options` to the C struct."""
        return cls(**{name: getattr(options, name) for name in _OPTIONS})


def c_arrays(*wanted: tuple[NDArray, type]) -> list[NDArray]:
    """The given arrays as C reads them: contiguous, with the element types beside them."""
    return [np.ascontiguousarray(array, kind) for array, kind in wanted]


def decoding_library() -> ctypes.CDLL | None:
    """The C library of decoding; None if it cannot be compiled or --cpu-kernels=numpy is given."""
    return compiled_library() if are_native() else None


@functools.cache
def compiled_library() -> ctypes.CDLL | None:
    """The C library of decoding, whatever --cpu-kernels says; None if it cannot be compiled."""
    members = " ".join(f"{kind} {name};" for name, (kind, _) in _OPTIONS.items())
    options = f"typedef struct {{ {members} }} search_options;"
    return load_files(os.path.dirname(__file__), _FILES, "the decoder", options)

"""Parameters of a graph in NumPy's archives (.npz), one array a name."""

from __future__ import annotations

import math
import tokenize
import zipfile
import zlib
from collections.abc import Mapping

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression.leaves import Parameter
from nnet3tools.io.whole_file import whole_file
from nnet3tools.tensor import Array

__all__ = ["read_parameters", "write_parameters"]


_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""What NumPy and zipfile raise, depending on where a file is damaged."""

_LARGEST_RATIO = 1100
"""Deflate makes nothing smaller than this: 1032 is its limit."""


def write_parameters(path: str, params: Mapping[str, Parameter]) -> None:
    """Write them all."""
    arrays = {name: tensor.to_host(p.value) for name, p in params.items()}
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_parameters(path: str, params: Mapping[str, Parameter]) -> dict[str, Array]:
    """The arrays of a file; UserError if one does not fit the parameter of its name."""
    try:
        # NumPy leaves a file that it opened open, if it finds no archive in it.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            _check_sizes(file.zip)
            found = {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise UserError(f"{path}: no parameters can be read: {error}") from None
    missing = params.keys() - found.keys()
    if missing:
        raise UserError(f"{path} has no parameter '{min(missing)}'")
    for name, p in params.items():
        if (got := found[name]).shape != p.shape or str(got.dtype) != p.type.value:
            raise UserError(f"{path}: '{name}' is {got.dtype} {got.shape}, expected {p.describe()}")
    return found


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """ValueError for an array that cannot be as large as it says: NumPy would make room for it."""
    for member in archive.infolist():
        with archive.open(member) as file:
            if np.lib.format.read_magic(file) != (1, 0):
                raise ValueError(f"'{member.filename}' is no array of numbers")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        size = math.prod(shape) * dtype.itemsize
        if dtype.kind not in "biuf" or min(shape, default=0) < 0:
            raise ValueError(f"'{member.filename}' is no array of numbers")
        if size > member.file_size or member.file_size > _LARGEST_RATIO * member.compress_size:
            raise ValueError(f"'{member.filename}' is shorter than its shape {shape} says")

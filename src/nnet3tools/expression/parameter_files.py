"""Parameters of a graph in NumPy's archives (.npz), one array per name."""

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

_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, RuntimeError, NotImplementedError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
)
"""Exceptions of NumPy and zipfile for damaged files."""

_LARGEST_RATIO = 1100
"""Above deflate's largest compression ratio, 1032."""


def write_parameters(path: str, params: Mapping[str, Parameter]) -> None:
    """Write parameters by name to an .npz file."""
    write_arrays(path, {name: tensor.to_host(p.value) for name, p in params.items()})


def write_arrays(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write host arrays by name to an .npz file, whole or not at all."""
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_parameters(path: str, params: Mapping[str, Parameter]) -> dict[str, Array]:
    """Read the arrays of an .npz file; UserError if one does not fit the parameter of its name."""
    found = read_arrays(path)
    missing = params.keys() - found.keys()
    if missing:
        raise UserError(f"{path} has no parameter '{min(missing)}'")
    for name, p in params.items():
        if (got := found[name]).shape != p.shape or str(got.dtype) != p.type.value:
            raise UserError(f"{path}: '{name}' is {got.dtype} {got.shape}, expected {p.describe()}")
    return found


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Read the arrays of an .npz file by name; UserError if it is damaged or no such file."""
    try:
        # NumPy does not close a file that is no archive.
        with open(path, "rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise ValueError("it is not an .npz file")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as file:
                _check_sizes(file.zip)
                return {name: file[name] for name in file.files}
    except _UNREADABLE as error:
        raise UserError(f"{path}: no arrays can be read: {error}") from None


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise ValueError if an array of the .npz file is shorter than its header says."""
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

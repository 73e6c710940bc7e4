"""Parameters of a graph in NumPy's archives (.npz), one array a name."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression.leaves import Parameter
from nnet3tools.tensor import Array

__all__ = ["read_parameters", "write_parameters"]


def write_parameters(path: str, params: Mapping[str, Parameter]) -> None:
    """Write them all."""
    arrays = {name: tensor.to_host(p.value) for name, p in params.items()}
    with open(path, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def read_parameters(path: str, params: Mapping[str, Parameter]) -> dict[str, Array]:
    """The arrays of a file; UserError if one does not fit the parameter of its name."""
    try:
        # NumPy leaves a file that it opened open, if it finds no archive in it.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: no parameters can be read: {error}") from None
    missing = params.keys() - found.keys()
    if missing:
        raise UserError(f"{path} has no parameter '{min(missing)}'")
    for name, p in params.items():
        if (got := found[name]).shape != p.shape or str(got.dtype) != p.type.value:
            raise UserError(f"{path}: '{name}' is {got.dtype} {got.shape}, expected {p.describe()}")
    return found

"""Shared by component families: checks, initial values, block views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.io.files import open_input
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import Array

if TYPE_CHECKING:
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "array_of_config",
    "as_blocks",
    "bias_problem",
    "check_dims_of_matrix",
    "division_problem",
    "get_positive",
    "matrix_of_config",
    "random_normal",
    "summed",
]

# -- checks


def bias_problem(linear: Array, bias: Array) -> str | None:
    """A sentence unless there is a bias for each row of an affine map's matrix, else None."""
    rows, dim = linear.shape[0], bias.shape[0]
    return None if rows == dim else f"{rows} rows of <LinearParams> but {dim} <BiasParams>"


def division_problem(part: str, part_dim: int, whole: str, whole_dim: int) -> str | None:
    """A sentence if one dimension does not divide another (both positive), else None."""
    if whole_dim % part_dim == 0:
        return None
    return f"{part} must divide {whole}, found {part_dim} and {whole_dim}"


# -- initial values


def get_positive(line: ConfigLine, key: str, default: int | None = None) -> int:
    """An integer of a config line that must be there (unless it has a default) and positive."""
    value = line.get_int(key) if default is None else line.get_int(key, default)
    if value <= 0:
        raise line.error(f"{key} must be positive, found {value}")
    return value


def random_normal(shape: tuple[int, ...], stddev: float, mean: float = 0.0) -> Array:
    """A float32 array of normally distributed numbers."""
    values = tensor.empty(shape, dtype=np.float32)
    tensor.random.normal(values)
    _scale_and_shift(values, float(stddev), float(mean))
    return values


_scale_and_shift = tensor.element("_1 = _1 * _2 + _3")


def matrix_of_config(line: ConfigLine, min_cols: int = 1) -> Array:
    """The matrix in the file that matrix= of a config line names; at least `min_cols` columns."""
    matrix = array_of_config(line, "matrix", Reader.read_matrix)
    if matrix.shape[1] < min_cols:
        rxfilename = line.get_string("matrix")
        raise line.error(f"matrix '{rxfilename}' must have at least {min_cols} columns")
    return matrix


def array_of_config(line: ConfigLine, key: str, read: Callable[[Reader], Array]) -> Array:
    """The array that `read` finds in the file that a key of a config line names.

    ConfigError if there is none. It does not quote the file, which may be any file of the system.
    """
    with open_input(rxfilename := line.get_string(key)) as reader:
        try:
            values = read(reader)
        except DataError:
            raise line.error(f"the file of {key}= holds no values in Kaldi's format") from None
    if values.size == 0:
        raise DataError(f"{rxfilename}: expected values for {key}=, found an empty file or array")
    return values


def check_dims_of_matrix(line: ConfigLine, input_dim: int, output_dim: int) -> None:
    """ConfigError if input-dim or output-dim, where given, are not those of the file's matrix."""
    for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
        if line.get_int(key, dim) != dim:
            rxfilename = line.get_string("matrix")
            raise line.error(f"{key} differs from that of matrix '{rxfilename}' ({dim})")


def summed(total: float | None) -> float:
    """The value of an aggregate over all axes (which has one); may be a Number, in memory."""
    assert total is not None
    return total


# -- blocks


def as_blocks(matrix: Array, block_dim: int) -> Array:
    """The same memory with every row cut into rows of `block_dim` columns.

    The component's INPUT_CONTIGUOUS / OUTPUT_CONTIGUOUS flags make that possible.
    """
    if matrix.shape[1] == block_dim:
        return matrix
    if not matrix.flags.c_contiguous:
        raise ProgramError("a component with blocks was given a matrix that is not contiguous")
    return matrix.reshape(-1, block_dim)

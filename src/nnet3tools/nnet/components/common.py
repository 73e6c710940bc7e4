"""Functions shared by component families: checks, initial values, block views."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.io.files import open_input
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.config import ConfigLine

# -- checks


def bias_problem(linear: Array, bias: Array) -> str | None:
    """A sentence if `linear` and `bias` of an affine map differ in number of rows; else None."""
    rows, dim = linear.shape[0], bias.shape[0]
    return None if rows == dim else f"{rows} rows of <LinearParams> but {dim} <BiasParams>"


def division_problem(part: str, part_dim: int, whole: str, whole_dim: int) -> str | None:
    """A sentence, with both names, if `part_dim` does not divide `whole_dim`; else None."""
    if whole_dim % part_dim == 0:
        return None
    return f"{part} must divide {whole}, found {part_dim} and {whole_dim}"


# -- initial values


def get_positive(line: ConfigLine, key: str, default: int | None = None) -> int:
    """The value of a key as a positive integer; ConfigError if absent without a default."""
    value = line.get_int(key) if default is None else line.get_int(key, default)
    if value <= 0:
        raise line.error(f"{key} must be positive, found {value}")
    return value


def random_normal(shape: tuple[int, ...], stddev: float, mean: float = 0.0) -> Array:
    """A float32 array of normally distributed random numbers."""
    values = tensor.empty(shape, dtype=np.float32)
    tensor.random.normal(values)
    _scale_and_shift(values, float(stddev), float(mean))
    return values


_scale_and_shift = tensor.element("_1 = _1 * _2 + _3")


def matrix_of_config(line: ConfigLine, min_cols: int = 1) -> Array:
    """Read the file that matrix=... names; ConfigError for under `min_cols` columns."""
    matrix = array_of_config(line, "matrix", Reader.read_matrix)
    if matrix.shape[1] < min_cols:
        rxfilename = line.get_string("matrix")
        raise line.error(f"matrix '{rxfilename}' must have at least {min_cols} columns")
    return matrix


def array_of_config(line: ConfigLine, key: str, read: Callable[[Reader], Array]) -> Array:
    """The array that `read` reads from the file that a key of a config line names.

    ConfigError for a wrong file. It does not quote the file's contents, which may be confidential.
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
    """Raise ConfigError if the line has another input-dim= or output-dim= than the file matrix=."""
    for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
        if line.get_int(key, dim) != dim:
            rxfilename = line.get_string("matrix")
            raise line.error(f"{key} differs from that of matrix '{rxfilename}' ({dim})")


def summed(total: float | None) -> float:
    """Return `total`, a result of `tensor.aggregate` over all elements, as a type without None."""
    assert total is not None
    return total


# -- blocks


def as_blocks(matrix: Array, block_dim: int) -> Array:
    """A view with each row cut into rows of `block_dim` columns.

    The matrix must be contiguous, which INPUT_CONTIGUOUS and OUTPUT_CONTIGUOUS ensure.
    """
    if matrix.shape[1] == block_dim:
        return matrix
    if not matrix.flags.c_contiguous:
        raise ProgramError("a component with blocks was given a matrix that is not contiguous")
    return matrix.reshape(-1, block_dim)

"""What several component families share: file fields, initial values, block views."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError
from nnet3tools.io.files import open_input
from nnet3tools.nnet.components.base import Array, Component
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "as_blocks",
    "check_dims_of_matrix",
    "checked_natural_gradient",
    "division_problem",
    "get_positive",
    "matrix_of_config",
    "natural_gradients",
    "rand_uniform",
    "random_normal",
    "read_field",
    "require",
    "summed",
    "write_field",
]

T = TypeVar("T")


# -- fields of component files


def read_field(reader: Reader, token: str, read: Callable[[], T]) -> T:
    """Read `token`, which must come next, and the value after it."""
    reader.expect_token(token)
    return read()


def write_field(writer: Writer, token: str, value: bool | int | float | Array) -> None:
    """Write a token and a bool, int32, float, vector or matrix."""
    writer.write_token(token)
    if isinstance(value, bool):
        writer.write_bool(value)
    elif isinstance(value, int):
        writer.write_int32(value)
    elif isinstance(value, float):
        writer.write_float(value)
    elif value.ndim == 1:
        writer.write_vector(tensor.to_host(value))
    else:
        writer.write_matrix(tensor.to_host(value))


def require(reader: Reader, condition: bool, message: str) -> None:
    """DataError naming the stream unless the condition holds."""
    if not condition:
        raise reader.error(message)


# -- checks


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
    with open_input(rxfilename := line.get_string("matrix")) as reader:
        matrix = reader.read_matrix()
    if matrix.size == 0:
        raise DataError(f"{rxfilename}: expected a matrix, found an empty one")
    if matrix.shape[1] < min_cols:
        raise line.error(f"matrix '{rxfilename}' must have at least {min_cols} columns")
    return matrix


def check_dims_of_matrix(line: ConfigLine, input_dim: int, output_dim: int) -> None:
    """ConfigError if input-dim or output-dim, where given, are not those of the file's matrix."""
    for key, dim in (("input-dim", input_dim), ("output-dim", output_dim)):
        if line.get_int(key, dim) != dim:
            rxfilename = line.get_string("matrix")
            raise line.error(f"{key} differs from that of matrix '{rxfilename}' ({dim})")


def summed(total: float | None) -> float:
    """What an aggregate over all axes gives, which has a value: on a GPU it stays there."""
    assert total is not None
    return total


def rand_uniform() -> float:
    """A number in (0, 1) from the stream of single decisions: Kaldi's RandUniform()."""
    return float(np.float32((tensor.random.rand() + 1.0) / (_RAND_MAX + 2.0)))


_RAND_MAX = 2**31 - 1

# -- natural gradient


def checked_natural_gradient(
    preconditioner: OnlineNaturalGradient, where: ConfigLine | Reader
) -> OnlineNaturalGradient:
    """The same object, if its options are possible; else the error of the line or stream."""
    if (problem := preconditioner.problem()) is not None:
        raise where.error(problem)
    return preconditioner


def natural_gradients(component: Component) -> list[OnlineNaturalGradient]:
    """The natural-gradient estimates that a component, or a part of it, owns; often none."""
    found = [v for v in vars(component).values() if isinstance(v, OnlineNaturalGradient)]
    for part in getattr(component, "components", ()):  # a composite
        found += natural_gradients(part)
    return found


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

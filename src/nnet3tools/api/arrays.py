"""Conversion of arrays that users give to checked arrays of the type that the package needs."""

import os

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.errors import DataError
from nnet3tools.io.text import cast

Path = str | os.PathLike[str]


def numbers(name: str, given: ArrayLike) -> NDArray:
    """Convert `given` to a numeric array; DataError, with the argument's `name`, if impossible."""
    try:
        array = np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name}: expected numbers, found an irregular list") from error
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected numbers, found an array of type {array.dtype}")
    return array


def float_matrix(name: str, given: ArrayLike) -> NDArray[np.float32]:
    """Convert to a float32 matrix with at least one row; else DataError, naming the argument."""
    array = numbers(name, given)
    if array.ndim != 2 or not len(array):
        raise DataError(f"{name}: expected a matrix of shape (rows, dim), found {array.shape}")
    return cast(array, np.float32)

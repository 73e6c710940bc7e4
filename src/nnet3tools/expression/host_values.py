"""Conversion of callers' values to arrays with an element type of expressions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import Type, dtype_of, type_of_dtype

_PLAIN: dict[str, Any] = {"b": np.bool_, "i": np.int32, "u": np.uint32, "f": np.float32}
"""Element type of plain Python values by NumPy's kind."""


def as_array(value: Any, type: Type | None = None) -> np.ndarray:
    """Convert a value to a host array of the given type, or of its own type if that is supported.

    Python floats become float32, integers int32. ExpressionError for values that are not numeric,
    and for integers that would change: 2**40 does not fit int32, 1.5 is no integer.
    """
    try:
        array = np.asarray(tensor.to_host(value) if hasattr(value, "get") else value)
    except ValueError as error:
        raise ExpressionError(f"{value!r} is no array of numbers: {error}") from None
    if array.dtype.kind not in _PLAIN:
        raise ExpressionError(f"a {array.dtype} array is no array of numbers")
    if type is not None:
        dtype = dtype_of(type)
    elif hasattr(value, "dtype") and _is_known(array.dtype):
        dtype = array.dtype
    else:
        dtype = np.dtype(_PLAIN[array.dtype.kind])
    made = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(made, array):
        raise ExpressionError(f"{_first_changed(array, made)} is no {dtype}")
    return made


def _first_changed(array: np.ndarray, converted: np.ndarray) -> Any:
    """The first element of `array` that differs in `converted`."""
    return array[np.not_equal(array, converted)].flat[0] if array.ndim else array


def _is_known(dtype: np.dtype) -> bool:
    try:
        return bool(type_of_dtype(dtype))
    except ProgramError:
        return False


def type_of_array(array: Any) -> Type:
    """The element type of an array; ExpressionError if expressions do not support it."""
    try:
        return type_of_dtype(array.dtype)
    except (AttributeError, ProgramError) as error:
        raise ExpressionError(
            f"{type(array).__name__} given where an array is meant: {error}"
        ) from None

"""Leaf nodes of a graph: constants, parameters, inputs."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.expression.help_text import described
from nnet3tools.expression.node import Node, NodeGraph
from nnet3tools.expression.shapes import ExpressionError, Shape
from nnet3tools.tensor import Array
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


class Leaf(Node):
    """A node without children, whose value is set from outside."""

    is_leaf = True

    def __init__(self, graph: NodeGraph, shape: Shape, type: Type) -> None:
        super().__init__((), shape, type)
        self.graph = graph

    @property
    def is_contiguous(self) -> bool:
        return False


class Constant(Leaf):
    """An array that does not change; equal constants are merged."""

    type_name = "const"

    def __init__(self, graph: NodeGraph, value: Array) -> None:
        super().__init__(graph, tuple(value.shape), type_of_dtype(value.dtype))
        self.value = value

    def content(self) -> tuple:
        data = np.ascontiguousarray(tensor.to_host(self.value)).tobytes()
        return self.shape, self.type, hashlib.sha1(data).digest()


@described("none")
def constant_like(x: Node, values: Any) -> Node:
    """A constant with the shape and type of x: the given values, or one number everywhere."""
    array = as_array(values, x.type)
    if array.size not in (1, math.prod(x.shape)):
        raise ExpressionError(f"{array.size} values for {x.describe()}")
    full = array.reshape(x.shape) if array.size > 1 else np.full(x.shape, array.item(), array.dtype)
    return x.graph.constant(full)


class Parameter(Leaf):
    """A named array that is trained; its `grad` is reset by each backward pass."""

    type_name = "param"

    def __init__(self, graph: NodeGraph, name: str, value: Array, trainable: bool = True) -> None:
        super().__init__(graph, tuple(value.shape), type_of_dtype(value.dtype))
        self.value, self.name, self.trainable = value, name, trainable

    def content(self) -> tuple:
        return (self.name,)


class Input(Leaf):
    """A named array that is set before each run; with `trainable` its gradient is computed, too."""

    type_name = "input"

    def __init__(
        self, graph: NodeGraph, name: str, shape: Shape, type: Type, trainable: bool = False
    ) -> None:
        super().__init__(graph, shape, type)
        self.name, self.trainable = name, trainable

    def content(self) -> tuple:
        return (self.name,)

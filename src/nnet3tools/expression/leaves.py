"""Leaf nodes of a graph: constants, parameters, inputs."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.help_text import described
from nnet3tools.expression.host_values import as_array
from nnet3tools.expression.node import Node, NodeGraph
from nnet3tools.expression.shapes import ExpressionError, Shape
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type, type_of_dtype


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

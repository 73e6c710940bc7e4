"""Leaves of a graph: constants, parameters, inputs."""

from __future__ import annotations

import hashlib

import numpy as np

from nnet3tools import tensor
from nnet3tools.expression.node import Node, NodeGraph
from nnet3tools.expression.shapes import Shape
from nnet3tools.tensor import Array
from nnet3tools.tensor.functional import Type, type_of_dtype

__all__ = ["Constant", "Input", "Leaf", "Parameter"]


class Leaf(Node):
    """A node without children, whose value is put there."""

    is_leaf = True

    def __init__(self, graph: NodeGraph, shape: Shape, type: Type) -> None:
        super().__init__((), shape, type)
        self.graph = graph

    @property
    def is_contiguous(self) -> bool:
        return False


class Constant(Leaf):
    """An array that does not change; equal ones are one node."""

    type_name = "const"

    def __init__(self, graph: NodeGraph, value: Array) -> None:
        super().__init__(graph, tuple(value.shape), type_of_dtype(value.dtype))
        self.value = value

    def content(self) -> tuple:
        data = np.ascontiguousarray(tensor.to_host(self.value)).tobytes()
        return self.shape, self.type, hashlib.sha1(data).digest()


class Parameter(Leaf):
    """A named array that is trained: `grad` (zeroed by each backward pass) lies beside it."""

    type_name = "param"

    def __init__(self, graph: NodeGraph, name: str, value: Array, trainable: bool = True) -> None:
        super().__init__(graph, tuple(value.shape), type_of_dtype(value.dtype))
        self.value, self.name, self.trainable = value, name, trainable

    def content(self) -> tuple:
        return (self.name,)


class Input(Leaf):
    """A named array that is set before each run; with `trainable` its gradient is computed too."""

    type_name = "input"

    def __init__(
        self, graph: NodeGraph, name: str, shape: Shape, type: Type, trainable: bool = False
    ) -> None:
        super().__init__(graph, shape, type)
        self.name, self.trainable = name, trainable

    def content(self) -> tuple:
        return (self.name,)

"""Objectives given as formulas of `output` and `target`, which training maximizes.

`expression="-0.5 * sqr(target - output)"` is Kaldi's quadratic objective, `"target * output"` the
linear one. The objective sums all elements of the value; its weight is the number of rows.
"""

from __future__ import annotations

import functools

from nnet3tools import tensor
from nnet3tools.expression.control import Same
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.formula import Formula
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.memory import SCRATCH
from nnet3tools.expression.moves import Copy
from nnet3tools.expression.node import Node
from nnet3tools.expression.schedule import no_gradient_reason
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import Type, type_of_dtype
from nnet3tools.tensor.registry import device_of

_PROBE_ROWS = (7, 11)
"""Two numbers of rows, because a formula may be valid for only one number."""


def _build(text: str, rows: int, dim: int, element: Type, like: Array | None) -> tuple[Node, ...]:
    """Build a graph for an objective's formula; returns nodes (output, target, value).

    `output` and `target` have shape (rows, dim) and type `element`.
    """
    graph = Graph(like)
    output = graph.input("output", (rows, dim), element, trainable=True)
    target = graph.input("target", (rows, dim), element)
    root = Formula(text).build(graph, {"output": output, "target": target})
    if not root.trainable:
        raise ExpressionError(no_gradient_reason([root]))
    if root.is_leaf or isinstance(root, Same):
        root = graph.add(Copy(root))
    return output, target, root


def check_objective(text: str, dim: int) -> None:
    """Raise a UserError if a formula is not a valid objective for `dim` output columns."""
    for rows in _PROBE_ROWS:
        *_, root = _build(text, rows, dim, Type.FLOAT32, None)
        Execution([root])


@functools.lru_cache(maxsize=16)
def _prepare(
    text: str, rows: int, dim: int, element: Type, device: str, gradient: bool
) -> tuple[Node, Node, Node, Execution]:
    like = _example[device]
    output, target, root = _build(text, rows, dim, element, like)
    run = Execution([root], like, gradient, scratch=SCRATCH, fed=[output, target])
    return output, target, root, run


_example: dict[str, Array] = {}
"""Device -> an empty array on the device."""

_total = tensor.aggregate("_1", "sum", None)


def evaluate_objective(
    text: str, target: Array, output: Array, deriv: Array | None = None
) -> float:
    """Sum of objective `text` over rows; sets `deriv`, if given, to its derivative by `output`."""
    device, (rows, dim) = device_of(output), output.shape
    if device not in _example:
        _example[device] = tensor.empty((0,), like=output)
    output_node, target_node, root, execution = _prepare(
        text, rows, dim, type_of_dtype(output.dtype), device, deriv is not None
    )
    for node, array in ((output_node, output), (target_node, target)):
        if node.value is not None:  # None if the formula does not use it
            tensor.copy(node.value, array)
    execution.forward()
    total = _total(root.value)
    if deriv is not None:
        execution.backward()
        tensor.copy(deriv, output_node.grad)
    assert total is not None
    return total

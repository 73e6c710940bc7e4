"""Export of expression graphs to ONNX (optional package `onnx`).

Nodes in onnx_nodes.NODES are translated by a function each. Elementwise nodes are translated by
their formulas: a function by its ONNX name or else by its definition.
"""

from __future__ import annotations

import math
from typing import Any

from nnet3tools import tensor
from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.node import Node
from nnet3tools.expression.onnx_nodes import NODES
from nnet3tools.expression.onnx_writer import OnnxWriter
from nnet3tools.expression.schedule import topological
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.formulas import Placeholder, dtype_of

OPSET = 18
"""Version of ONNX's operators in exported models."""


def _add(writer: OnnxWriter, node: Node) -> None:
    """Add a node, whose children have been added, to the ONNX model."""
    inputs = [writer.names[c] for c in node.children]
    if isinstance(node, Elementwise):
        holders = [Placeholder(i + 1) for i in range(len(inputs))]
        operands = [(n, c.type) for n, c in zip(inputs, node.children, strict=True)]
        writer.names[node] = writer.formula(node.as_formula(holders), operands)
    elif node.type_name in NODES:
        writer.names[node] = NODES[node.type_name](writer, node, inputs)
    else:
        raise ExpressionError(f"{node.describe()} cannot be exported to ONNX")


def _add_leaf(writer: OnnxWriter, node: Node) -> Any | None:
    """Add a leaf to the ONNX model; returns the declaration if it is an input, else None."""
    if node.type_name == "input":
        writer.names[node] = node.name
        kind = writer.element_type(node.type)
        return writer.onnx.helper.make_tensor_value_info(node.name, kind, list(node.shape))
    writer.names[node] = writer.constant(tensor.to_host(node.value), dtype_of(node.type))
    return None


def export_onnx(outputs: dict[str, Node], name: str = "expression") -> Any:
    """The ONNX model that computes the nodes of `outputs` (by name) from the graph's inputs.

    The model contains parameters and constants. ExpressionError for nodes that ONNX cannot express:
    random nodes and users' functions.
    """
    writer = OnnxWriter()
    order = topological(list(outputs.values()))
    inputs = []
    for node in order:
        if not node.is_leaf:
            _add(writer, node)
        elif (declared := _add_leaf(writer, node)) is not None:
            inputs.append(declared)
    helper = writer.onnx.helper
    declared_outputs = []
    for output, node in outputs.items():
        made = helper.make_node("Identity", [writer.names[node]], [output])
        writer.nodes.append(made)
        kind = writer.element_type(node.type)
        declared_outputs.append(helper.make_tensor_value_info(output, kind, list(node.shape)))
    graph = helper.make_graph(
        writer.nodes, name, inputs, declared_outputs, initializer=writer.initializers
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset], producer_name="nnet3tools")
    # the first IR version with this opset, so that older runtimes read the model
    model.ir_version = min(model.ir_version, 8)
    size = sum(math.prod(n.shape) for n in order if n.is_leaf)
    if size < 1 << 28:  # the checker cannot read larger models
        writer.onnx.checker.check_model(model)
    return model

"""Export of expression graphs to ONNX (optional package `onnx`).

Nodes are translated by their type names: those in onnx_nodes.NODES each by a function, elementwise
ones through their formulas, a function by its ONNX name or else by its definition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.node import Expr
from nnet3tools.expression.schedule import topological
from nnet3tools.expression.shapes import ExpressionError
from nnet3tools.tensor.functional import FUNCTIONS, Placeholder, Type, dtype_of
from nnet3tools.tensor.functional import Expr as FormulaExpr
from nnet3tools.tensor.functional.lowered import Instruction, Kind, Lowering, Target, used

__all__ = ["OPSET", "OnnxWriter", "export_onnx"]

OPSET = 18
"""The version of ONNX's operators that is written."""


def _logaddexp(a: FormulaExpr, b: FormulaExpr) -> FormulaExpr:
    # log(1 + exp(-gap)) = softplus(-gap)
    return FUNCTIONS["max"](a, b) + FUNCTIONS["softplus"](-abs(a - b))


_TARGET = Target(
    "onnx",
    frozenset({"sqr", "ne", *(name for name, f in FUNCTIONS.items() if f.onnx)}),
    lambda name, compute: _logaddexp if name == "logaddexp" else None,
)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise UserError(
            "writing ONNX needs the package onnx: pip install 'nnet3tools[onnx]'"
        ) from None
    return onnx


class OnnxWriter:
    """Collects ONNX nodes and constants while a graph is translated."""

    def __init__(self) -> None:
        self.onnx = _onnx()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Expr, str] = {}
        self._count = 0

    def new_name(self, prefix: str) -> str:
        """A name that nothing has yet."""
        self._count += 1
        return f"{prefix}_{self._count}"

    def emit(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; the name of its last output."""
        names = [self.new_name(operator.lower()) for _ in range(outputs)]
        made = self.onnx.helper.make_node(operator, list(inputs), names, **attributes)
        self.nodes.append(made)
        return names[-1]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant array; its name."""
        name = self.new_name("const")
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def element_type(self, kind: Type) -> int:
        """ONNX's number of an element type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(dtype_of(kind)))

    def cast(self, name: str, have: Type, want: Type) -> str:
        """The value as another type."""
        return name if have is want else self.emit("Cast", name, to=self.element_type(want))

    # -- formulas

    def formula(self, expr: FormulaExpr, operands: Sequence[tuple[str, Type]]) -> str:
        """Translate an elementwise expression of `_1`, `_2`, ...; the name of its value."""
        types = [kind for _, kind in operands]
        lowering = Lowering(types, _TARGET)
        root = lowering.lower(expr)
        names: dict[Instruction, str] = {}
        for v in used(lowering.instructions, [root]):
            if v.kind is Kind.OPERAND:
                names[v] = operands[v.number][0]
            elif v.kind is Kind.CONSTANT:
                names[v] = self.constant(v.value, dtype_of(v.type))
            elif v.kind is Kind.CAST:
                names[v] = self.cast(names[v.inputs[0]], v.inputs[0].type, v.type)
            else:
                names[v] = self._function(v.name, [names[i] for i in v.inputs])
        return self.cast(names[root], root.type, expr.type(dict(enumerate(types, 1))))

    def _function(self, name: str, inputs: Sequence[str]) -> str:
        if name == "sqr":
            return self.emit("Mul", inputs[0], inputs[0])
        if name == "ne":
            return self.emit("Not", self.emit("Equal", *inputs))
        return self.emit(FUNCTIONS[name].onnx, *inputs)

    # -- nodes

    def add(self, node: Expr) -> None:
        """Translate one node, whose children have been translated."""
        from nnet3tools.expression.onnx_nodes import NODES

        inputs = [self.names[c] for c in node.children]
        if isinstance(node, Elementwise):
            holders = [Placeholder(i + 1) for i in range(len(inputs))]
            operands = [(n, c.type) for n, c in zip(inputs, node.children, strict=True)]
            self.names[node] = self.formula(node.as_formula(holders), operands)
        elif node.type_name in NODES:
            self.names[node] = NODES[node.type_name](self, node, inputs)
        else:
            raise ExpressionError(f"{node.describe()} cannot be exported to ONNX")

    def leaf(self, node: Expr) -> Any | None:
        """Translate a leaf; an input's declaration is returned."""
        if node.type_name == "input":
            self.names[node] = node.name
            kind = self.element_type(node.type)
            return self.onnx.helper.make_tensor_value_info(node.name, kind, list(node.shape))
        name = self.constant(tensor.to_host(node.value), dtype_of(node.type))
        self.names[node] = name
        return None


def export_onnx(outputs: dict[str, Expr], name: str = "expression") -> Any:
    """The ONNX model that computes these nodes, by output name, from the graph's inputs.

    Parameters and constants are stored in it. ExpressionError for nodes that ONNX cannot express:
    random ones and functions of the caller's.
    """
    writer = OnnxWriter()
    order = topological(list(outputs.values()))
    inputs = []
    for node in order:
        if not node.is_leaf:
            writer.add(node)
        elif (declared := writer.leaf(node)) is not None:
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
    # of the version that first had this opset, so that older runtimes read it too
    model.ir_version = min(model.ir_version, 8)
    size = sum(math.prod(n.shape) for n in order if n.is_leaf)
    if size < 1 << 28:  # larger models do not fit the message the checker reads
        writer.onnx.checker.check_model(model)
    return model

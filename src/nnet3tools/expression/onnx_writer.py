"""OnnxWriter: collects ONNX nodes and constants, and translates formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import UserError, install_command
from nnet3tools.expression.node import Node
from nnet3tools.tensor.formulas import FUNCTIONS, Type, dtype_of
from nnet3tools.tensor.formulas import Expr as FormulaExpr
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, Lowering, Target, used


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
        raise UserError(f"writing ONNX needs the package onnx: {install_command('onnx')}") from None
    return onnx


class OnnxWriter:
    """Collects ONNX nodes and constants while a graph is translated."""

    def __init__(self) -> None:
        self.onnx = _onnx()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: dict[Node, str] = {}
        self._count = 0

    def new_name(self, prefix: str) -> str:
        """A name beginning with `prefix` that no value of the ONNX model has."""
        self._count += 1
        return f"{prefix}_{self._count}"

    def emit(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node with an ONNX operator and attributes; returns the name of its last output."""
        names = [self.new_name(operator.lower()) for _ in range(outputs)]
        made = self.onnx.helper.make_node(operator, list(inputs), names, **attributes)
        self.nodes.append(made)
        return names[-1]

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """Add a constant array to the ONNX model; returns its name."""
        name = self.new_name("const")
        array = np.ascontiguousarray(np.asarray(value, dtype))
        self.initializers.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def element_type(self, kind: Type) -> int:
        """ONNX's number for the element type `kind`."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(dtype_of(kind)))

    def cast(self, name: str, have: Type, want: Type) -> str:
        """Convert the ONNX value `name` from type `have` to `want`; return the result's name."""
        return name if have is want else self.emit("Cast", name, to=self.element_type(want))

    # -- formulas

    def formula(self, expr: FormulaExpr, operands: Sequence[tuple[str, Type]]) -> str:
        """Add nodes for `expr` of `_1`, `_2`, ...; return the ONNX name of the result.

        `operands` has the ONNX name and the type of each.
        """
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

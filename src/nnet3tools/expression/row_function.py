"""RowFunction: a formula over matrices with equal numbers of rows, for use in a component.

It computes the value and the derivatives into given matrices, and knows whether the derivatives
read the input or the output. Elementwise formulas are fused (fused.py). Others run as graphs, which
store what the derivatives need between the forward and backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnet3tools import tensor
from nnet3tools.errors import ProgramError, naming
from nnet3tools.expression.control import Same
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.formula import Formula
from nnet3tools.expression.fused import Fused, fuse
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.memory import SCRATCH
from nnet3tools.expression.moves import Copy
from nnet3tools.expression.node import Node
from nnet3tools.expression.schedule import no_gradient_reason
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array, recording
from nnet3tools.tensor.formulas import Type, type_of_dtype
from nnet3tools.tensor.registry import device_of

_PROBE_ROWS = (7, 11)
"""Two numbers of rows for finding shapes, because a formula may be valid for only one number."""

_MAX_SIZES = 16
"""Graphs (one per number of rows and type) kept on the host; on a GPU all are, because captured
programs use their memory.
"""


class _Run:
    """The graph of a RowFunction's formula for one number of rows."""

    def __init__(self, owner: RowFunction, like: Array, gradient: bool) -> None:
        rows, type = len(like), type_of_dtype(like.dtype)
        graph = Graph(like)
        shapes = {n: (rows, dim) for n, dim in owner.parts.items()} | owner.params
        self.operands = {
            name: graph.input(name, shape, type, trainable=True) for name, shape in shapes.items()
        }
        with naming(f"a minibatch of {rows} rows"):
            root = owner.formula.build(graph, self.operands)
        if root.type is not type and root.type.is_float:
            raise ExpressionError(f"the value is {root.describe()}, the matrices are {type.value}")
        self.root = graph.add(Copy(root)) if root.is_leaf or isinstance(root, Same) else root
        fed = self.operands.values()
        self.execution = Execution([self.root], like, gradient, scratch=SCRATCH, fed=fed)

    def forward(self, operands: Mapping[str, Array], out: Array) -> None:
        """Compute the formula's value into `out`; `operands` has arrays by name."""
        for name, node in self.operands.items():
            if node.value is not None:
                tensor.copy(node.value, operands[name])
        self.execution.forward()
        tensor.copy(out, self.root.value)

    def backward(self, out_deriv: Array) -> None:
        """Compute the operands' gradients from the derivative by the formula's value."""
        self.execution.backward({self.root: out_deriv})


class _Memo:
    """A _Run (a formula's graph) reserved for a backward pass; deleting the memo frees the _Run."""

    def __init__(self, run: _Run, idle: list[_Run]) -> None:
        self.run, self._idle = run, idle

    def __del__(self) -> None:
        self._idle.append(self.run)


class RowFunction:
    """A formula over named inputs (rows, dim) and parameters, compiled for any number of rows."""

    def __init__(self, text: str, parts: Mapping[str, int], params: Mapping[str, Shape]) -> None:
        self.formula = Formula(text)
        self.parts, self.params = dict(parts), dict(params)
        self._idle: dict[tuple, list[_Run]] = {}
        root, other = (self._probe(rows) for rows in _PROBE_ROWS)
        if root.shape[1] != other.shape[1]:
            raise ExpressionError(f"the columns of '{text}' depend on the number of rows")
        self.output_dim = root.shape[1]
        self._fused: Fused | None = fuse(root)
        if self._fused is None:
            Execution([root])  # checks that every derivative exists
        fused = self._fused
        self.needs_input = fused is not None and fused.needs_input
        self.needs_output = fused is not None and fused.needs_output
        same_columns = fused is not None and len(self.parts) == 1 and len(fused.widths) == 1
        self.in_place = same_columns and self.parts == {next(iter(self.parts)): self.output_dim}

    def _probe(self, rows: int) -> Node:
        graph = Graph()
        names: dict[str, Any] = {}
        for name, dim in self.parts.items():
            names[name] = graph.input(name, (rows, dim), trainable=True)
        for name, shape in self.params.items():
            names[name] = graph.param(name, tensor.zeros(shape))
        root = self.formula.build(graph, names)
        if len(root.shape) != 2 or root.shape[0] != rows or root.shape[1] < 1:
            shown = shape_text(root.shape).replace(str(rows), "rows", 1)
            raise ExpressionError(
                f"the value of '{self.formula.text}' has shape {shown}, expected (rows x dim)"
            )
        if not root.trainable:
            raise ExpressionError(no_gradient_reason([root]))
        if root.type is not Type.FLOAT32:
            raise ExpressionError(f"the value is {root.describe()}, expected float32")
        return root

    @property
    def is_fused(self) -> bool:
        """Whether the formula is elementwise and runs without a graph."""
        return self._fused is not None

    def __deepcopy__(self, memo: dict) -> RowFunction:
        return self  # has no parameters, so copies of a component share it and its graphs

    def _reserve(self, like: Array, gradient: bool) -> _Memo:
        """Take an idle graph for as many rows as `like` has, with a backward pass if `gradient`."""
        key = len(like), like.dtype, type(like), gradient
        idle = self._idle.pop(key, [])
        self._idle[key] = idle  # moved to the end
        if len(self._idle) > _MAX_SIZES and device_of(like) == "numpy":
            del self._idle[next(iter(self._idle))]
        return _Memo(idle.pop() if idle else _Run(self, like, gradient), idle)

    def infer(self, operands: Mapping[str, Array], out: Array) -> None:
        """Compute the formula into `out` (rows, output_dim) from inputs and parameters by name."""
        if self._fused is not None:
            self._fused.forward(operands, out)
            return
        self._reserve(out, False).run.forward(operands, out)

    def forward(self, operands: Mapping[str, Array], out: Array) -> object:
        """Compute the formula into `out`; returns a memo for `backward`, or None if elementwise.

        The memo holds the values that derivatives read; delete it when it is not needed.
        """
        if self._fused is not None:
            self._fused.forward(operands, out)
            return None
        memo = recording.persistent_object(lambda: self._reserve(out, True))
        memo.run.forward(operands, out)
        return memo

    def backward(
        self,
        operands: Mapping[str, Array],
        out: Array | None,
        out_deriv: Array,
        memo: object,
        input_derivs: Mapping[str, Array] | None,
        param_derivs: Mapping[str, Array] | None,
        alpha: float = 1.0,
    ) -> None:
        """Set the derivatives by the inputs; add alpha times the derivatives by the parameters.

        Arrays are by name; None for either kind of derivative omits it. `operands` must contain the
        inputs only if `needs_input`; `out`, the value, is used only if `needs_output`. `memo` is
        the result of `forward`. Derivatives by inputs that the value does not depend on are 0.
        """
        if self._fused is not None:
            self._fused.backward(operands, out, out_deriv, input_derivs, param_derivs, alpha)
            return
        if not isinstance(memo, _Memo):
            raise ProgramError("the derivatives of a formula need the memo of its forward pass")
        memo.run.backward(out_deriv)
        for name, deriv in (param_derivs or {}).items():
            if (grad := memo.run.operands[name].grad) is not None:
                tensor.add(deriv, grad, alpha=alpha)
        for name, deriv in (input_derivs or {}).items():
            if (grad := memo.run.operands[name].grad) is None:
                tensor.fill(deriv, 0.0)
            else:
                tensor.copy(deriv, grad)

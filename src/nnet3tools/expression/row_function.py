"""RowFunction: a formula of matrices with equal numbers of rows, ready to be run and trained.

What a component made of a formula needs: value into a given matrix, derivatives into given
matrices, and what of input and output the derivatives read. Elementwise formulas are fused (see
fused.py); others run as a graph, one for each number of rows met lately.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnet3tools import tensor
from nnet3tools.expression.control import Same
from nnet3tools.expression.execution import Execution
from nnet3tools.expression.formula import parse_formula
from nnet3tools.expression.fused import Fused, fuse
from nnet3tools.expression.graph import Graph
from nnet3tools.expression.moves import Copy
from nnet3tools.expression.node import Expr
from nnet3tools.expression.schedule import no_gradient_reason
from nnet3tools.expression.shapes import ExpressionError, Shape, shape_text
from nnet3tools.tensor import Array
from nnet3tools.tensor.functional import Type, type_of_dtype

__all__ = ["RowFunction"]

_PROBE_ROWS = 7
"""Rows of the graph that shapes are found with: a number that hardly is a dimension by mistake."""

_MAX_RUNS = 8
"""Graphs kept, by number of rows and type."""


class _Run:
    """The graph of a formula for one number of rows."""

    def __init__(
        self, owner: RowFunction, rows: int, type: Type, gradient: bool, like: Array | None
    ) -> None:
        self.graph = Graph(like)
        self.parts = {
            name: self.graph.input(name, (rows, dim), type, trainable=True)
            for name, dim in owner.parts.items()
        }
        self.params = {
            name: self.graph.input(name, shape, type, trainable=True)
            for name, shape in owner.params.items()
        }
        root = owner.formula.build(self.graph, {**self.parts, **self.params})
        if root.type is not type and root.type.is_float:
            raise ExpressionError(f"the value is {root.describe()}, the matrices are {type.value}")
        self.root = self.graph.add(Copy(root)) if root.is_leaf or isinstance(root, Same) else root
        self.execution = Execution([self.root], like, gradient) if like is not None else None

    def forward(self, operands: Mapping[str, Array]) -> None:
        """Compute the root's value."""
        for name, node in (*self.parts.items(), *self.params.items()):
            if node.value is not None:
                tensor.copy(node.value, operands[name])
        assert self.execution is not None
        self.execution.forward()


class RowFunction:
    """A formula over named parts (rows, dim) and parameters of given shapes."""

    def __init__(self, text: str, parts: Mapping[str, int], params: Mapping[str, Shape]) -> None:
        self.formula = parse_formula(text)
        self.parts, self.params = dict(parts), dict(params)
        self._runs: dict[tuple, _Run] = {}
        root = self._probe()
        self.output_dim = root.shape[1]
        self._fused: Fused | None = fuse(root)
        fused = self._fused
        self.needs_input = fused is None or fused.needs_input
        self.needs_output = fused is not None and fused.needs_output
        same_columns = fused is not None and len(self.parts) == 1 and len(fused.widths) == 1
        self.in_place = same_columns and self.parts == {next(iter(self.parts)): self.output_dim}

    def _probe(self) -> Expr:
        graph = Graph()
        names: dict[str, Any] = {}
        for name, dim in self.parts.items():
            names[name] = graph.input(name, (_PROBE_ROWS, dim), trainable=True)
        for name, shape in self.params.items():
            names[name] = graph.param(name, tensor.zeros(shape))
        root = self.formula.build(graph, names)
        if len(root.shape) != 2 or root.shape[0] != _PROBE_ROWS or root.shape[1] < 1:
            shown = shape_text(root.shape).replace(str(_PROBE_ROWS), "rows", 1)
            raise ExpressionError(
                f"the value of '{self.formula.text}' has shape {shown}, expected (rows x dim)"
            )
        if not root.trainable:
            raise ExpressionError(no_gradient_reason([root]))
        if root.type is not Type.FLOAT32:
            raise ExpressionError(f"the value is {root.describe()}, expected float32")
        Execution([root])  # whether every derivative exists
        return root

    @property
    def is_fused(self) -> bool:
        """Whether it runs as one formula."""
        return self._fused is not None

    def __deepcopy__(self, memo: dict) -> RowFunction:
        return self  # holds no parameters: copies of a component may share it

    def _run(self, rows: int, like: Array, gradient: bool) -> _Run:
        key = rows, like.dtype, type(like), gradient
        if (found := self._runs.get(key)) is None:
            if len(self._runs) >= _MAX_RUNS:
                self._runs.clear()
            found = _Run(self, rows, type_of_dtype(like.dtype), gradient, like)
            self._runs[key] = found
        return found

    def forward(self, operands: Mapping[str, Array], out: Array) -> None:
        """Compute `out` (rows, output_dim); `operands` are parts and parameters by name."""
        if self._fused is not None:
            self._fused.forward(operands, out)
            return
        run = self._run(len(out), out, False)
        run.forward(operands)
        tensor.copy(out, run.root.value)

    def backward(
        self,
        operands: Mapping[str, Array],
        out: Array | None,
        out_deriv: Array,
        input_derivs: Mapping[str, Array] | None,
        param_derivs: Mapping[str, Array] | None,
        alpha: float = 1.0,
    ) -> None:
        """Set the derivatives by the parts, add alpha times those by the parameters.

        Parts' values must be among the operands only if `needs_input`, `out` only if
        `needs_output`. Derivatives by parts that the value does not depend on are 0.
        """
        if self._fused is None:
            self._graph_backward(operands, out_deriv, input_derivs, param_derivs, alpha)
            return
        add = None
        if param_derivs is not None:

            def add(name: str, aggregate: tensor.Aggregate, given: list[Any]) -> None:
                aggregate(param_derivs[name], *given, alpha=alpha, beta=1.0)

        self._fused.backward(operands, out, out_deriv, input_derivs, add)
        used = {i.name for i in self._fused.inputs}
        for name, deriv in (input_derivs or {}).items():
            if name not in used:
                tensor.fill(deriv, 0.0)

    def _graph_backward(
        self,
        operands: Mapping[str, Array],
        out_deriv: Array,
        input_derivs: Mapping[str, Array] | None,
        param_derivs: Mapping[str, Array] | None,
        alpha: float,
    ) -> None:
        run = self._run(len(out_deriv), out_deriv, True)
        run.forward(operands)
        assert run.execution is not None
        run.execution.backward({run.root: out_deriv})
        for name, deriv in (param_derivs or {}).items():
            if (grad := run.params[name].grad) is not None:
                tensor.add(deriv, grad, alpha=alpha)
        for name, deriv in (input_derivs or {}).items():
            if (grad := run.parts[name].grad) is None:
                tensor.fill(deriv, 0.0)
            else:
                tensor.copy(deriv, grad)

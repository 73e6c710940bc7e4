"""Elementwise expressions over rows as single formulas, without a graph or temporary arrays.

The value is one Element; derivatives, by symbolic differentiation, are one Element, and one
Aggregate per parameter. The root must be an elementwise expression or a concatenation of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nnet3tools import tensor
from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.gradients import renumbered
from nnet3tools.expression.joins import Concatenate
from nnet3tools.expression.leaves import Input, Parameter
from nnet3tools.expression.node import Node
from nnet3tools.tensor import Array
from nnet3tools.tensor.formulas import (
    Assignments,
    Constant,
    Expr,
    Placeholder,
    derivatives,
    simplify,
)
from nnet3tools.tensor.operators.concatenate import parts_along

_PIECE, _ADJ = 500, 600
"""Placeholder numbers of the pieces' values and derivatives; leaves have lower numbers."""


def fuse(root: Node) -> Fused | None:
    """Compile an elementwise expression of matrices (rows, dim); None if that is impossible."""
    along_columns = isinstance(root, Concatenate) and root.axis == 1
    pieces = list(root.children) if along_columns else [root]
    leaves: dict[Node, Placeholder] = {}
    formulas: dict[Node, Expr] = {}
    for piece in pieces:
        if not _add_formulas(piece, piece.shape, leaves, formulas):
            return None
    if len(leaves) >= _PIECE or len(pieces) > _ADJ - _PIECE:
        return None
    return Fused(pieces, leaves, [simplify(formulas[piece]) for piece in pieces])


def _add_formulas(
    node: Node, shape: tuple[int, ...], leaves: dict[Node, Placeholder],
    formulas: dict[Node, Expr],
) -> bool:  # fmt: skip
    """Add formulas of a node and of all its operands to `formulas`; False if that is impossible.

    `shape` is the shape of the fused value; `leaves` collects a placeholder for each leaf.
    """
    stack = [node]
    while stack:
        top = stack[-1]
        if isinstance(top, Input | Parameter):
            width = top.shape[-1] if isinstance(top, Input) or len(top.shape) == 1 else -1
            if len(shape) != 2 or width != shape[1] or not top.type.is_float:
                return False
            formulas[top] = leaves.setdefault(top, Placeholder(len(leaves) + 1))
        elif not isinstance(top, Elementwise) or top.shape not in (shape, shape[1:]):
            return False
        elif missing := [c for c in top.children if c not in formulas]:
            stack.extend(missing)
            continue
        else:
            formulas[top] = top.as_formula([formulas[c] for c in top.children])
        # check again leaves that another piece of another width may use
        for child in top.children:
            if isinstance(child, Input | Parameter) and child.shape[-1] != shape[1]:
                return False
        stack.pop()
    return node.shape == shape


def _kernel(exprs: Sequence[Expr]) -> tuple[list[int], tensor.Element]:
    """(placeholder numbers in the formulas, kernel that computes the formulas).

    The kernel's operands: one result per formula, then the value of each placeholder.
    """
    numbers, moved = renumbered(exprs, len(exprs) + 1)
    items = [(Placeholder(i + 1), e) for i, e in enumerate(moved)]
    return numbers, tensor.element(Assignments(tuple(items)))


class Fused:
    """An elementwise expression compiled to kernels, with one formula per block of columns."""

    def __init__(
        self, pieces: Sequence[Node], leaves: Mapping[Node, Placeholder],
        formulas: Sequence[Expr],
    ) -> None:  # fmt: skip
        self.inputs = [leaf for leaf in leaves if isinstance(leaf, Input)]
        self.parameters = [leaf for leaf in leaves if isinstance(leaf, Parameter)]
        self.widths = [p.shape[1] for p in pieces]
        self._leaf_of = {h.number: leaf.name for leaf, h in leaves.items()}
        self._forward = []
        """For each width: (block numbers, placeholders of operands, kernel for these blocks)."""
        for width in dict.fromkeys(self.widths):
            blocks = [k for k, w in enumerate(self.widths) if w == width]
            self._forward.append((blocks, *_kernel([formulas[k] for k in blocks])))
        self._derivatives(leaves, formulas)

    def _derivatives(self, leaves: Mapping[Node, Placeholder], formulas: Sequence[Expr]) -> None:
        """Make `backward`'s kernels: derivatives of `formulas`, one per column block, by leaves."""
        total: Expr = Constant(0)
        made: dict[Expr, Expr] = {}
        for k, formula in enumerate(formulas):
            total = simplify(total + Placeholder(_ADJ + k) * formula, made)
        wanted = [leaves[leaf] for leaf in (*self.inputs, *self.parameters)]
        found = derivatives(total, wanted)
        holders = {Placeholder(leaves[i].number) for i in self.inputs}
        values = {f: Placeholder(_PIECE + k) for k, f in enumerate(formulas) if f.arguments}
        by_value = [d.substitute(values) for d in found]
        if not any(holders & set(d.walk()) for d in by_value):
            found = by_value
        used = {n for d in found for n in d.placeholders()}
        self.needs_input = any(h.number in used for h in holders)
        self.needs_output = any(_PIECE <= n < _ADJ for n in used)
        self._groups = []
        """For each width of inputs: (names, placeholders of operands, kernel of derivatives)."""
        by_input = dict(zip(self.inputs, found, strict=False))
        for width in dict.fromkeys(i.shape[1] for i in self.inputs):
            inputs = [i for i in self.inputs if i.shape[1] == width]
            self._groups.append(([i.name for i in inputs], *_kernel([by_input[i] for i in inputs])))
        self._by_parameter = []
        for leaf, expr in zip(self.parameters, found[len(self.inputs) :], strict=True):
            numbers, (moved,) = renumbered([expr], 1)
            self._by_parameter.append((leaf.name, numbers, tensor.aggregate(moved, "sum", 0)))

    def forward(self, operands: Mapping[str, Array], out: Array) -> None:
        """Compute the expression into `out`; `operands` has inputs and parameters by name."""
        pieces = parts_along(out, self.widths, 1)
        for targets, numbers, element in self._forward:
            given = [operands[self._leaf_of[n]] for n in numbers]
            element(*(pieces[k] for k in targets), *given)

    def backward(
        self,
        operands: Mapping[str, Array],
        out: Array | None,
        out_deriv: Array,
        input_derivs: Mapping[str, Array] | None,
        param_derivs: Mapping[str, Array] | None,
        alpha: float,
    ) -> None:
        """Set the derivatives by the inputs; add alpha times the derivatives by the parameters.

        Arrays are by name; None for either kind of derivative omits it. `out`, the value, is read
        only if `needs_output`. An input derivative may be the same memory as `out_deriv`, element
        for element. It is 0 if the value does not depend on the input.
        """
        adj = parts_along(out_deriv, self.widths, 1)
        values = parts_along(out, self.widths, 1) if out is not None else []

        def operand(number: int) -> Array:
            if number >= _ADJ:
                return adj[number - _ADJ]
            if number >= _PIECE:
                return values[number - _PIECE]
            return operands[self._leaf_of[number]]

        if param_derivs is not None:
            for name, numbers, aggregate in self._by_parameter:
                if numbers:
                    given = [operand(n) for n in numbers]
                    aggregate(param_derivs[name], *given, alpha=alpha, beta=1.0)
        if input_derivs is not None:
            for names, numbers, element in self._groups:
                given = [operand(n) for n in numbers]
                element(*(input_derivs[name] for name in names), *given)
            used = {i.name for i in self.inputs}
            for name, deriv in input_derivs.items():
                if name not in used:
                    tensor.fill(deriv, 0.0)

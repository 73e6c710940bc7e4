"""Elementwise nodes: a kind is a formula and its derivatives; broadcasting is handled here.

A kind states `formula` in terms of its operands a, b, c, and `derivatives`, one an operand, in
terms of these, `value` (the node's own) and `adj` (the gradient that arrives): what is added to the
operand's gradient. "0" is a function that is flat wherever it is smooth. Operands may be numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

from nnet3tools import tensor
from nnet3tools.expression.node import Expr, NodeOp, Operand, common_shape
from nnet3tools.expression.shapes import ExpressionError, reduced_axes
from nnet3tools.tensor import Array, functional
from nnet3tools.tensor.functional import Constant, Placeholder, Type

__all__ = ["KINDS", "Elementwise", "add_reduced", "adder", "apply", "gradient_term"]

KINDS: dict[str, type[Elementwise]] = {}
"""Every kind of elementwise node by type name."""

_NAMES = ("a", "b", "c")
_HOLDERS: dict[str, functional.Expr] = {
    **{name: Placeholder(i + 2) for i, name in enumerate(_NAMES)},
    "value": Placeholder(8),
    "adj": Placeholder(9),
}


class Elementwise(Expr):
    """An elementwise function of broadcast operands."""

    formula: ClassVar[str]
    derivatives: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls) -> None:
        if "type_name" in cls.__dict__:
            KINDS[cls.type_name] = cls

    def __init__(self, *operands: Operand) -> None:
        self.operands = operands
        children = [o for o in operands if isinstance(o, Expr)]
        super().__init__(children, common_shape(self.type_name, children), self._type(operands))

    def _type(self, operands: Sequence[Operand]) -> Type:
        types = {
            i + 2: o.type if isinstance(o, Expr) else Constant(o).type({})
            for i, o in enumerate(operands)
        }
        return value_formula(self.formula).type(types)

    @classmethod
    def arity(cls) -> int:
        """How many operands it takes."""
        return len(cls.derivatives)

    @classmethod
    def make(cls, *operands: Operand) -> Expr:
        """The node of these operands, at least one of them a node; or the operand it equals."""
        if len(operands) != cls.arity():
            raise ExpressionError(
                f"{cls.type_name} takes {cls.arity()} operands, found {len(operands)}"
            )
        for o in operands:
            if not isinstance(o, (Expr, bool, int, float)):
                raise ExpressionError(f"{cls.type_name} of {type(o).__name__}: not an expression")
        if (trivial := cls.trivial(*operands)) is not None:
            return trivial
        graph = next(o.graph for o in operands if isinstance(o, Expr))
        return graph.add(cls(*operands))

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        """An operand that already is the value, if that is plain to see."""
        return None

    def content(self) -> tuple:
        return tuple("child" if isinstance(o, Expr) else (type(o), repr(o)) for o in self.operands)

    # -- as a functional expression

    def as_formula(self, arguments: Sequence[functional.Expr]) -> functional.Expr:
        """The formula of these arguments, one a child."""
        left = iter(arguments)
        given = [next(left) if isinstance(o, Expr) else Constant(o) for o in self.operands]
        return value_formula(self.formula).substitute(
            {_HOLDERS[name]: g for name, g in zip(_NAMES, given, strict=False)}
        )

    # -- running

    def _arrays(self) -> list[Any]:
        return [o.value if isinstance(o, Expr) else o for o in self.operands]

    def forward_ops(self) -> list[NodeOp]:
        return [_value_element(self.formula).bind(self.value, *self._arrays())]

    def _operand_numbers(self) -> list[int]:
        """The operand that each child is."""
        return [i for i, o in enumerate(self.operands) if isinstance(o, Expr)]

    def backward_ops(self) -> list[NodeOp | None]:
        ops: list[NodeOp | None] = []
        arrays: dict[str, Any] = dict(zip(_NAMES, self._arrays(), strict=False))
        arrays |= {"value": self.value, "adj": self.grad}
        for child, number in zip(self.children, self._operand_numbers(), strict=True):
            names, term = gradient_term(self.derivatives[number])
            if not names or not child.trainable:
                ops.append(None)
                continue
            ops.append(add_reduced(child.grad, term, [arrays[name] for name in names]))
        return ops

    def backward_reads(self) -> tuple[set[int], bool]:
        read: set[str] = set()
        numbers = self._operand_numbers()
        for child, number in zip(self.children, numbers, strict=True):
            if child.trainable:
                read.update(gradient_term(self.derivatives[number])[0])
        children = {i for i, number in enumerate(numbers) if _NAMES[number] in read}
        return children, "value" in read


def apply(name: str, *operands: Operand) -> Expr:
    """The elementwise node of this kind."""
    return KINDS[name].make(*operands)


@functools.cache
def value_formula(text: str) -> functional.Expr:
    """A kind's formula over `_2`, `_3`, ..."""
    return functional.parse(text, _HOLDERS)


@functools.cache
def _value_element(text: str) -> tensor.Element:
    return tensor.element(value_formula(text))


@functools.cache
def gradient_term(text: str) -> tuple[tuple[str, ...], functional.Expr]:
    """What is added to an operand's gradient, over `_1`, `_2`..., and the names of these.

    `adj` comes first; a term that is zero has no names at all.
    """
    term = functional.simplify(functional.parse(text, _HOLDERS))
    used = [name for name, holder in _HOLDERS.items() if holder in set(term.walk())]
    used.sort(key=lambda name: name != "adj")
    return tuple(used), term.substitute(
        {_HOLDERS[name]: Placeholder(i + 1) for i, name in enumerate(used)}
    )


@functools.cache
def adder(term: functional.Expr) -> tensor.Element:
    """`_1 +=` the term, whose placeholders move up by one."""
    moved = term.substitute({Placeholder(n): Placeholder(n + 1) for n in term.placeholders()})
    return tensor.element(Placeholder(1) + moved)


@functools.cache
def _reducer(term: functional.Expr, axis: int) -> tensor.Aggregate:
    return tensor.aggregate(term, "sum", axis)


def add_reduced(out: Array, term: functional.Expr, operands: Sequence[Any]) -> NodeOp:
    """Adds the term of `_1`, `_2`, ... to `out`, summed over the axes out was broadcast over.

    The first operand has the full shape.
    """
    full = operands[0].shape
    axes = reduced_axes(out.shape, full)
    target = out.reshape((1,) * (len(full) - out.ndim) + out.shape)
    if not axes:
        return adder(term).bind(target, *operands)
    if len(axes) == 1:
        return _reducer(term, axes[0]).bind(target, *operands, beta=1.0)
    ops = []
    shape = tuple(1 if i == axes[0] else n for i, n in enumerate(full))
    part = tensor.empty(shape, like=out)
    ops.append(_reducer(term, axes[0]).bind(part, *operands))
    for axis in axes[1:-1]:
        shape = tuple(1 if i == axis else n for i, n in enumerate(shape))
        smaller = tensor.empty(shape, like=out)
        ops.append(_reducer(Placeholder(1), axis).bind(smaller, part))
        part = smaller
    ops.append(_reducer(Placeholder(1), axes[-1]).bind(target, part, beta=1.0))

    def run() -> None:
        for op in ops:
            op()

    return run

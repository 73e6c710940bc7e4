"""Terms that are added to gradients: formulas by name, and sums over axes that were broadcast.

A term is a functional expression over `_1`, `_2`, ...; the first of these is `adj`, the gradient
that arrives, which has the full shape.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from nnet3tools import tensor
from nnet3tools.expression.node import NodeOp
from nnet3tools.expression.shapes import reduced_axes
from nnet3tools.tensor import Array, formulas
from nnet3tools.tensor.formulas import Placeholder

__all__ = ["add_reduced", "add_term", "in_order", "named_term", "parse_term"]

Term = tuple[tuple[str, ...], formulas.Expr]
"""Names of the operands, and the expression of these."""

_HOLDERS: dict[str, formulas.Expr] = {
    name: Placeholder(i + 2) for i, name in enumerate(("a", "b", "c", "d", "value", "adj"))
}


def named_term(term: formulas.Expr, holders: Mapping[str, formulas.Expr]) -> Term:
    """The term over `_1`, `_2`, ... and the names of these; `adj` first, none if it is zero."""
    used = [name for name, holder in holders.items() if holder in set(term.walk())]
    used.sort(key=lambda name: name != "adj")
    return tuple(used), term.substitute(
        {holders[name]: Placeholder(i + 1) for i, name in enumerate(used)}
    )


@functools.cache
def parse_term(text: str) -> Term:
    """A term from text over a, b, c, d, value and adj."""
    return named_term(formulas.simplify(formulas.parse(text, _HOLDERS)), _HOLDERS)


@functools.cache
def _setter(term: formulas.Expr, add: bool) -> tensor.Element:
    """`_1` = or += the term, whose placeholders move up by one."""
    moved = term.substitute({Placeholder(n): Placeholder(n + 1) for n in term.placeholders()})
    return tensor.element(Placeholder(1) + moved if add else moved)


@functools.cache
def _reducer(term: formulas.Expr, axis: int) -> tensor.Aggregate:
    return tensor.aggregate(term, "sum", axis)


def add_term(out: Array, text: str, operands: Mapping[str, Any], fresh: bool = False) -> NodeOp:
    """Adds the term of this text to `out`, elementwise; with `fresh` it is what out becomes."""
    names, term = parse_term(text)
    return _setter(term, not fresh).bind(out, *(operands[name] for name in names))


def add_reduced(
    out: Array, term: formulas.Expr, operands: Sequence[Any], fresh: bool = False
) -> NodeOp:
    """Adds the term of `_1`, `_2`, ... to `out`, summed over the axes out was broadcast over.

    The first operand has the full shape; with `fresh` the sum is what out becomes.
    """
    full = operands[0].shape
    axes = reduced_axes(out.shape, full)
    target = out.reshape((1,) * (len(full) - out.ndim) + out.shape)
    if not axes:
        return _setter(term, not fresh).bind(target, *operands)
    if len(axes) == 1:
        return _reduce_along(target, term, operands, axes[0], fresh)
    ops, shape, given = [], full, list(operands)
    for axis in axes[:-1]:
        shape = tuple(1 if i == axis else n for i, n in enumerate(shape))
        part = tensor.empty(shape, like=out)
        ops.append(_reducer(term, axis).bind(part, *given))
        term, given = Placeholder(1), [part]
    ops.append(_reducer(term, axes[-1]).bind(target, *given, beta=0.0 if fresh else 1.0))
    return in_order(ops)


def _reduce_along(
    target: Array, term: formulas.Expr, operands: Sequence[Any], axis: int, fresh: bool
) -> NodeOp:
    """Adds the term's sums along an axis; factors that are the same all along are left for last."""
    outer, inner = _split(term, frozenset(_varying(operands, axis)))
    numbers = outer.placeholders()
    if not any(hasattr(operands[n - 1], "dtype") for n in numbers):
        return _reducer(term, axis).bind(target, *operands, beta=0.0 if fresh else 1.0)
    sums = tensor.empty(target.shape, like=target)
    numbered = inner.placeholders()
    reduce = _reducer(_renumbered(inner, 1), axis)
    last = _setter(Placeholder(1) * _renumbered(outer, 2), not fresh)
    return in_order(
        [
            reduce.bind(sums, *(operands[n - 1] for n in numbered)),
            last.bind(target, sums, *(operands[n - 1] for n in numbers)),
        ]
    )


def _renumbered(term: formulas.Expr, first: int) -> formulas.Expr:
    """The term over the placeholders from this number on."""
    moved: dict[formulas.Expr, formulas.Expr] = {
        Placeholder(n): Placeholder(first + i) for i, n in enumerate(term.placeholders())
    }
    return term.substitute(moved)


def _varying(operands: Sequence[Any], axis: int) -> list[int]:
    """Numbers of the placeholders whose operands are not the same all along an axis."""
    back = axis - operands[0].ndim
    shapes = [getattr(operand, "shape", ()) for operand in operands]
    return [i + 1 for i, s in enumerate(shapes) if len(s) >= -back and s[back] != 1]


def _split(term: formulas.Expr, varying: frozenset[int]) -> tuple[formulas.Expr, formulas.Expr]:
    """(outer, inner) whose product is the term, nothing that varies being in the outer one."""
    one = formulas.Constant(1)
    if varying.isdisjoint(term.placeholders()):
        return term, one
    name = term.function.name if isinstance(term, formulas.Apply) else ""
    if name not in ("mul", "div", "neg"):
        return one, term
    parts = [_split(argument, varying) for argument in term.arguments]
    combine = formulas.FUNCTIONS[name]
    outer = formulas.simplify(combine(*(o for o, _ in parts)))
    if name == "neg":
        return outer, parts[0][1]
    if name == "div" and parts[1][1] is one:
        return outer, parts[0][1]
    return outer, formulas.simplify(combine(*(i for _, i in parts)))


def in_order(ops: Sequence[NodeOp]) -> NodeOp:
    """Several operations as one."""

    def run() -> None:
        for op in ops:
            op()

    return run

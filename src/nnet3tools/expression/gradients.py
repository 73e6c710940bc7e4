"""Terms of gradients: formulas by name, and sums over broadcast axes.

A term is an expression of formulas over `_1`, `_2`, ... The first operand is `adj`, the gradient of
the node, which has the full shape.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from nnet3tools import tensor
from nnet3tools.expression.node import NodeOp
from nnet3tools.expression.shapes import reduced_axes
from nnet3tools.tensor import Array, formulas
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.formulas import Placeholder

Term = tuple[tuple[str, ...], formulas.Expr]
"""The names of the operands, and the expression over them."""

_PLACEHOLDERS: dict[str, formulas.Expr] = {
    name: Placeholder(i + 2) for i, name in enumerate(("a", "b", "c", "d", "value", "adj"))
}


def named_term(term: formulas.Expr, placeholders: Mapping[str, formulas.Expr]) -> Term:
    """(names of the operands in `term`, `term` with `_1`, `_2`, ... for these operands in order).

    `placeholders` gives the placeholder of each name. The name `adj` comes first.
    """
    used = [name for name, placeholder in placeholders.items() if placeholder in set(term.walk())]
    used.sort(key=lambda name: name != "adj")
    return tuple(used), term.substitute(
        {placeholders[name]: Placeholder(i + 1) for i, name in enumerate(used)}
    )


@functools.cache
def parse_term(text: str) -> Term:
    """Parse a gradient's formula: (names in it, the formula with `_1`, `_2`, ... for the names).

    Names: a, b, c, d for operands, `value` for the node's value, `adj` for the node's gradient.
    """
    return named_term(formulas.simplify(formulas.parse(text, _PLACEHOLDERS)), _PLACEHOLDERS)


@functools.cache
def _setter(term: formulas.Expr, add: bool) -> tensor.Element:
    """A kernel that sets `_1` to a term or, if `add`, adds the term to `_1`.

    Placeholder n of the term is operand n + 1 of the kernel.
    """
    moved = term.substitute({Placeholder(n): Placeholder(n + 1) for n in term.placeholders()})
    return tensor.element(Placeholder(1) + moved if add else moved)


@functools.cache
def _reducer(term: formulas.Expr, axis: int) -> tensor.Aggregate:
    return tensor.aggregate(term, "sum", axis)


def add_term(out: Array, text: str, operands: Mapping[str, Any], overwrite: bool = False) -> NodeOp:
    """An operation that adds the formula `text` of `operands` to `out`; `overwrite`: sets `out`."""
    names, term = parse_term(text)
    return _setter(term, not overwrite).bind(out, *(operands[name] for name in names))


def add_reduced(
    out: Array, term: formulas.Expr, operands: Sequence[Any], overwrite: bool = False
) -> NodeOp:
    """An operation that adds a gradient term to `out`, summed over the axes that `out` lacks.

    In `term`, `_1`, `_2`, ... are the operands; the first has the full shape. With `overwrite` the
    sum replaces `out`.
    """
    full = operands[0].shape
    axes = reduced_axes(out.shape, full)
    target = out.reshape((1,) * (len(full) - out.ndim) + out.shape)
    if not axes:
        return _setter(term, not overwrite).bind(target, *operands)
    if len(axes) == 1:
        return _reduce_along(target, term, operands, axes[0], overwrite)
    ops, shape, given = [], full, list(operands)
    for axis in axes[:-1]:
        shape = tuple(1 if i == axis else n for i, n in enumerate(shape))
        part = tensor.empty(shape, like=out)
        ops.append(_reducer(term, axis).bind(part, *given))
        term, given = Placeholder(1), [part]
    ops.append(_reducer(term, axes[-1]).bind(target, *given, beta=0.0 if overwrite else 1.0))
    return in_turn(ops)


def _reduce_along(
    target: Array, term: formulas.Expr, operands: Sequence[Any], axis: int, overwrite: bool
) -> NodeOp:
    """An operation that adds the sums of a term along `axis` to `target`, or sets `target`.

    In `term`, `_1`, `_2`, ... are the operands. Constant factors are multiplied after summation.
    """
    outer, inner = _split(term, frozenset(_varying(operands, axis)))
    numbers = outer.placeholders()
    if not any(hasattr(operands[n - 1], "dtype") for n in numbers):
        return _reducer(term, axis).bind(target, *operands, beta=0.0 if overwrite else 1.0)
    sums = tensor.empty(target.shape, like=target)
    reduced, (summed,) = renumbered([inner], 1)
    _, (factor,) = renumbered([outer], 2)
    last = _setter(Placeholder(1) * factor, not overwrite)
    return in_turn(
        [
            _reducer(summed, axis).bind(sums, *(operands[n - 1] for n in reduced)),
            last.bind(target, sums, *(operands[n - 1] for n in numbers)),
        ]
    )


def renumbered(exprs: Sequence[formulas.Expr], first: int) -> tuple[list[int], list[formulas.Expr]]:
    """(sorted placeholder numbers in the formulas, the formulas renumbered from `first` on)."""
    numbers = sorted({n for e in exprs for n in e.placeholders()})
    new: dict[formulas.Expr, formulas.Expr] = {
        Placeholder(n): Placeholder(first + i) for i, n in enumerate(numbers)
    }
    return numbers, [e.substitute(new) for e in exprs]


def _varying(operands: Sequence[Any], axis: int) -> list[int]:
    """Numbers (from 1) of the operands whose size along `axis` is not 1."""
    back = axis - operands[0].ndim
    shapes = [getattr(operand, "shape", ()) for operand in operands]
    return [i + 1 for i, s in enumerate(shapes) if len(s) >= -back and s[back] != 1]


def _split(term: formulas.Expr, varying: frozenset[int]) -> tuple[formulas.Expr, formulas.Expr]:
    """Factor a term into (outer, inner); `outer` has no placeholder with a number in `varying`."""
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

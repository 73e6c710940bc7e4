"""Aggregates on NumPy that take more than one pass: logsumexp, and folds by a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.aggregate import AGGREGATE_BACKENDS, Fold, Reduction
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.formulas import FUNCTIONS, Expr, Placeholder, Type
from nnet3tools.tensor.plain.aggregate import TiledAggregate, prepare, store, target_of
from nnet3tools.tensor.plain.operands import is_number, operand_types, with_axes


class _LogSumExp:
    """log of sum of exp: the maximum first, then the sum of exp of what lies below it."""

    def __init__(self, expr: Expr, axis: int | None) -> None:
        self._axis = axis
        self._number = max(expr.placeholders(), default=0) + 1
        # bounded, so that rows of -inf (or with inf) do not become inf - inf
        self._max = TiledAggregate(expr, "max", axis)
        shifted = FUNCTIONS["exp"](expr - Placeholder(self._number))
        self._sum = TiledAggregate(shifted, "sum", axis)

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: float, beta: float
    ) -> Callable[[], float | None]:
        operands, axes, full = prepare(ins, self._axis)
        reduced = range(len(full)) if self._axis is None else axes
        shape = tuple(1 if i in reduced else n for i, n in enumerate(full))
        dtype = np.float64 if any(getattr(o, "dtype", 0) == np.float64 for o in ins) else np.float32
        top, total = np.empty(shape, dtype), np.empty(shape, np.float64)
        unused = [0.0] * (self._number - 1 - len(operands))
        whole = [with_axes(o, len(full)) if isinstance(o, np.ndarray) else o for o in ins]
        if self._axis is None:
            find_max = self._max(None, ins, 1.0, 0.0)
            find_sum = self._sum(None, [*whole, *unused, top], 1.0, 0.0)
        else:
            find_max = self._max(top, ins, 1.0, 0.0)
            find_sum = self._sum(total, [*whole, *unused, top], 1.0, 0.0)
        target = None if out is None else target_of(out, shape, axes[0])

        def run() -> float | None:
            largest = find_max()
            if largest is not None:
                top.fill(largest)
            np.clip(top, np.finfo(dtype).min, np.finfo(dtype).max, out=top)
            if (value := find_sum()) is not None:
                total.fill(value)
            with np.errstate(divide="ignore"):
                np.add(np.log(total, out=total), top, out=total)
            if target is None:
                return alpha * float(total.reshape(())[()])
            store(target, total, alpha, beta)
            return None

        return run


class _Folded:
    """Combines neighbours, then neighbours of these: rounding grows with the logarithm of a line.

    The elements' values are kept until then, so it needs memory for them.
    """

    def __init__(self, expr: Expr, fold: Fold, axis: int | None) -> None:
        self._expr, self._fold, self._axis = expr, fold, axis
        self._compute = element(_moved(expr))
        self._combine = element(_moved(fold.combine))
        self._finish = element(_moved(fold.finish))

    def __call__(
        self, out: np.ndarray | None, ins: Sequence[Any], alpha: Any, beta: float
    ) -> Callable[[], float | None]:
        _, axes, full = prepare(ins, self._axis)
        full = full or (1,)
        lines = full if self._axis is not None else (int(np.prod(full)),)
        axis = axes[0] if self._axis is not None else 0
        if lines[axis] == 0 and self._fold.start is None:
            raise ProgramError(f"fold of nothing: operands have shape {full}")
        values = np.empty(full, self._dtype(out, ins))
        ops = [_bound(self._compute, values, *ins)] if values.size else []
        ops += self._combinations(np.moveaxis(values.reshape(lines), axis, 0))
        ahead = np.moveaxis(values.reshape(lines), axis, 0)[:1]
        result = np.empty((1, *ahead.shape[1:]), values.dtype)
        if len(ahead):
            ops.append(_bound(self._finish, result, ahead))
        else:
            result.fill(self._fold.start or 0.0)
        given = np.moveaxis(result, 0, axis)
        target = None if out is None else target_of(out, given.shape, axis)

        def run() -> float | None:
            for op in ops:
                op()
            factor = alpha.value() if is_number(alpha) else alpha
            if target is None:
                return factor * float(given.reshape(())[()])
            store(target, given, factor, beta)
            return None

        return run

    def _dtype(self, out: np.ndarray | None, ins: Sequence[Any]) -> Any:
        types = {i + 1: t for i, t in enumerate(operand_types(ins))}
        narrow = self._expr.type(types) in (Type.FLOAT32, Type.FLOAT16)
        return np.float32 if narrow and (out is None or out.dtype != np.float64) else np.float64

    def _combinations(self, values: np.ndarray) -> list[Callable[[], None]]:
        """The calls after which place 0 along the first axis holds all places combined."""
        ops, step = [], 1
        while step < len(values):
            later = values[step :: 2 * step]
            earlier = values[:: 2 * step][: len(later)]
            if later.size:
                ops.append(_bound(self._combine, earlier, earlier, later))
            step *= 2
        return ops


def _bound(op: Element, *operands: Any) -> Callable[[], None]:
    """A formula bound to operands, of which it may not use the last ones."""
    return op.bind(*operands[: op.assignments.num_operands()])


def _moved(expr: Expr) -> Expr:
    """Over the placeholders from `_2` on."""
    numbers = expr.placeholders()
    return expr.substitute({Placeholder(n): Placeholder(n + 1) for n in numbers})


def _lower(expr: Expr, reduce: Reduction, axis: int | None) -> Callable[..., Callable[[], Any]]:
    if isinstance(reduce, Fold):
        return _Folded(expr, reduce, axis)
    if reduce == "logsumexp":
        return _LogSumExp(expr, axis)
    return TiledAggregate(expr, reduce, axis)


AGGREGATE_BACKENDS["numpy"] = _lower

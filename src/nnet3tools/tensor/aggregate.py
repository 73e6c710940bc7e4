"""Aggregate: a formula applied elementwise and reduced along an axis, in one pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.element import Formula
from nnet3tools.tensor.formulas import Expr, parse

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")


class Aggregate(Formula):
    """Operator that computes out = beta * out + alpha * reduction of a formula along an axis.

    The operands of a call are out, then the formula's inputs `_1`, `_2`, ... `reduce` is a name of
    REDUCTIONS, such as "sum". For inputs (N, D), axis 0 gives an output (D,), axis 1 gives (N,) or
    (N, 1). If axis is None, there is no out, and a call returns a float.
    """

    kind = "aggregate"

    def __init__(self, formula: str | Expr, reduce: str = "sum", axis: int | None = 0) -> None:
        if reduce not in REDUCTIONS:
            raise ProgramError(f"unknown reduction '{reduce}', known: {', '.join(REDUCTIONS)}")
        super().__init__()
        self.formula, self.reduce, self.axis = formula, reduce, axis

    @property
    def gives_number(self) -> bool:
        """Whether a call returns a number (a float, or a Number in memory) and has no output."""
        return self.axis is None

    @functools.cached_property
    def expr(self) -> Expr:
        """The formula as an expression tree; formula text is parsed at the first access."""
        return parse(self.formula) if isinstance(self.formula, str) else self.formula

    def bind(
        self, *operands: Any, alpha: float = 1.0, beta: float = 0.0
    ) -> Callable[[], float | None]:
        """A callable that computes out = beta * out + alpha * reduction, for these operands.

        The operands are out, then the inputs of the formula. If axis is None, they are only
        the inputs, and the callable returns the number alpha * reduction.
        """
        out, ins = (None, operands) if self.axis is None else (operands[0], operands[1:])
        first = next((a for a in operands if hasattr(a, "dtype")), None)
        if (found := self._binders.get(type(first).__module__)) is None:
            if max(self.expr.placeholders(), default=0) > len(ins):
                raise ProgramError(f"{self!r} was given {len(ins)} inputs")
            found = self._binder(first, self.expr, self.reduce, self.axis)
        return found(out, ins, alpha, beta)

    def __call__(self, *operands: Any, alpha: float = 1.0, beta: float = 0.0) -> float | None:
        options = {"alpha": alpha, "beta": beta}
        return cast(float | None, recording.dispatch(self, operands, options))

    def __repr__(self) -> str:
        return f"aggregate({self.formula!r}, {self.reduce!r}, axis={self.axis})"


aggregate = Aggregate
"""The name by which code makes operators that reduce."""

"""Aggregate: a formula applied elementwise and reduced along an axis, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.element import Formula
from nnet3tools.tensor.formulas import Expr, parse

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")


class Aggregate(Formula):
    """The operator out = beta * out + alpha * reduce(formula of the inputs `_1`, `_2`, ...)."""

    kind = "aggregate"

    def __init__(self, formula: str | Expr, reduce: str, axis: int | None) -> None:
        if reduce not in REDUCTIONS:
            raise ProgramError(f"unknown reduction '{reduce}', known: {', '.join(REDUCTIONS)}")
        super().__init__()
        self.formula, self.reduce, self.axis = formula, reduce, axis
        self._expr: Expr | None = None

    @property
    def gives_number(self) -> bool:
        """Whether calls return a float, or a Number while work is recorded."""
        return self.axis is None

    @property
    def expr(self) -> Expr:
        """The expression of the formula; formula text is parsed when it is first needed."""
        if self._expr is None:
            self._expr = parse(self.formula) if isinstance(self.formula, str) else self.formula
        return self._expr

    def bind(
        self, *operands: Any, alpha: float = 1.0, beta: float = 0.0
    ) -> Callable[[], float | None]:
        """A callable that reduces these operands: `(out, *ins)`, or `(*ins)` if axis is None.

        If axis is None, the callable returns a float.
        """
        out, ins = (None, operands) if self.axis is None else (operands[0], operands[1:])
        first = next((a for a in operands if hasattr(a, "dtype")), None)
        found = self._binders.get(type(first).__module__)
        if found is None:
            if max(self.expr.placeholders(), default=0) > len(ins):
                raise ProgramError(f"{self!r} was given {len(ins)} inputs")
            found = self._binder(first, self.expr, self.reduce, self.axis)
        return found(out, ins, alpha, beta)

    def __call__(self, *operands: Any, alpha: float = 1.0, beta: float = 0.0) -> float | None:
        options = {"alpha": alpha, "beta": beta}
        return cast(float | None, recording.dispatch(self, self._run_now, operands, options))

    def _run_now(self, *operands: Any, **options: float) -> float | None:
        return self.bind(*operands, **options)()

    def __repr__(self) -> str:
        return f"aggregate({self.formula!r}, {self.reduce!r}, axis={self.axis})"


def aggregate(formula: str | Expr, reduce: str = "sum", axis: int | None = 0) -> Aggregate:
    """An operator that reduces: axis 0 gives (D,), axis 1 (N,) or (N, 1), axis None a float.

    `reduce` is a name of REDUCTIONS.
    """
    return Aggregate(formula, reduce, axis)

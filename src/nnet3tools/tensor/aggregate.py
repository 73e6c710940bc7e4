"""Aggregate: a formula applied elementwise and reduced along an axis, in one pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.functional import Expr, parse
from nnet3tools.tensor.registry import UnsupportedOperator, device_of, load_device

__all__ = ["REDUCTIONS", "Aggregate", "aggregate"]

REDUCTIONS = ("sum", "mean", "max", "min", "prod", "logsumexp")

AGGREGATE_BACKENDS: dict[str, Callable[[Expr, str, int | None], Callable[..., Any]]] = {}
"""Device -> function of expression, reduction, axis; it makes a binder (out, ins, alpha, beta)."""


class Aggregate:
    """out = beta * out + alpha * reduce(formula of the inputs `_1`, `_2`, ...)."""

    takes_numbers = True
    """Whether what it is bound to may be a Number on the host."""

    def __init__(self, formula: str | Expr, reduce: str, axis: int | None) -> None:
        if reduce not in REDUCTIONS:
            raise ProgramError(f"unknown reduction '{reduce}', known: {', '.join(REDUCTIONS)}")
        self.formula, self.reduce, self.axis = formula, reduce, axis
        self._expr: Expr | None = None
        self._lowered: dict[str, Callable[..., Any]] = {}

    @property
    def expr(self) -> Expr:
        """The expression; formula text is read when first asked for."""
        if self._expr is None:
            self._expr = parse(self.formula) if isinstance(self.formula, str) else self.formula
        return self._expr

    def bind(
        self, *operands: Any, alpha: float = 1.0, beta: float = 0.0
    ) -> Callable[[], float | None]:
        """Lower for `(out, *ins)`, or with axis None for `(*ins)`; the result runs it.

        With axis None the callable returns a float and there is no `out`.
        """
        out, ins = (None, operands) if self.axis is None else (operands[0], operands[1:])
        first = next((a for a in operands if hasattr(a, "dtype")), None)
        found = self._lowered.get(type(first).__module__)
        if found is None:
            device = device_of(first)
            if not load_device(device) or device not in AGGREGATE_BACKENDS:
                raise UnsupportedOperator("aggregate", str(getattr(first, "dtype", "?")), device)
            if max(self.expr.placeholders(), default=0) > len(ins):
                raise ProgramError(f"{self!r} was given {len(ins)} inputs")
            found = AGGREGATE_BACKENDS[device](self.expr, self.reduce, self.axis)
            self._lowered[type(first).__module__] = found
        return found(out, ins, alpha, beta)

    def __call__(self, *operands: Any, alpha: float = 1.0, beta: float = 0.0) -> float | None:
        if recording.taking is not None:
            options = {"alpha": alpha, "beta": beta}
            return cast(float | None, recording.taking.call(self, operands, options))
        return self.bind(*operands, alpha=alpha, beta=beta)()

    @property
    def name(self) -> str:
        """The formula, as it stands in recordings."""
        return repr(self)

    def __repr__(self) -> str:
        return f"aggregate({self.formula!r}, {self.reduce!r}, axis={self.axis})"


def aggregate(formula: str | Expr, reduce: str = "sum", axis: int | None = 0) -> Aggregate:
    """A reducing operator: axis 0 gives (D,), axis 1 (N,) or (N, 1), None a float."""
    return Aggregate(formula, reduce, axis)

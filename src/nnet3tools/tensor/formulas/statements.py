"""Assignments of expressions to placeholders."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.formulas.expr import Apply, Expr, Function, Operand, Placeholder, as_expr
from nnet3tools.tensor.formulas.functions import COLUMN_REDUCTIONS, ROW_REDUCTIONS


@dataclass(frozen=True)
class Assignments:
    """Values to assign to placeholders, as expressions of the operands' old contents."""

    items: tuple[tuple[Placeholder, Expr], ...]

    @functools.cached_property
    def targets(self) -> list[int]:
        """The numbers of the assigned placeholders, in order."""
        return [operand.number for operand, _ in self.items]

    def values(self) -> dict[Expr, Expr]:
        """The new value of each assigned placeholder."""
        return dict(self.items)

    def then(self, later: Assignments) -> Assignments:
        """These assignments, then `later` ones, which replace values of the same placeholders."""
        return Assignments(tuple((self.values() | later.values()).items()))  # type: ignore[arg-type]

    def num_operands(self) -> int:
        """The highest placeholder number: the number of operands that an operator needs."""
        used = [n for _, value in self.items for n in value.placeholders()]
        return max([*used, *self.targets])

    @functools.cached_property
    def reduces_rows(self) -> bool:
        """Whether a value contains a row reduction, so that a row cannot be divided into parts."""
        return self._applies(ROW_REDUCTIONS)

    @functools.cached_property
    def reduces_columns(self) -> bool:
        """Whether a value contains a column reduction, which needs all rows before it is known."""
        return self._applies(COLUMN_REDUCTIONS)

    def _applies(self, functions: Mapping[str, Function]) -> bool:
        nodes = (node for _, value in self.items for node in value.walk())
        return any(isinstance(n, Apply) and n.function.name in functions for n in nodes)

    def text(self) -> str:
        """The assignments as formula text."""
        return "; ".join(f"{target.text()} = {value.text()}" for target, value in self.items)


def assign(target: Placeholder, value: Operand) -> Assignments:
    """Assignments with the single assignment `target = value`."""
    return Assignments(((target, as_expr(value)),))

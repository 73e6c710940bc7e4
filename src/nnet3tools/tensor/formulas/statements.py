"""Assignments of expressions to placeholders: what an Element does."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from nnet3tools.tensor.formulas.expr import Apply, Expr, Function, Operand, Placeholder, as_expr
from nnet3tools.tensor.formulas.functions import COLUMN_REDUCTIONS, ROW_REDUCTIONS

__all__ = ["Assignments", "assign"]


@dataclass(frozen=True)
class Assignments:
    """Placeholders and their new values, all in terms of the operands' old contents."""

    items: tuple[tuple[Placeholder, Expr], ...]

    @functools.cached_property
    def targets(self) -> list[int]:
        """Numbers of the placeholders that are overwritten, in order."""
        return [operand.number for operand, _ in self.items]

    def values(self) -> dict[Expr, Expr]:
        """New value of each assigned placeholder."""
        return dict(self.items)

    def then(self, later: Assignments) -> Assignments:
        """Both, the later one winning where both assign."""
        return Assignments(tuple((self.values() | later.values()).items()))  # type: ignore[arg-type]

    def num_operands(self) -> int:
        """The highest placeholder number that occurs."""
        used = [n for _, value in self.items for n in value.placeholders()]
        return max([*used, *self.targets])

    @functools.cached_property
    def reduces_rows(self) -> bool:
        """Whether some value is of a whole row, so that rows must not be cut."""
        return self._applies(ROW_REDUCTIONS)

    @functools.cached_property
    def reduces_columns(self) -> bool:
        """Whether some value is of a whole column, so that all rows must be read for it."""
        return self._applies(COLUMN_REDUCTIONS)

    def _applies(self, functions: Mapping[str, Function]) -> bool:
        nodes = (node for _, value in self.items for node in value.walk())
        return any(isinstance(n, Apply) and n.function.name in functions for n in nodes)

    def text(self) -> str:
        """Formula text that reads back to equal assignments (of old contents)."""
        return "; ".join(f"{target.text()} = {value.text()}" for target, value in self.items)

    @property
    def digest(self) -> str:
        """A stable hash of the content."""
        import hashlib  # 2 ms, for OpenSSL

        return hashlib.sha1(self.text().encode()).hexdigest()

    def __and__(self, other: Assignments) -> Assignments:
        """Both at once: the other's values are of the old contents too."""
        return self.then(other)


def assign(target: Placeholder, value: Operand) -> Assignments:
    """The Python form of `target = value`."""
    return Assignments(((target, as_expr(value)),))

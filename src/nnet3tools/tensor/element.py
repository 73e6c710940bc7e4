"""Element: one formula applied elementwise over any number of broadcast operands.

A new elementwise function needs no code in a backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, cast

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.formulas import Assignments, Expr, Placeholder, assign, parse_statements
from nnet3tools.tensor.registry import UnsupportedOperator, device_of, load_device

FORMULA_BACKENDS: dict[tuple[str, str], Callable[..., Callable[..., Any]]] = {}
"""("element" or "aggregate", device) -> function of a formula; it gives a binder of operands."""


class Formula:
    """Base of Element and Aggregate: a formula as an operator of all devices."""

    kind: ClassVar[str]
    """The first part of the keys of FORMULA_BACKENDS."""
    takes_numbers = True
    """Whether operands may be Numbers on the host."""
    compiled_when_live = True
    """Whether live calls use compiled kernels if they can."""

    def __init__(self) -> None:
        self._binders: dict[str, Callable[..., Any]] = {}
        """Module of an array's class -> binder."""

    def _binder(self, array: Any, *formula: Any) -> Callable[..., Any]:
        """A function (operands) -> callable that computes this formula on the device of `array`.

        `formula` are the arguments that FORMULA_BACKENDS' function for the device takes.
        """
        device = device_of(array)
        if not load_device(device) or (self.kind, device) not in FORMULA_BACKENDS:
            raise UnsupportedOperator(self.kind, str(array.dtype), device)
        made = FORMULA_BACKENDS[self.kind, device](*formula)
        return self._binders.setdefault(type(array).__module__, made)

    @property
    def name(self) -> str:
        """The text of the formula, which is shown where recorded calls are printed."""
        return repr(self)


class Element(Formula):
    """A formula as an operator: `op(out, *ins)`, or `op.bind(out, *ins)` once and call the result.

    `formula` is text, assignments, or an expression to assign to `_1`. Assigned operands have the
    full (broadcast) shape. Other operands are arrays that broadcast to it, or plain numbers, which
    take the arrays' type. `operands` are the names by which formula text calls its operands,
    separated by spaces, in the order of a call, such as "out x"; "" if it calls them _1, _2, ...

    A formula may reduce rows (`row_sum(x)`) along the last axis; an operand that is assigned
    such a value may have one column. It may reduce columns (`col_sum(x)`) along all other axes;
    an operand that is assigned such a value may have one row.
    """

    kind = "element"
    gives_number = False

    def __init__(self, formula: str | Expr | Assignments, operands: str = "") -> None:
        super().__init__()
        self.formula, self.operands = formula, operands.split()

    @functools.cached_property
    def assignments(self) -> Assignments:
        """The assignments of the formula; formula text is parsed at the first use."""
        if isinstance(self.formula, str):
            names = {n: Placeholder(i) for i, n in enumerate(self.operands, 1)}
            return parse_statements(self.formula, names)
        if isinstance(self.formula, Expr):
            return assign(Placeholder(1), self.formula)
        return self.formula

    def bind(self, *operands: Any) -> Callable[[], None]:
        """A callable that computes the formula; it keeps arrays by reference, numbers by value."""
        if (found := self._binders.get(type(operands[0]).__module__)) is None:
            needed = len(self.operands) or self.assignments.num_operands()
            if needed != len(operands):
                text = self.assignments.text()
                raise ProgramError(f"element({text}) takes {needed} operands, not {len(operands)}")
            found = self._binder(operands[0], self.assignments)
        return cast("Callable[[], None]", found(*operands))

    def __call__(self, *operands: Any) -> None:
        recording.dispatch(self, operands, {})

    def __repr__(self) -> str:
        return f"element({self.formula!r})"


element = Element
"""The name by which code makes operators of formulas."""

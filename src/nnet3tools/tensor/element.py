"""Element: one formula applied elementwise over any number of broadcast operands.

A new elementwise function needs no code in a backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nnet3tools.errors import ProgramError
from nnet3tools.tensor import recording
from nnet3tools.tensor.formulas import Assignments, Expr, Placeholder, assign, parse_statements
from nnet3tools.tensor.registry import UnsupportedOperator, device_of, load_device

ELEMENT_BACKENDS: dict[str, Callable[[Assignments], Callable[..., Callable[[], None]]]] = {}
"""Device -> function of assignments that returns a function which binds operands."""


class Element:
    """A formula as an operator: `op(out, *ins)`, or `op.bind(out, *ins)` once and call the result.

    Assigned operands have the full (broadcast) shape. Other operands are arrays that broadcast to
    it, or plain numbers, which take the arrays' type. `operands` are names of the operands for
    formula text, in the order of the call.

    A formula may reduce rows (`row_sum(x)`) along the last axis; an operand that is assigned such
    a value may have one column. It may reduce columns (`col_sum(x)`) along all other axes; an
    operand that is assigned such a value may have one row.
    """

    takes_numbers = True
    """Whether operands may be Numbers on the host."""

    gives_number = False
    is_formulas = True

    def __init__(self, formula: str | Expr | Assignments, operands: str = "") -> None:
        self.formula, self.operands = formula, operands.split()
        self._assignments: Assignments | None = None
        self._lowered: dict[str, Callable[..., Callable[[], None]]] = {}

    @property
    def assignments(self) -> Assignments:
        """The assignments of the formula; formula text is parsed at the first use."""
        if self._assignments is None:
            if isinstance(self.formula, str):
                names = {n: Placeholder(i) for i, n in enumerate(self.operands, 1)}
                self._assignments = parse_statements(self.formula, names)
            elif isinstance(self.formula, Expr):
                self._assignments = assign(Placeholder(1), self.formula)
            else:
                self._assignments = self.formula
        return self._assignments

    def bind(self, *operands: Any) -> Callable[[], None]:
        """A callable that computes the formula's assignments for these operands.

        It keeps arrays by reference and numbers by value.
        """
        found = self._lowered.get(type(operands[0]).__module__)
        if found is None:
            found = self._lower(operands)
        return found(*operands)

    def _lower(self, operands: tuple[Any, ...]) -> Callable[..., Callable[[], None]]:
        device = device_of(operands[0])
        if not load_device(device) or device not in ELEMENT_BACKENDS:
            raise UnsupportedOperator("element", str(operands[0].dtype), device)
        needed = len(self.operands) or self.assignments.num_operands()
        if needed != len(operands):
            raise ProgramError(
                f"element({self.assignments.text()}) takes {needed} operands, not {len(operands)}"
            )
        found = ELEMENT_BACKENDS[device](self.assignments)
        self._lowered[type(operands[0]).__module__] = found
        return found

    def __call__(self, *operands: Any) -> None:
        recording.dispatch(self, self._run_now, operands, {})

    def _run_now(self, *operands: Any) -> None:
        self.bind(*operands)()

    @property
    def name(self) -> str:
        """The formula, for printed recordings."""
        return repr(self)

    def __repr__(self) -> str:
        return f"element({self.formula!r})"


def element(formula: str | Expr | Assignments, operands: str = "") -> Element:
    """An elementwise operator of formula text, assignments, or an expression to assign to `_1`."""
    return Element(formula, operands)

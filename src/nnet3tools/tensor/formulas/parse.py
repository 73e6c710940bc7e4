"""Formula text to expressions and assignments, with errors that mark the column.

A formula is `expression`, or statements separated by `;`: assignments to placeholders (`_1 = ...`,
`_1 += ...`, also -= *= /=) and to local names (`gate = sigmoid(_2)`), each seeing those before it.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnet3tools.tensor.formulas.expr import Expr, Placeholder
from nnet3tools.tensor.formulas.formula_error import FormulaError
from nnet3tools.tensor.formulas.functions import FUNCTIONS
from nnet3tools.tensor.formulas.statements import Assignments, assign

__all__ = ["parse", "parse_statements"]

_ASSIGNS = {"+=": "add", "-=": "sub", "*=": "mul", "/=": "div"}


def parse(text: str, names: Mapping[str, Expr] | None = None) -> Expr:
    """Read an expression; `names` gives meaning to identifiers such as `x`.

    Raises FormulaError, which marks the column, for anything that is not a formula.
    """
    # Here, as many programs read no formula.
    from nnet3tools.tensor.formulas.reader import read_expression

    return read_expression(text)(names or {})


def parse_statements(text: str, names: Mapping[str, Expr] | None = None) -> Assignments:
    """Read assignments separated by `;`; at least one placeholder must be assigned."""
    from nnet3tools.tensor.formulas.reader import read_statements

    known = dict(names or {})
    done = Assignments(())
    for position, name, symbol, build in read_statements(text):
        value = build(known).substitute(done.values())
        target = known.get(name) if name in known else None
        is_operand = (name[0] == "_" and name[1:].isdigit()) or isinstance(target, Placeholder)
        if is_operand:
            operand = target if isinstance(target, Placeholder) else Placeholder(int(name[1:]))
            if symbol != "=":
                old = done.values().get(operand, operand)
                value = FUNCTIONS[_ASSIGNS[symbol]](old, value)
            done = done.then(assign(operand, value))
        elif symbol != "=":
            raise FormulaError(f"'{name}' has no value to change", text, position)
        else:
            known[name] = value
    if not done.targets:
        raise FormulaError("no placeholder is assigned", text, 0)
    return done

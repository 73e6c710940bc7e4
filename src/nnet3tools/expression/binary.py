"""Elementwise nodes of two or three operands: value and derivatives of each kind together."""

from __future__ import annotations

from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.node import Expr, Operand

__all__: list[str] = []


def _is_number(operand: Operand, number: float) -> bool:
    return isinstance(operand, (int, float)) and operand == number


def _float(operand: Operand) -> Expr | None:
    """The operand, if it is a node whose type arithmetic with numbers does not change."""
    return operand if isinstance(operand, Expr) and operand.type.is_float else None


class Add(Elementwise):
    """a + b."""

    type_name, formula, derivatives = "add", "a + b", ("adj", "adj")

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        a, b = operands
        return _float(a) if _is_number(b, 0) else _float(b) if _is_number(a, 0) else None


class Sub(Elementwise):
    """a - b."""

    type_name, formula, derivatives = "sub", "a - b", ("adj", "-adj")

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        return _float(operands[0]) if _is_number(operands[1], 0) else None


class Mul(Elementwise):
    """a b."""

    type_name, formula, derivatives = "mul", "a * b", ("adj * b", "adj * a")

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        a, b = operands
        return _float(a) if _is_number(b, 1) else _float(b) if _is_number(a, 1) else None


class Div(Elementwise):
    """a / b."""

    type_name, formula, derivatives = "div", "a / b", ("adj / b", "-adj * a / sqr(b)")

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        return _float(operands[0]) if _is_number(operands[1], 1) else None


class Pow(Elementwise):
    """a to the power b."""

    type_name, formula = "pow", "a ** b"
    # the logarithm only where a > 0, lest a power of a negative number give nan
    derivatives = (
        "adj * b * a ** (b - 1)",
        "where(a > 0, adj * a ** b * log(where(a > 0, a, 1)), 0)",
    )

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        return _float(operands[0]) if _is_number(operands[1], 1) else None


class Maximum(Elementwise):
    """The larger; where both are equal, a has the gradient."""

    type_name, formula = "max", "max(a, b)"
    derivatives = ("where(a >= b, adj, 0)", "where(a < b, adj, 0)")


class Minimum(Elementwise):
    """The smaller; where both are equal, a has the gradient."""

    type_name, formula = "min", "min(a, b)"
    derivatives = ("where(a <= b, adj, 0)", "where(a > b, adj, 0)")


class LogAddExp(Elementwise):
    """log(exp(a) + exp(b))."""

    type_name, formula = "logaddexp", "logaddexp(a, b)"
    derivatives = ("adj * sigmoid(a - b)", "adj * sigmoid(b - a)")


class PRelu(Elementwise):
    """a where a > 0, else a b."""

    type_name, formula = "prelu", "prelu(a, b)"
    derivatives = ("adj * where(a > 0, 1.0, b)", "adj * min(a, 0)")


class PReluBack(Elementwise):
    """1 where a > 0, else b."""

    type_name, formula = "prelu_back", "prelu_back(a, b)"
    derivatives = ("0", "where(a > 0, 0, adj)")


class Bump(Elementwise):
    """1 where |a| <= b, else 0."""

    type_name, formula, derivatives = "bump", "bump(a, b)", ("0", "0")


class Less(Elementwise):
    """Whether a < b."""

    type_name, formula, derivatives = "lt", "a < b", ("0", "0")


class LessEqual(Elementwise):
    """Whether a <= b."""

    type_name, formula, derivatives = "le", "a <= b", ("0", "0")


class Greater(Elementwise):
    """Whether a > b."""

    type_name, formula, derivatives = "gt", "a > b", ("0", "0")


class GreaterEqual(Elementwise):
    """Whether a >= b."""

    type_name, formula, derivatives = "ge", "a >= b", ("0", "0")


class Equal(Elementwise):
    """Whether a == b."""

    type_name, formula, derivatives = "eq", "a == b", ("0", "0")


class NotEqual(Elementwise):
    """Whether a != b."""

    type_name, formula, derivatives = "ne", "a != b", ("0", "0")


class And(Elementwise):
    """Whether both are non-zero."""

    type_name, formula, derivatives = "and", "a && b", ("0", "0")


class Or(Elementwise):
    """Whether either is non-zero."""

    type_name, formula, derivatives = "or", "a || b", ("0", "0")


class Where(Elementwise):
    """b where a is non-zero, else c."""

    type_name, formula = "where", "where(a, b, c)"
    derivatives = ("0", "where(a, adj, 0)", "where(a, 0, adj)")


class Clip(Elementwise):
    """a limited to [b, c]."""

    type_name, formula = "clip", "clip(a, b, c)"
    derivatives = (
        "where((a >= b) & (a <= c), adj, 0)",
        "where(a < b, adj, 0)",
        "where(a > c, adj, 0)",
    )


class Highway(Elementwise):
    """a where the gate is open, b where it is closed; c is the gate before its sigmoid."""

    type_name, formula = "highway", "sigmoid(c) * a + (1 - sigmoid(c)) * b"
    derivatives = (
        "adj * sigmoid(c)",
        "adj * (1 - sigmoid(c))",
        "adj * (a - b) * sigmoid(c) * (1 - sigmoid(c))",
    )

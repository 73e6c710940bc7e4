"""Elementwise nodes of one operand: value and derivative of each kind together."""

from __future__ import annotations

from typing import Any

from nnet3tools.expression.elementwise import Elementwise
from nnet3tools.expression.node import Expr, NodeOp, Operand
from nnet3tools.tensor.functional import Expr as Formula
from nnet3tools.tensor.functional import Type, cast

__all__ = ["Cast"]


class Neg(Elementwise):
    """-a."""

    type_name, formula, derivatives = "neg", "-a", ("-adj",)

    @classmethod
    def trivial(cls, *operands: Operand) -> Expr | None:
        a = operands[0]
        return a.children[0] if isinstance(a, Neg) else None


class Abs(Elementwise):
    """|a|."""

    type_name, formula, derivatives = "abs", "abs(a)", ("adj * sgn(a)",)


class Sgn(Elementwise):
    """-1, 0 or 1."""

    type_name, formula, derivatives = "sgn", "sgn(a)", ("0",)


class Square(Elementwise):
    """a * a."""

    type_name, formula, derivatives = "sqr", "sqr(a)", ("2 * adj * a",)


class Sqrt(Elementwise):
    """Square root."""

    type_name, formula, derivatives = "sqrt", "sqrt(a)", ("0.5 * adj / value",)


class Exp(Elementwise):
    """e to the power a."""

    type_name, formula, derivatives = "exp", "exp(a)", ("adj * value",)


class Log(Elementwise):
    """Natural logarithm."""

    type_name, formula, derivatives = "log", "log(a)", ("adj / a",)


class Sin(Elementwise):
    """Sine."""

    type_name, formula, derivatives = "sin", "sin(a)", ("adj * cos(a)",)


class Cos(Elementwise):
    """Cosine."""

    type_name, formula, derivatives = "cos", "cos(a)", ("-adj * sin(a)",)


class Tan(Elementwise):
    """Tangent."""

    type_name, formula, derivatives = "tan", "tan(a)", ("adj * (1 + sqr(value))",)


class Tanh(Elementwise):
    """Hyperbolic tangent."""

    type_name, formula, derivatives = "tanh", "tanh(a)", ("adj * (1 - sqr(value))",)


class Erf(Elementwise):
    """Error function."""

    type_name, formula = "erf", "erf(a)"
    derivatives = ("adj * 1.1283791670955126 * exp(-sqr(a))",)


class Round(Elementwise):
    """To the nearest integer, halves to the even one."""

    type_name, formula, derivatives = "round", "round(a)", ("0",)


class Floor(Elementwise):
    """The integer not above."""

    type_name, formula, derivatives = "floor", "floor(a)", ("0",)


class Ceil(Elementwise):
    """The integer not below."""

    type_name, formula, derivatives = "ceil", "ceil(a)", ("0",)


class Not(Elementwise):
    """Whether a is zero."""

    type_name, formula, derivatives = "not", "!a", ("0",)


class Sigmoid(Elementwise):
    """1 / (1 + exp(-a))."""

    type_name, formula = "sigmoid", "sigmoid(a)"
    derivatives = ("adj * value * (1 - value)",)


class Softplus(Elementwise):
    """log(1 + exp(a))."""

    type_name, formula, derivatives = "softplus", "softplus(a)", ("adj * sigmoid(a)",)


class Relu(Elementwise):
    """max(a, 0); the value tells as well as the operand where it was positive."""

    type_name, formula, derivatives = "relu", "relu(a)", ("where(value > 0, adj, 0)",)


class LeakyRelu(Elementwise):
    """a where a > 0, else 0.01 a."""

    type_name, formula = "leaky_relu", "leaky_relu(a)"
    derivatives = ("adj * leaky_relu_back(a)",)


class ReluBack(Elementwise):
    """1 where a > 0, else 0."""

    type_name, formula, derivatives = "relu_back", "relu_back(a)", ("0",)


class LeakyReluBack(Elementwise):
    """1 where a > 0, else 0.01."""

    type_name, formula, derivatives = "leaky_relu_back", "leaky_relu_back(a)", ("0",)


class Gelu(Elementwise):
    """a Phi(a), Phi the normal distribution function (Hendrycks and Gimpel 2016)."""

    type_name, formula = "gelu", "gelu(a)"
    derivatives = (
        "adj * (0.5 * (1 + erf(a * 0.7071067811865476))"
        " + a * 0.3989422804014327 * exp(-0.5 * sqr(a)))",
    )


class Swish(Elementwise):
    """a sigmoid(a) (Ramachandran et al. 2017)."""

    type_name, formula = "swish", "swish(a)"
    derivatives = ("adj * (value + sigmoid(a) * (1 - value))",)


class Cast(Elementwise):
    """a as another element type."""

    type_name, formula, derivatives = "cast", "a", ("adj",)

    def __init__(self, a: Expr, to: Type) -> None:
        self.to = to
        super().__init__(a)

    def _type(self, operands: Any) -> Type:
        return self.to

    def content(self) -> tuple:
        return (self.to,)

    def as_formula(self, arguments: Any) -> Formula:
        return cast(arguments[0], self.to)

    def forward_ops(self) -> list[NodeOp]:
        from nnet3tools import tensor

        return [tensor.copy.bind(self.value, self.children[0].value)]

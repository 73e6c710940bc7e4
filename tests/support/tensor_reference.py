"""What tests of tensor/ compare with: expressions evaluated plainly in float64, and random ones."""

import math

import numpy as np

from nnet3tools.tensor import formulas as F
from nnet3tools.tensor.formulas import Apply, Cast, Constant, Placeholder

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), 1 - 1 / (1 + np.exp(-np.abs(x))))


def _truth(function):
    return lambda *a: function(*[np.asarray(v) != 0 for v in a])


PLAIN = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "neg": lambda a: -a,
    "abs": np.abs,
    "sgn": np.sign,
    "sqr": lambda a: a * a,
    "max": np.maximum,
    "min": np.minimum,
    "round": np.round,
    "floor": np.floor,
    "ceil": np.ceil,
    "lt": lambda a, b: 1.0 * (a < b),
    "le": lambda a, b: 1.0 * (a <= b),
    "gt": lambda a, b: 1.0 * (a > b),
    "ge": lambda a, b: 1.0 * (a >= b),
    "eq": lambda a, b: 1.0 * (a == b),
    "ne": lambda a, b: 1.0 * (a != b),
    "and": _truth(lambda a, b: 1.0 * (a & b)),
    "or": _truth(lambda a, b: 1.0 * (a | b)),
    "not": _truth(lambda a: 1.0 * ~a),
    "where": lambda c, a, b: np.where(np.asarray(c) != 0, a, b),
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "erf": _erf,
    "pow": np.power,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "bump": lambda x, a: 1.0 * (np.abs(x) <= a),
    "sigmoid": _sigmoid,
    "logaddexp": np.logaddexp,
    "softplus": lambda x: np.logaddexp(x, 0.0),
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "relu_back": lambda x: 1.0 * (x > 0),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "leaky_relu_back": lambda x: np.where(x > 0, 1.0, 0.01),
    "prelu": lambda x, a: np.where(x > 0, x, a * x),
    "prelu_back": lambda x, a: np.where(x > 0, 1.0, a),
    "gelu": lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
    "swish": lambda x: x * _sigmoid(x),
    "highway": lambda a, b, t: b + (a - b) * _sigmoid(t),
}
"""Every function of the table, written out independently, on float64."""


def evaluate(expr, operands):
    """The value of an expression on whole arrays, everything in float64."""
    done = {}
    with np.errstate(all="ignore"):
        for node in expr.walk():
            if isinstance(node, Placeholder):
                done[node] = np.asarray(operands[node.number - 1], np.float64)
            elif isinstance(node, Constant):
                done[node] = np.float64(node.value)
            elif isinstance(node, Cast):
                done[node] = np.asarray(done[node.arguments[0]]).astype(node.to.value)
                done[node] = done[node].astype(np.float64)
            elif isinstance(node, Apply):
                done[node] = PLAIN[node.function.name](*[done[a] for a in node.arguments])
    return np.asarray(done[expr], np.float64)


SMOOTH = ("add", "sub", "mul", "tanh", "sin", "cos", "sigmoid", "swish", "gelu", "softplus", "sqr")
ROUGH = ("max", "min", "abs", "relu", "where", "lt", "ge", "and", "not", "clip", "prelu", "erf")


def random_expression(rng, depth, smooth=False, num_operands=3):
    """A tree over `num_operands` placeholders whose values stay moderate."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.25:
            return F.Constant(float(np.round(rng.uniform(-2, 2), 2)))
        return Placeholder(int(rng.integers(1, num_operands + 1)))
    name = rng.choice(SMOOTH if smooth else SMOOTH + ROUGH)
    function = F.FUNCTIONS[str(name)]
    arguments = [
        random_expression(rng, depth - 1, smooth, num_operands) for _ in range(function.arity)
    ]
    if name in ("mul", "sqr"):
        # keeps products of products from growing without bound
        arguments = [F.tanh(a) for a in arguments]
    return function(*arguments)

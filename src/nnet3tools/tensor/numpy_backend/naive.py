"""Stopgap: expressions evaluated on whole arrays."""

from __future__ import annotations

import math

import numpy as np

from nnet3tools.tensor.aggregate import AGGREGATE_BACKENDS
from nnet3tools.tensor.element import ELEMENT_BACKENDS
from nnet3tools.tensor.functional import Apply, Cast, Constant, Placeholder

K = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "neg": np.negative, "abs": np.abs, "sgn": np.sign, "sqr": np.square, "max": np.maximum,
    "min": np.minimum, "round": np.rint, "floor": np.floor, "ceil": np.ceil, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "where": np.where, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin,
    "cos": np.cos, "tanh": np.tanh, "pow": np.power, "logaddexp": np.logaddexp,
    "erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "sigmoid": lambda x: 0.5 + 0.5 * np.tanh(0.5 * x),
}  # fmt: skip


def evaluate(expr, operands):
    done = {}
    for node in expr.walk():
        if isinstance(node, Placeholder):
            done[node] = operands[node.number - 1]
        elif isinstance(node, Constant):
            done[node] = node.value
        elif isinstance(node, Cast):
            done[node] = np.asarray(done[node.arguments[0]]).astype(node.to.value)
        elif isinstance(node, Apply):
            arguments = [done[a] for a in node.arguments]
            if node.function.name in K:
                done[node] = K[node.function.name](*arguments)
            else:
                holders = {Placeholder(i + 1): a for i, a in enumerate(arguments)}
                done[node] = evaluate(node.function.definition(*holders), arguments)
    return done[expr]


def lower_element(assignments):
    def bind(*operands):
        def run():
            values = [evaluate(value, operands) for _, value in assignments.items]
            for (target, _), value in zip(assignments.items, values, strict=True):
                operands[target.number - 1][...] = value

        return run

    return bind


def lower_aggregate(expr, reduce, axis):
    def bind(out, ins, alpha, beta):
        def run():
            value = np.asarray(evaluate(expr, ins))
            wide = value.astype(np.float64)
            if reduce == "logsumexp":
                result = np.logaddexp.reduce(wide, axis=axis)
            else:
                result = getattr(np, reduce)(wide, axis=axis)
            if out is None:
                return float(alpha * result)
            result = np.reshape(alpha * result, out.shape)
            out[...] = result if beta == 0.0 else result + beta * out
            return None

        return run

    return bind


ELEMENT_BACKENDS.setdefault("numpy", lower_element)
AGGREGATE_BACKENDS["numpy"] = lower_aggregate

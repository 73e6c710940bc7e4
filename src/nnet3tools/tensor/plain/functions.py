"""The functions of formulas as calls of NumPy, each with its output as the last argument.

NumPy's half arithmetic is 40 times slower than that of float32: instructions have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.formulas.lowered import Instruction, Kind, Target
from nnet3tools.tensor.plain.rewrites import rewrite

Function = Callable[..., Any]


def convert(source: np.ndarray, out: np.ndarray) -> None:
    """Set out to source, converted between types as C does."""
    np.copyto(out, source, casting="unsafe")


def add_to(source: np.ndarray, out: np.ndarray) -> None:
    """Add source to out; both have the same kind of numbers (floats, integers)."""
    np.add(out, source, out=out)


def _maximum(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.maximum(a, b, out=out)


def _minimum(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.minimum(a, b, out=out)


def _where(condition: np.ndarray, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Set out to a where the condition holds, else to b (np.where takes 6 times as long)."""
    bits = np.dtype(f"i{out.itemsize}")
    mask = np.negative(condition.view(np.int8)).astype(bits, copy=False)
    a, b, chosen = a.view(bits), b.view(bits), out.view(bits)
    if b.ndim == 0 and b == 0:
        np.bitwise_and(a, mask, out=chosen)
        return
    difference = np.bitwise_xor(a, b) & mask
    np.bitwise_xor(difference, b, out=chosen)


def _row(ufunc: np.ufunc) -> Function:
    def reduce(x: np.ndarray, out: np.ndarray) -> None:
        ufunc.reduce(x, axis=-1, out=out, keepdims=True)

    return reduce


def _row_mean(x: np.ndarray, out: np.ndarray) -> None:
    np.add.reduce(x, axis=-1, out=out, keepdims=True)
    np.divide(out, x.shape[-1], out=out)


_UFUNCS: dict[str, Function] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "neg": np.negative, "abs": np.abs, "sgn": np.sign, "sqr": np.square, "max": _maximum,
    "min": _minimum, "round": np.rint, "floor": np.floor, "ceil": np.ceil, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "pow": np.power, "logaddexp": np.logaddexp, "where": _where,
}  # fmt: skip

_ROW_FUNCTIONS: dict[str, Function] = {
    "row_max": _row(np.maximum), "row_min": _row(np.minimum), "row_sum": _row(np.add),
    "row_mean": _row_mean,
}  # fmt: skip

TARGET = Target("numpy", frozenset(_UFUNCS), rewrite)
"""NumPy as formulas are lowered for it."""


def function_of(instruction: Instruction) -> Function:
    """The function of (inputs..., out) that computes an instruction with NumPy."""
    if instruction.kind is Kind.CAST:
        return convert
    if instruction.kind is Kind.REDUCE_ROW:
        return _ROW_FUNCTIONS[instruction.name]
    return _UFUNCS[instruction.name]

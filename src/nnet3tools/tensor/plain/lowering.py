"""A formula's instructions as ufunc steps.

A value is an operand, a plain number given at the call, a constant, or the result of a step.
NumPy's half arithmetic is 40 times slower than that of float32: instructions have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.formulas.lowered import (
    Instruction,
    Kind,
    Lowering,
    Target,
    held_dtype,
    used,
)
from nnet3tools.tensor.plain.rewrites import rewrite
from nnet3tools.tensor.plain.row_reductions import REDUCING, ROW_STEPS, of_positive

__all__ = ["Steps", "Value", "maximum", "minimum"]


def maximum(a: Any, b: Any, out: Any) -> None:
    """numpy.maximum, which alone with minimum wants its output by name."""
    np.maximum(a, b, out=out)


def minimum(a: Any, b: Any, out: Any) -> None:
    """numpy.minimum with its output in the last place, as for `maximum`."""
    np.minimum(a, b, out=out)


_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "neg": np.negative, "abs": np.abs, "sgn": np.sign, "sqr": np.square, "max": maximum,
    "min": minimum, "round": np.rint, "floor": np.floor, "ceil": np.ceil, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh, "pow": np.power, "logaddexp": np.logaddexp,
}  # fmt: skip

_TARGET = Target("numpy", frozenset({*_UFUNCS, "where"}), rewrite)

_POSITIVE = (np.exp, np.square, np.abs)
"""Functions whose values have no sign."""

_MASKS: dict[int, np.dtype] = {1: np.dtype(np.int8), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}


@dataclass(eq=False, slots=True)
class Value:
    """One value of a formula as steps."""

    kind: str
    """operand, number, constant or step."""
    dtype: np.dtype
    number: int = 0
    """Of an operand or plain number: which, from 0."""
    constant: Any = None
    """Of a constant: the 0-d array."""
    function: Callable[..., Any] | None = None
    """Of a step: called with the inputs and then the output; None is a conversion."""
    inputs: tuple[Value, ...] = ()
    view: np.dtype | None = None
    """Of a step: operands and output are reinterpreted as this type (bit operations)."""
    reduces: bool = False
    """Of a step: it gives one number for each row of its inputs."""


@dataclass
class Steps:
    """The steps of expressions over operands of given types, shared between all of them."""

    types: Sequence[Type]
    values: list[Value] = field(default_factory=list)
    """Steps in an order in which they can run."""
    _known: dict[Any, Value] = field(default_factory=dict)
    _made: dict[Instruction, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lowering = Lowering(self.types, _TARGET)

    def lower(self, expr: Expr) -> Value:
        """The value of an expression; its steps are appended to `values`."""
        root = self._lowering.lower(expr)
        for instruction in used(self._lowering.instructions, [root]):
            if instruction not in self._made:
                self._made[instruction] = self._make(instruction)
        return self._made[root]

    def step(
        self, function: Callable[..., Any] | None, inputs: Sequence[Value], dtype: np.dtype,
        view: np.dtype | None = None,
    ) -> Value:  # fmt: skip
        """The value of a ufunc of some values (the one there is, if it was asked for before)."""
        key = (function, *map(id, inputs), dtype, view)
        if (known := self._known.get(key)) is None:
            inputs = tuple(inputs)
            reduces = function in REDUCING
            known = Value("step", dtype, 0, None, function, inputs, view, reduces)
            self._known[key] = known
            self.values.append(known)
        return known

    def _make(self, instruction: Instruction) -> Value:
        dtype = held_dtype(instruction.type)
        inputs = [self._made[v] for v in instruction.inputs]
        if instruction.kind is Kind.OPERAND:
            kind = "number" if instruction.type.is_weak else "operand"
            return Value(kind, dtype, number=instruction.number)
        if instruction.kind is Kind.CONSTANT:
            array = np.asarray(instruction.value, dtype)
            array.setflags(write=False)
            return Value("constant", dtype, constant=array)
        if instruction.kind is Kind.CAST:
            return self.step(None, inputs, dtype)
        if instruction.kind is Kind.REDUCE_ROW:
            positive = inputs[0].function in _POSITIVE
            function = ROW_STEPS[instruction.name]
            return self.step(of_positive(function) if positive else function, inputs, dtype)
        if instruction.name == "where":
            return self._select(inputs, dtype)
        return self.step(_UFUNCS[instruction.name], inputs, dtype)

    def _select(self, inputs: Sequence[Value], dtype: np.dtype) -> Value:
        """where() by bit masks: numpy's own branches, and is 4 to 7 times slower."""
        condition, a, b = inputs
        mask_type = _MASKS[dtype.itemsize]
        mask = self.step(np.negative, [self.step(None, [condition], mask_type)], mask_type)
        if _is_zero_bits(b):
            return self.step(np.bitwise_and, [a, mask], dtype, view=mask_type)
        if _is_zero_bits(a):
            inverse = self.step(np.invert, [mask], mask_type)
            return self.step(np.bitwise_and, [b, inverse], dtype, view=mask_type)
        difference = self.step(np.bitwise_xor, [a, b], dtype, view=mask_type)
        masked = self.step(np.bitwise_and, [difference, mask], dtype, view=mask_type)
        return self.step(np.bitwise_xor, [masked, b], dtype, view=mask_type)


def _is_zero_bits(value: Value) -> bool:
    return value.kind == "constant" and not any(value.constant.tobytes())

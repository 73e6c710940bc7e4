"""Expressions to a list of ufunc steps: typed, casts explicit, common subexpressions shared.

A value is an operand, a plain number given at the call, a constant, or the result of a step.
float16 is computed in float32 and rounded where it is stored: NumPy's half arithmetic is 40 times
slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.functional import Apply, Cast, Constant, Expr, Placeholder, Rule, Type
from nnet3tools.tensor.functional.types import compute_type, dtype_of, result_type
from nnet3tools.tensor.numpy_backend.rewrites import rewrite
from nnet3tools.tensor.registry import UnsupportedOperator

__all__ = ["Lowering", "Value", "maximum", "minimum"]


def maximum(a: Any, b: Any, out: Any) -> None:
    """numpy.maximum, which alone with minimum wants its output by name."""
    np.maximum(a, b, out=out)


def minimum(a: Any, b: Any, out: Any) -> None:
    """numpy.minimum; see `maximum`."""
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

_MASKS: dict[int, np.dtype] = {1: np.dtype(np.int8), 4: np.dtype(np.int32), 8: np.dtype(np.int64)}
_COMMUTATIVE = frozenset({"add", "mul", "max", "min", "eq", "ne", "and", "or"})


@dataclass(eq=False, slots=True)
class Value:
    """One value of a lowered formula."""

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


@dataclass
class Lowering:
    """Lowers expressions over operands of given types; values are shared between all of them.

    `types` has a weak Type for operands that are plain numbers.
    """

    types: Sequence[Type]
    values: list[Value] = field(default_factory=list)
    """Steps in an order in which they can run."""
    _known: dict[Any, Value] = field(default_factory=dict)

    def lower(self, expr: Expr) -> Value:
        """The value of an expression; its steps are appended to `values`."""
        types, done = self._types_of(expr), dict[Expr, Value]()
        for node in expr.walk():
            if isinstance(node, Placeholder):
                done[node] = self._operand(node.number)
            elif isinstance(node, Constant):
                done[node] = self._constant(node.value, dtype_wide(types[node]))
            elif isinstance(node, Cast):
                done[node] = self.convert(done[node.arguments[0]], dtype_of(node.to))
            elif isinstance(node, Apply):
                done[node] = self._apply(node, types, done)
        return done[expr]

    def _types_of(self, expr: Expr) -> dict[Expr, Type]:
        types: dict[Expr, Type] = {}
        known = {i + 1: t for i, t in enumerate(self.types)}
        for node in expr.walk():
            if isinstance(node, Apply):
                types[node] = result_type(node.function.rule, [types[a] for a in node.arguments])
            else:
                types[node] = node.type(known)
        return types

    def _share(self, key: Any, make: Callable[[], Value]) -> Value:
        if (found := self._known.get(key)) is None:
            found = self._known[key] = make()
            if found.kind == "step":
                self.values.append(found)
        return found

    def _operand(self, number: int) -> Value:
        if number > len(self.types):
            raise ProgramError(f"a formula uses _{number} but has {len(self.types)} operands")
        kind = "number" if self.types[number - 1].is_weak else "operand"
        dtype = dtype_wide(self.types[number - 1])
        return self._share((kind, number), lambda: Value(kind, dtype, number=number - 1))

    def _constant(self, value: Any, dtype: np.dtype) -> Value:
        with np.errstate(all="ignore"):
            array = np.asarray(value).astype(dtype)
        array.setflags(write=False)
        return self._share(
            ("constant", array.tobytes(), dtype), lambda: Value("constant", dtype, constant=array)
        )

    def step(
        self, function: Callable[..., Any] | None, inputs: Sequence[Value], dtype: np.dtype,
        view: np.dtype | None = None,
    ) -> Value:  # fmt: skip
        """The value of a ufunc of some values (the one there is, if it was asked for before)."""
        key = (function, tuple(id(v) for v in inputs), dtype, view)
        return self._share(
            key,
            lambda: Value("step", dtype, function=function, inputs=tuple(inputs), view=view),
        )

    def convert(self, value: Value, dtype: np.dtype) -> Value:
        """The value as another type."""
        if value.dtype == dtype:
            return value
        if value.kind == "constant":
            return self._constant(value.constant, dtype)
        return self.step(None, [value], dtype)

    def _apply(self, node: Apply, types: dict[Expr, Type], done: dict[Expr, Value]) -> Value:
        argument_types = [types[a] for a in node.arguments]
        compute = compute_type(node.function.rule, argument_types)
        if compute is Type.FLOAT16:
            compute = Type.FLOAT32
        function = node.function
        replacement = rewrite(function.name, compute) or (
            None if function.name in _UFUNCS or function.name == "where" else function.definition
        )
        if replacement is not None:
            return self._expand(replacement, compute, node, done)
        if function.name == "where":
            return self._select([done[a] for a in node.arguments], dtype_wide(compute))
        if function.name not in _UFUNCS:
            raise UnsupportedOperator(function.name, compute.value, "numpy")
        inputs = [done[a] for a in node.arguments]
        if function.rule is Rule.LOGIC:
            inputs = [self.convert(v, np.dtype(bool)) for v in inputs]
            return self.step(_UFUNCS[function.name], inputs, np.dtype(bool))
        dtype = dtype_wide(compute)
        inputs = [self.convert(v, dtype) for v in inputs]
        if function.name in ("round", "floor", "ceil") and not compute.is_float:
            return inputs[0]
        if function.name in _COMMUTATIVE:
            inputs.sort(key=lambda v: v.kind == "constant")
        out = np.dtype(bool) if function.rule is Rule.COMPARE else dtype
        return self.step(_UFUNCS[function.name], inputs, out)

    def _expand(
        self, replacement: Callable[..., Expr], compute: Type, node: Apply, done: dict[Expr, Value]
    ) -> Value:
        """Lower a function's definition, its placeholders standing for the argument values."""
        holders = [Placeholder(i + 1) for i in range(len(node.arguments))]
        rule = node.function.rule
        dtype = dtype_wide(compute)
        inputs = [done[a] for a in node.arguments]
        if rule is not Rule.LOGIC:
            inputs = [self.convert(v, dtype) for v in inputs]
        types = [Type(v.dtype.name) if v.dtype.name != "int64" else Type.INT32 for v in inputs]
        inner = _Inner(types, self, inputs)
        return inner.lower(replacement(*holders))

    def _select(self, arguments: Sequence[Value], dtype: np.dtype) -> Value:
        """where() by bit masks: numpy's own branches, and is 4 to 7 times slower."""
        condition, (a, b) = arguments[0], [self.convert(v, dtype) for v in arguments[1:]]
        mask_type = _MASKS[dtype.itemsize]
        flag = self.convert(self.convert(condition, np.dtype(bool)), mask_type)
        mask = self.step(np.negative, [flag], mask_type)
        if _is_zero_bits(b):
            return self.step(np.bitwise_and, [a, mask], dtype, view=mask_type)
        if _is_zero_bits(a):
            inverse = self.step(np.invert, [mask], mask_type)
            return self.step(np.bitwise_and, [b, inverse], dtype, view=mask_type)
        difference = self.step(np.bitwise_xor, [a, b], dtype, view=mask_type)
        masked = self.step(np.bitwise_and, [difference, mask], dtype, view=mask_type)
        return self.step(np.bitwise_xor, [masked, b], dtype, view=mask_type)


class _Inner(Lowering):
    """Lowers a definition into an outer lowering, its operands being values of that."""

    def __init__(self, types: Sequence[Type], outer: Lowering, inputs: Sequence[Value]) -> None:
        super().__init__(types, outer.values, outer._known)
        self._inputs = inputs

    def _operand(self, number: int) -> Value:
        return self._inputs[number - 1]


def dtype_wide(element_type: Type) -> np.dtype:
    """The dtype a type is held in: numbers of no type yet in 64 bits, float16 as it is."""
    if element_type is Type.WEAK_FLOAT:
        return np.dtype(np.float64)
    if element_type is Type.WEAK_INT:
        return np.dtype(np.int64)
    return dtype_of(element_type)


def _is_zero_bits(value: Value) -> bool:
    return value.kind == "constant" and not any(value.constant.tobytes())

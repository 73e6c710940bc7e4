"""Fewer steps for a lowered formula whose operands' shapes are known.

Every step over whole operands is a pass over memory. Here signs are moved to where they cost
nothing (to rows and numbers, whose negative is taken once), and products with a reciprocal become
quotients: of `sigmoid(w * c + x) * c`, lowered as 1 / (1 + exp(-(w * c + x))) * c, four passes go
instead of six beside exp's own. Signs are exact; the quotient is rounded once instead of twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nnet3tools.tensor.formulas.lowered import used
from nnet3tools.tensor.plain.lowering import Value
from nnet3tools.tensor.plain.row_reductions import as_dot
from nnet3tools.tensor.plain.tiles import Shape, broadcast_shape

__all__ = ["fuse"]


def fuse(
    values: Sequence[Value], roots: Sequence[Value], shapes: Mapping[int, Shape]
) -> tuple[list[Value], list[Value]]:
    """The steps and roots of a formula with fewer steps; `shapes` are the array operands'."""
    fusion = _Fusion(used(values, roots), roots, shapes)
    made = [fusion.put(value) for value in roots]
    return used(fusion.values, made), made


class _Fusion:
    """The steps made so far; `put` makes those that a value needs."""

    def __init__(
        self, values: Sequence[Value], roots: Sequence[Value], shapes: Mapping[int, Shape]
    ) -> None:
        self.values: list[Value] = []
        self._uses = Counter(v for value in values for v in value.inputs)
        self._uses.update(roots)
        self._shapes = shapes
        self._sizes: dict[Value, Shape] = {}
        self._made: dict[Value, Value] = {}
        self._minus: dict[Value, Value] = {}
        for value in values:
            self.put(value)

    def put(self, value: Value) -> Value:
        """The value in place of one of the formula as it was."""
        if value.kind != "step":
            return value
        if (found := self._made.get(value)) is None:
            found = self._made[value] = self._better(value)
        return found

    def _better(self, value: Value) -> Value:
        if value.function is np.multiply and value.view is None:
            for other, factor in (value.inputs, value.inputs[::-1]):
                if self._is_reciprocal(factor, value):
                    pair = (self.put(other), self.put(factor.inputs[1]))
                    return self._step(value, np.true_divide, pair)
        if value.reduces and (factors := self._factors(value)) is not None:
            return self._step(value, as_dot(value.function), [self.put(v) for v in factors])
        if value.function is np.negative and value.dtype.kind == "f":
            (inner,) = value.inputs
            if (found := self._negative(inner)) is not None:
                return found
        inputs = tuple(self.put(v) for v in value.inputs)
        if inputs == value.inputs:
            self.values.append(value)
            return value
        return self._step(value, value.function, inputs)

    def _step(
        self, like: Value, function: Callable[..., Any] | None, inputs: Sequence[Value]
    ) -> Value:
        made = replace(like, function=function, inputs=tuple(inputs))
        self.values.append(made)
        return made

    def _factors(self, value: Value) -> Sequence[Value] | None:
        """The factors of a product or square that is made for its rows' sums only."""
        (inner,) = value.inputs
        if as_dot(value.function) is None or self._uses[inner] > 1 or inner.view is not None:
            return None
        if inner.function is np.square:
            return inner.inputs * 2
        shapes = {self._shape(v) for v in inner.inputs}
        whole = inner.function is np.multiply and shapes == {self._shape(inner)}
        return inner.inputs if whole else None

    def _is_reciprocal(self, value: Value, of: Value) -> bool:
        """Whether it is 1 / x over the whole of a product, and for that product only."""
        return (
            value.function is np.true_divide
            and value.inputs[0].kind == "constant"
            and value.inputs[0].constant == 1.0
            and self._uses[value] == 1
            and self._shape(value) == self._shape(of)
        )

    def _negative(self, value: Value) -> Value | None:
        """The negative of a value in place of the value, for nothing or next to it; or None."""
        if value.kind != "step" or self._uses[value] > 1 or value.view is not None:
            return None
        if value.function is np.abs and value.dtype.itemsize in (4, 8):
            return self._with_sign_bit(value)
        if value.function is np.subtract:
            a, b = value.inputs
            return self._step(value, np.subtract, (self.put(b), self.put(a)))
        if value.function is np.add:
            for a, b in (value.inputs, value.inputs[::-1]):
                if (minus := self._cheap_negative(a, value)) is not None:
                    return self._step(value, np.subtract, (minus, self.put(b)))
        if value.function in (np.multiply, np.true_divide):
            a, b = value.inputs
            if (minus := self._cheap_negative(a, value)) is not None:
                return self._step(value, value.function, (minus, self.put(b)))
            if (minus := self._cheap_negative(b, value)) is not None:
                return self._step(value, value.function, (self.put(a), minus))
        return None

    def _cheap_negative(self, value: Value, within: Value) -> Value | None:
        """The negative of an input of a step, if that is no pass over the whole."""
        if math.prod(self._shape(value)) < math.prod(self._shape(within)):
            if (found := self._minus.get(value)) is None:
                inputs = (self.put(value),)
                found = Value("step", value.dtype, function=np.negative, inputs=inputs)
                self._minus[value] = found
                self.values.append(found)
            return found
        return self._negative(value)

    def _with_sign_bit(self, value: Value) -> Value:
        """-abs(x): the sign set, one pass instead of two."""
        sign = np.asarray(-0.0, value.dtype)
        sign.setflags(write=False)
        inputs = (self.put(value.inputs[0]), Value("constant", value.dtype, constant=sign))
        bits = np.dtype(np.int32 if value.dtype.itemsize == 4 else np.int64)
        made = Value("step", value.dtype, function=np.bitwise_or, inputs=inputs, view=bits)
        self.values.append(made)
        return made

    def _shape(self, value: Value) -> Shape:
        """The shape of a value of the formula as it was: () of numbers and constants."""
        if value.kind == "operand":
            return self._shapes[value.number]
        if value.kind != "step":
            return ()
        if (found := self._sizes.get(value)) is None:
            shapes = [s for v in value.inputs if (s := self._shape(v))]
            found = broadcast_shape(shapes) if shapes else ()
            found = self._sizes[value] = (*found[:-1], 1) if value.reduces else found
        return found

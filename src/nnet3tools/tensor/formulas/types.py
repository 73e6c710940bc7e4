"""The element types of expressions, and the common type of two types.

Arrays have strong types. Plain numbers (constants, Python scalars, column reductions) have weak
types: in a function of a number and an array, the number takes the array's type. The order of
promotion is bool, int32 / uint32, float16, float32, float64; int32 with uint32 gives float64, the
smallest type here that holds both; an integer with a float gives that float.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from nnet3tools.errors import ProgramError


class Type(enum.Enum):
    """An element type. The value of the enum member is NumPy's name of the type."""

    BOOL = "bool"
    INT32 = "int32"
    UINT32 = "uint32"
    FLOAT16 = "float16"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    WEAK_INT = "weak_int"
    WEAK_FLOAT = "weak_float"

    __hash__ = object.__hash__  # that of Enum is Python code

    def __init__(self, name: str) -> None:
        self.is_float = "float" in name
        """Whether this is a floating-point type, strong or weak."""
        self.is_weak = name.startswith("weak_")
        """Whether this is the type of a plain number."""
        held = {"weak_int": "int64", "weak_float": "float64"}.get(name, name)
        self.held = np.dtype(held)
        """The NumPy dtype in which values are computed: 64 bits for plain numbers."""


_RANK = {
    Type.BOOL: 0, Type.INT32: 1, Type.UINT32: 1, Type.FLOAT16: 2, Type.FLOAT32: 3, Type.FLOAT64: 4,
}  # fmt: skip
_BY_DTYPE = {np.dtype(t.value): t for t in _RANK}


class Rule(enum.Enum):
    """The way in which the types of a function's arguments decide the type of its value."""

    ARITHMETIC = "the promoted type, int32 for bool"
    FLOAT = "the promoted type, float32 for integers and bool"
    COMPARE = "bool; arguments are promoted"
    LOGIC = "bool; arguments are tested for being non-zero"
    CHOOSE = "the promoted type of the second and third argument"
    TOTAL = "a plain number in 64 bits; the argument has a float type"


def type_of_dtype(dtype: np.dtype) -> Type:
    """The Type of a NumPy or CuPy dtype; ProgramError if expressions have no such type."""
    if (found := _BY_DTYPE.get(dtype)) is None:
        known = ", ".join(t.value for t in _RANK)
        raise ProgramError(f"tensor operators have no element type {dtype}; known: {known}")
    return found


def dtype_of(element_type: Type) -> np.dtype:
    """The NumPy dtype of a type; int32 and float32 for the weak types, those of plain numbers."""
    weak = {Type.WEAK_FLOAT: "float32", Type.WEAK_INT: "int32"}
    return np.dtype(weak.get(element_type, element_type.value))


def _promote_weak(strong: Type, weak: Type) -> Type:
    if weak is Type.WEAK_FLOAT:
        return strong if strong.is_float else Type.FLOAT32
    return Type.INT32 if strong is Type.BOOL else strong


def promote(a: Type, b: Type) -> Type:
    """The type in which values of two types are computed together."""
    if a is b:
        return a
    if a.is_weak and b.is_weak:
        return Type.WEAK_FLOAT
    if b.is_weak:
        return _promote_weak(a, b)
    if a.is_weak:
        return _promote_weak(b, a)
    if {a, b} == {Type.INT32, Type.UINT32}:
        return Type.FLOAT64
    return a if _RANK[a] > _RANK[b] else b


def result_type(rule: Rule, arguments: Sequence[Type]) -> Type:
    """The type of a function's value, given the types of its arguments."""
    if rule is Rule.COMPARE or rule is Rule.LOGIC:
        return Type.BOOL
    if rule is Rule.TOTAL:
        return Type.WEAK_FLOAT
    return compute_type(rule, arguments)


def compute_type(rule: Rule, arguments: Sequence[Type]) -> Type:
    """The type to which the arguments are converted before the function is applied."""
    relevant = arguments[1:] if rule is Rule.CHOOSE else arguments
    found = relevant[0]
    for other in relevant[1:]:
        found = promote(found, other)
    if rule in (Rule.FLOAT, Rule.TOTAL) and not found.is_float:
        return Type.WEAK_FLOAT if found.is_weak else Type.FLOAT32
    if rule is Rule.ARITHMETIC and found is Type.BOOL:
        return Type.INT32
    return found

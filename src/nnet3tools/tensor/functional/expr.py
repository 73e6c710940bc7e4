"""Expression trees over placeholders: immutable, interned (equal trees are one object), printable.

`_1 * sigmoid(_2)` in Python and the same text read by `parse` give the same object, so identity is
equality, a tree can be a dictionary key, and common subexpressions are shared by construction.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.functional.types import Type, result_type

if TYPE_CHECKING:
    from nnet3tools.tensor.functional.functions import Function

__all__ = ["Apply", "Cast", "Constant", "Expr", "Number", "Placeholder", "as_expr"]

Number = bool | int | float

_interned: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


def _intern(cls: type, key: tuple, **fields: Any) -> Any:
    found = _interned.get((cls, key))
    if found is None:
        found = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(found, name, value)
        _interned[(cls, key)] = found
    return found


class Expr:
    """A node of an expression; Python's operators build larger ones.

    `&`, `|`, `~` are and, or, not; `<` and its kin compare elementwise, but `==` compares the trees
    (equal trees are the same object): elementwise equality is `functional.eq`.
    """

    __slots__ = ("__weakref__", "arguments")
    arguments: tuple[Expr, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("expressions cannot be changed")

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict) -> Expr:
        return self

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """The element type, given those of the placeholders."""
        raise NotImplementedError

    def text(self) -> str:
        """The formula, which `parse` reads back to this very object."""
        from nnet3tools.tensor.functional.printing import to_text

        return to_text(self)

    @property
    def digest(self) -> str:
        """A stable hash of the content, the same in every process."""
        return hashlib.sha1(self.text().encode()).hexdigest()

    def walk(self) -> Iterator[Expr]:
        """Every distinct node once, arguments before what uses them."""
        done: set[Expr] = set()
        stack: list[tuple[Expr, bool]] = [(self, False)]
        while stack:
            node, expanded = stack.pop()
            if node in done:
                continue
            if expanded or not node.arguments:
                done.add(node)
                yield node
            else:
                stack.append((node, True))
                stack.extend((a, False) for a in reversed(node.arguments))

    def placeholders(self) -> list[int]:
        """Numbers of the placeholders that occur, ascending."""
        return sorted(n.number for n in self.walk() if isinstance(n, Placeholder))

    def substitute(self, replacements: Mapping[Expr, Expr]) -> Expr:
        """The tree with some nodes (usually placeholders) replaced."""
        made: dict[Expr, Expr] = {}
        for node in self.walk():
            if node in replacements:
                made[node] = replacements[node]
            else:
                made[node] = node.rebuild([made[a] for a in node.arguments])
        return made[self]

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """The same node over other arguments."""
        return self

    def __repr__(self) -> str:
        return self.text()

    def __bool__(self) -> bool:
        raise ProgramError(
            f"the expression {self.text()} has no truth value: use & | ~ and where() in expressions"
        )

    def __reduce__(self) -> tuple:
        from nnet3tools.tensor.functional.parse import parse

        return parse, (self.text(),)

    def __add__(self, other: Operand) -> Expr:
        return _call("add", self, other)

    def __radd__(self, other: Operand) -> Expr:
        return _call("add", other, self)

    def __sub__(self, other: Operand) -> Expr:
        return _call("sub", self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return _call("sub", other, self)

    def __mul__(self, other: Operand) -> Expr:
        return _call("mul", self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return _call("mul", other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return _call("div", self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return _call("div", other, self)

    def __pow__(self, other: Operand) -> Expr:
        return _call("pow", self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return _call("pow", other, self)

    def __neg__(self) -> Expr:
        return _call("neg", self)

    def __abs__(self) -> Expr:
        return _call("abs", self)

    def __lt__(self, other: Operand) -> Expr:
        return _call("lt", self, other)

    def __le__(self, other: Operand) -> Expr:
        return _call("le", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return _call("gt", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return _call("ge", self, other)

    def __and__(self, other: Operand) -> Expr:
        return _call("and", self, other)

    def __or__(self, other: Operand) -> Expr:
        return _call("or", self, other)

    def __invert__(self) -> Expr:
        return _call("not", self)


Operand = Expr | bool | int | float


class Placeholder(Expr):
    """An operand of the operator, `_1` the first."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, number: int) -> Placeholder:
        if number < 1:
            raise ProgramError(f"placeholders are numbered from 1, not {number}")
        return _intern(cls, (number,), number=number, arguments=())

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """The type of the operand."""
        return placeholder_types[self.number]


class Constant(Expr):
    """A plain number; it takes the type of what it meets (a truth value is of type bool)."""

    __slots__ = ("value",)
    value: Number

    def __new__(cls, value: Number) -> Constant:
        # repr tells 0.0 from -0.0, and makes every nan the same node
        return _intern(cls, (type(value), repr(value)), value=value, arguments=())

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """Weak for numbers."""
        if isinstance(self.value, bool):
            return Type.BOOL
        return Type.WEAK_INT if isinstance(self.value, int) else Type.WEAK_FLOAT


class Apply(Expr):
    """A function of the table applied to arguments."""

    __slots__ = ("function",)
    function: Function

    def __new__(cls, function: Function, arguments: tuple[Expr, ...]) -> Apply:
        return _intern(
            cls, (function.name, arguments), function=function, arguments=tuple(arguments)
        )

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """By the function's rule; shared subtrees are visited once."""
        types: dict[Expr, Type] = {}
        for node in self.walk():
            if isinstance(node, Apply):
                types[node] = result_type(node.function.rule, [types[a] for a in node.arguments])
            else:
                types[node] = node.type(placeholder_types)
        return types[self]

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """The same function of other arguments."""
        return Apply(self.function, tuple(arguments))


class Cast(Expr):
    """A change of element type: `float32(_1)`."""

    __slots__ = ("to",)
    to: Type

    def __new__(cls, argument: Expr, to: Type) -> Cast:
        return _intern(cls, (argument, to), to=to, arguments=(argument,))

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """The type cast to."""
        return self.to

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """The same cast of another argument."""
        return Cast(arguments[0], self.to)


def as_expr(value: Operand) -> Expr:
    """An expression as it is, a number as a Constant."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return Constant(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return Constant(value.item())
    raise ProgramError(f"cannot use {type(value).__name__} in an expression")


def _call(name: str, *arguments: Operand) -> Expr:
    from nnet3tools.tensor.functional.functions import FUNCTIONS

    return FUNCTIONS[name](*arguments)

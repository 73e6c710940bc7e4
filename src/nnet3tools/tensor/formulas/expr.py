"""Expression trees over placeholders: immutable and interned (equal trees are one object).

`_1 * sigmoid(_2)` in Python and the same text read by `parse` give the same object, so identity is
equality, a tree can be a dictionary key, and common subexpressions are shared by construction.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.tensor.formulas.printing import ATOM, Text, call_text, constant_text
from nnet3tools.tensor.formulas.types import Rule, Type, result_type

Number = bool | int | float

_interned: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


def _intern(cls: type, key: tuple, **fields: Any) -> Any:
    if (found := _interned.get((cls, key))) is None:
        found = object.__new__(cls)
        for name, value in fields.items():
            object.__setattr__(found, name, value)
        _interned[(cls, key)] = found
    return found


def _method(name: str, reflected: bool = False) -> Callable[..., Expr]:
    """A method of Expr that applies function `name` to the node and other operands.

    `reflected`: the node is the second operand.
    """

    def apply(self: Expr, *others: Operand) -> Expr:
        return _call(name, *others, self) if reflected else _call(name, self, *others)

    return apply


class Expr:
    """A node of an expression tree. Python's operators on nodes build larger expressions.

    `&`, `|`, `~` are and, or, not. `<`, `<=`, `>`, `>=` compare elementwise, but `==` compares the
    trees (equal trees are the same object): elementwise equality is `formulas.eq`.
    """

    __slots__ = ("__weakref__", "arguments")
    arguments: tuple[Expr, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("expressions cannot be changed")

    def __deepcopy__(self, memo: dict) -> Expr:
        return self

    def type(self, placeholder_types: Mapping[int, Type]) -> Type:
        """The element type of the value, given the type of each placeholder by its number."""
        types: dict[Expr, Type] = {}
        for node in self.walk():
            types[node] = node._type([types[a] for a in node.arguments], placeholder_types)
        return types[self]

    def _type(self, arguments: Sequence[Type], placeholders: Mapping[int, Type]) -> Type:
        """The type of this node's value, from those of its arguments and of the placeholders."""
        raise NotImplementedError

    def text(self) -> str:
        """The expression as formula text; `parse` returns the same object for this text."""
        done: dict[Expr, Text] = {}
        for node in self.walk():
            done[node] = node._text([done[a] for a in node.arguments])
        return done[self][0]

    def _text(self, arguments: Sequence[Text]) -> Text:
        """(formula text, how tightly it binds) of this node, from these pairs of its arguments."""
        raise NotImplementedError

    def walk(self, known: Container[Expr] = ()) -> Iterator[Expr]:
        """Yield each distinct node once, after its arguments.

        `known` nodes are omitted, and so are the nodes that only they use.
        """
        done: set[Expr] = set()
        stack: list[tuple[Expr, bool]] = [(self, False)]
        while stack:
            node, expanded = stack.pop()
            if node in done or node in known:
                continue
            if expanded or not node.arguments:
                done.add(node)
                yield node
            else:
                stack.append((node, True))
                stack.extend((a, False) for a in reversed(node.arguments))

    def placeholders(self) -> list[int]:
        """The numbers of the placeholders that occur, ascending."""
        return sorted(n.number for n in self.walk() if isinstance(n, Placeholder))

    def substitute(self, replacements: Mapping[Expr, Expr]) -> Expr:
        """The expression with nodes (usually placeholders) replaced, by the mapping old -> new."""
        made: dict[Expr, Expr] = {}
        for node in self.walk():
            if node in replacements:
                made[node] = replacements[node]
            else:
                made[node] = node.rebuild([made[a] for a in node.arguments])
        return made[self]

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """A node of the same kind with other arguments."""
        return self

    def __repr__(self) -> str:
        return self.text()

    def __bool__(self) -> bool:
        raise ProgramError(
            f"the expression {self.text()} has no truth value: use & | ~ and where() in expressions"
        )

    __add__, __radd__ = _method("add"), _method("add", reflected=True)
    __sub__, __rsub__ = _method("sub"), _method("sub", reflected=True)
    __mul__, __rmul__ = _method("mul"), _method("mul", reflected=True)
    __truediv__, __rtruediv__ = _method("div"), _method("div", reflected=True)
    __pow__, __rpow__ = _method("pow"), _method("pow", reflected=True)
    __lt__, __le__, __gt__, __ge__ = map(_method, ("lt", "le", "gt", "ge"))
    __and__, __or__, __invert__ = map(_method, ("and", "or", "not"))
    __neg__, __abs__ = _method("neg"), _method("abs")


Operand = Expr | bool | int | float


class Placeholder(Expr):
    """An operand of a formula: `_1` is the first."""

    __slots__ = ("number",)
    number: int

    def __new__(cls, number: int) -> Placeholder:
        if number < 1:
            raise ProgramError(f"placeholders are numbered from 1, not {number}")
        return _intern(cls, (number,), number=number, arguments=())

    def __reduce__(self) -> tuple:
        return Placeholder, (self.number,)

    def _text(self, arguments: Sequence[Text]) -> Text:
        return f"_{self.number}", ATOM

    def _type(self, arguments: Sequence[Type], placeholders: Mapping[int, Type]) -> Type:
        return placeholders[self.number]


class Constant(Expr):
    """A constant of a formula: a plain number, which takes the type of arrays, or a truth value."""

    __slots__ = ("value",)
    value: Number

    def __new__(cls, value: Number) -> Constant:
        # repr tells 0.0 from -0.0, and makes every nan the same node
        return _intern(cls, (type(value), repr(value)), value=value, arguments=())

    def __reduce__(self) -> tuple:
        return Constant, (self.value,)

    def _text(self, arguments: Sequence[Text]) -> Text:
        return constant_text(self.value)

    def _type(self, arguments: Sequence[Type], placeholders: Mapping[int, Type]) -> Type:
        if isinstance(self.value, bool):
            return Type.BOOL
        return Type.WEAK_INT if isinstance(self.value, int) else Type.WEAK_FLOAT


class Apply(Expr):
    """An elementwise function, or a reduction of rows or columns, applied to arguments."""

    __slots__ = ("function",)
    function: Function

    def __new__(cls, function: Function, arguments: tuple[Expr, ...]) -> Apply:
        return _intern(
            cls, (function.name, arguments), function=function, arguments=tuple(arguments)
        )

    def __reduce__(self) -> tuple:
        return _call, (self.function.name, *self.arguments)

    def _text(self, arguments: Sequence[Text]) -> Text:
        of_number = isinstance(self.arguments[0], Constant)
        return call_text(self.function.name, arguments, of_number)

    def _type(self, arguments: Sequence[Type], placeholders: Mapping[int, Type]) -> Type:
        return result_type(self.function.rule, arguments)

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """The same function applied to other arguments."""
        return Apply(self.function, tuple(arguments))


class Cast(Expr):
    """A change of element type: `float32(_1)`."""

    __slots__ = ("to",)
    to: Type

    def __new__(cls, argument: Expr, to: Type) -> Cast:
        return _intern(cls, (argument, to), to=to, arguments=(argument,))

    def __reduce__(self) -> tuple:
        return Cast, (*self.arguments, self.to)

    def _text(self, arguments: Sequence[Text]) -> Text:
        return f"{self.to.value}({arguments[0][0]})", ATOM

    def _type(self, arguments: Sequence[Type], placeholders: Mapping[int, Type]) -> Type:
        return self.to

    def rebuild(self, arguments: Sequence[Expr]) -> Expr:
        """A conversion of another argument to the same type."""
        return Cast(arguments[0], self.to)


def as_expr(value: Operand) -> Expr:
    """The Expr `value` itself, or a Constant for a number."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        return Constant(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return Constant(value.item())
    raise ProgramError(f"cannot use {type(value).__name__} in an expression")


@dataclass(frozen=True, eq=False)
class Function:
    """A function of `arity` expressions; calling it builds an expression.

    `rule` says how types of arguments decide the type of the value; `doc` describes the value. The
    function `derivative` of (value, arguments...) returns one partial derivative for each argument;
    None: the derivative of the definition. `definition` gives the value in terms of other
    functions; None for a primitive. `onnx` is ONNX's operator of the same meaning, if there is one.
    """

    name: str
    arity: int
    rule: Rule
    doc: str
    derivative: Callable[..., Sequence[Expr]] | None = None
    definition: Callable[..., Expr] | None = None
    onnx: str = ""

    def __call__(self, *arguments: Operand) -> Expr:
        if len(arguments) != self.arity:
            raise ProgramError(
                f"function {self.name} takes {self.arity} arguments, not {len(arguments)}"
            )
        return Apply(self, tuple(as_expr(a) for a in arguments))


FUNCTIONS: dict[str, Function] = {}
"""Every elementwise function by name; formulas.functions fills it."""

ROW_REDUCTIONS: dict[str, Function] = {}
"""Functions of a whole row (along the last axis), with one value for all of its elements."""

COLUMN_REDUCTIONS: dict[str, Function] = {}
"""Functions of a whole column (along all axes but the last), with one value for all rows.

`col_sum(x)` is a row of numbers, shape (1, ..., 1, D). Values are added up as they are over a few
rows, and these sums in float64. The result is a plain number of 64 bits in each column: it takes
the type of the first array that it meets (`x - col_mean(x)` is of x's type), and formulas of such
numbers alone are computed in float64. It may be assigned to an operand (D,) or (1, D), and an
operand of this shape may be read beside it: `total = total + col_sum(x)`.

Reductions may stand within reductions, as in `col_sum(e * (x - row_mean(x)))`. What a column
reduction reduces must differ from row to row, and what a row reduction reduces within a row.
"""


def _call(name: str, *arguments: Operand) -> Expr:
    function = FUNCTIONS.get(name) or ROW_REDUCTIONS.get(name) or COLUMN_REDUCTIONS[name]
    return function(*arguments)

"""Operators, each declared once, and the table of their implementations.

`@operator(...)` turns a function into an Operator: its signature gives the operands. Its body is
the reference that tests compare with, which NumPy runs unless it has a faster implementation.
`@implements` registers an implementation for a device, in the device's package (tensor/plain,
tensor/cuda) or in a module of that name in the operator's folder. If there is none for an element
type, `bind` and direct calls raise UnsupportedOperator.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any, Generic, ParamSpec, TypeVar, cast

from nnet3tools.errors import ProgramError, UserError
from nnet3tools.tensor import recording

P = ParamSpec("P")
R = TypeVar("R")

FLOATS = ("float32", "float64")
"""Element types that most operators are declared for."""

ALL_TYPES = ("bool", "int32", "uint32", "float16", *FLOATS)
"""Element types of formulas, which operators that only move elements are declared for."""

DEVICES = {"numpy": "plain", "cupy": "cuda"}
"""Kind of array -> the package of tensor/ that implements operators for it, and the name of the
module that does so in an operator's own folder. Both are imported when they are first needed."""


class UnsupportedOperator(UserError):
    """A device has no implementation of an operator for this element type."""

    def __init__(self, name: str, element_type: str, device: str) -> None:
        super().__init__(
            f"operator {name} has no implementation for type {element_type} on device {device}"
        )


OPERATORS: dict[str, Operator[Any, Any]] = {}
"""Every declared operator by name."""

_binders: dict[tuple[str, str, str], Callable[..., Callable[[], Any]]] = {}
"""(operator, device, element type or "*") -> function that binds the operator to operands."""


_devices: dict[type, str] = {}
"""Class of arrays -> the device that they belong to."""


def device_of(array: Any) -> str:
    """The device ("numpy", "cupy") that an array belongs to; ProgramError if it is no array."""
    if (found := _devices.get(array.__class__)) is None:
        module = type(array).__module__.partition(".")[0]
        if module not in DEVICES or not hasattr(array, "dtype"):
            raise ProgramError(f"a tensor operator was given {type(array).__name__}, not an array")
        found = _devices[type(array)] = module
    return found


def on_host(like: Any) -> bool:
    """Whether arrays made like `like` are NumPy arrays: it is None or one itself."""
    return like is None or device_of(like) == "numpy"


def load_device(device: str) -> bool:
    """Import the package with a device's kernels; False if this build has none."""
    return load_module(f"{__package__}.{DEVICES[device]}")


@functools.cache
def load_module(name: str) -> bool:
    """Import a module by its full name; False if it does not exist."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return False
    return True


class Operator(Generic[P, R]):
    """A declared operator: call it, or `bind` it to operands once and call the result many times.

    The first operand (or the first array of it, if it is a list) decides device and element type.
    Integers and bool are refused where they are not declared: they would cut off results.
    `takes_numbers`: operands may be floats in memory (Number). `gives_number`: calls return a
    float, or while they are recorded a Number.
    """

    takes_numbers = False

    gives_number: bool

    bind_formulas: Callable[..., Callable[[], Any]] | None = None
    """Binds operands as calls of formulas and other operators, if these do all of the work."""

    compiled_when_live = False
    """Whether live calls use compiled kernels if they can: NumPy needs many calls for one."""

    def __init__(
        self, function: Callable[P, R], writes: tuple[str, ...], types: tuple[str, ...]
    ) -> None:
        functools.update_wrapper(self, function)
        self.name = function.__name__
        self.reference = function
        self.writes, self.types = writes, types
        signature = inspect.signature(function)
        self.operands = tuple(signature.parameters)
        self.gives_number = signature.return_annotation in ("float", float)
        for name in writes:
            if name not in self.operands:
                raise ProgramError(f"operator {self.name} has no operand '{name}'")
        self._binder_of: dict[tuple[type, Any], Callable[..., Callable[[], Any]]] = {}
        """(class, dtype) of the first array -> binder."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, recording.dispatch(self, args, kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Callable[[], R]:
        """A callable that runs the operator; keeps arrays by reference, numbers by value."""
        first = args[0]
        known = self._binder_of.get((first.__class__, getattr(first, "dtype", None)))
        return cast("Callable[[], R]", (known or self.binder(first))(*args, **kwargs))

    def binder(self, first: Any) -> Callable[..., Callable[[], Any]]:
        """The function that, given operands, returns a callable that runs the operator on them.

        `first` is the first operand, or a list of arrays that is the first operand; it decides
        device and type. UnsupportedOperator if there is no implementation.
        """
        array = _first_array(first)
        key = array.__class__, getattr(array, "dtype", None)
        if (found := self._binder_of.get(key)) is None:
            found = self._binder_of[key] = self._find(device_of(array), str(array.dtype))
        return found

    def _find(self, device: str, element_type: str) -> Callable[..., Callable[[], Any]]:
        load_device(device)
        load_module(f"{self.reference.__module__}.{DEVICES[device]}")
        is_declared = element_type in self.types or element_type == "float16"
        for key in (element_type, "*") if is_declared else (element_type,):
            if (found := _binders.get((self.name, device, key))) is not None:
                return found
        if self.bind_formulas is not None and is_declared:
            return self.bind_formulas
        is_bound = any(key[:2] == (self.name, device) for key in _binders)
        if device == "numpy" and is_declared and not is_bound:
            return functools.partial(functools.partial, self.reference)
        raise UnsupportedOperator(self.name, element_type, device)

    def __repr__(self) -> str:
        return f"<operator {self.name}({', '.join(self.operands)})>"


def _first_array(first: Any) -> Any:
    """The first array in `first`, an array or nested lists of arrays."""
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return first


def operator(
    writes: Iterable[str] = ("out",), types: tuple[str, ...] = FLOATS
) -> Callable[[Callable[P, R]], Operator[P, R]]:
    """Decorator that declares an operator.

    `writes` names the operands that it overwrites, `types` the element types that it accepts.
    """

    def declare(function: Callable[P, R]) -> Operator[P, R]:
        made = Operator(function, tuple(writes), types)
        if made.name in OPERATORS:
            raise ProgramError(f"operator {made.name} is declared twice")
        OPERATORS[made.name] = made
        return made

    return declare


def implements(
    name: str, device: str, types: Iterable[str] = ("*",), binder: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator that registers an implementation of operator `name` for "numpy" or "cupy".

    `types` are names of dtypes, "*" for all that the operator accepts. With `binder` the function
    returns a callable that does the work; else it does the work itself.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        bind: Any = function if binder else functools.partial(functools.partial, function)
        for element_type in types:
            _binders[(name, device, element_type)] = bind
        return function

    return register

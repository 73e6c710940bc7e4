"""Fields with floating-point arrays: parameters, statistics, natural gradient."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.common import array_of_config
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.tensor.number import Tally

Array = Any
Shape = tuple[int, ...]


class _ArrayField(Field[Array]):
    """Field that holds an array; by default zeros of the shape that `shape(component)` returns."""

    dtype: Any = np.float32

    def __init__(
        self, token: str | None = None, shape: Callable[[Any], Shape] | None = None, **named: Any
    ) -> None:
        super().__init__(token, **named)
        self.shape = shape

    def default_of(self, owner: Any) -> Array:
        """Store zeros in the component `owner` and return them; None if the field has no shape."""
        if self.shape is None:
            return None
        value = tensor.zeros(self.shape(owner), dtype=self.dtype)
        return owner.__dict__.setdefault(self.name, value)

    def write_value(self, writer: Writer, value: Array) -> None:
        write = writer.write_vector if value.ndim == 1 else writer.write_matrix
        write(tensor.to_host(value))

    def map_arrays(self, owner: Any, function: Callable[[Any], Any]) -> None:
        if (value := getattr(owner, self.name)) is not None:
            setattr(owner, self.name, function(value))


def _scale(array: Array, scale: float) -> None:
    if scale == 0.0:
        tensor.fill(array, 0.0)
    else:
        tensor.scale(array, scale)


class _Parameter(_ArrayField):
    """Field for a float32 array; training changes it if `trainable`; empty by default."""

    def __init__(self, token: str, *, trainable: bool = True, **named: Any) -> None:
        super().__init__(token, **named)
        self.is_parameter = trainable  # type: ignore[misc]

    def scale(self, owner: Any, scale: float) -> None:
        if self.is_parameter:
            _scale(getattr(owner, self.name), scale)

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        if self.is_parameter:
            tensor.add(getattr(owner, self.name), getattr(other, self.name), alpha=alpha)


class Matrix(_Parameter):
    """Field for a parameter matrix; info: its RMS and, with `norms`, norms of rows and columns."""

    METHODS = "read_matrix", "", ""

    def __init__(self, token: str, *, norms: bool = False, **named: Any) -> None:
        super().__init__(token, shape=lambda owner: (0, 0), **named)
        self.norms = norms

    def info(self, owner: Any) -> str:
        values = getattr(owner, self.name)
        return parameter_stats(str(self.key), values, include_norms=self.norms)


class Vector(_Parameter):
    """Field for a parameter vector; info lines show its mean and standard deviation.

    `config` is the config key that names a file with the vector; without it the vector is empty.
    """

    METHODS = "read_vector", "", ""

    def __init__(self, token: str, **named: Any) -> None:
        super().__init__(token, shape=lambda owner: (0,), **named)

    def from_config(self, line: ConfigLine, owner: Any) -> None:
        if self.config is None or self.config not in line:
            return
        setattr(owner, self.name, array_of_config(line, self.config, Reader.read_vector))

    def info(self, owner: Any) -> str:
        values = getattr(owner, self.name)
        return parameter_stats(str(self.key), values, include_mean=True)


class Derived(_ArrayField):
    """Field for an array or None, computed by the component's `derive`; not stored in files."""


# -- statistics


class Count(Field[Any]):
    """Field for a count in statistics, a float64 in memory; scaling and adding models change it.

    `form` is the format of its text on info lines.
    """

    METHODS = "read_double", "write_double", ""

    def __init__(self, token: str, form: str = "g", **named: Any) -> None:
        super().__init__(token, None, 0.0, **named)
        self.form = form

    def default_of(self, owner: Any) -> Any:
        return owner.__dict__.setdefault(self.name, Tally(0.0))

    def __set__(self, owner: object, value: Any) -> None:
        self.__get__(owner, type(owner)).assign(value)

    def is_default(self, owner: Any) -> bool:
        return bool(getattr(owner, self.name).is_zero())

    def map_arrays(self, owner: Any, function: Callable[[Any], Any]) -> None:
        tally = getattr(owner, self.name)
        array = function(tally.array)
        if type(array) is not type(tally.array):  # the array moved to another device
            owner.__dict__[self.name] = Tally(float(tally), array)

    def num_bytes(self, owner: Any) -> int:
        return 0  # negligible beside arrays

    def text(self, value: float) -> str:
        return f"{value:{self.form}}"

    def scale(self, owner: Any, scale: float) -> None:
        tally = getattr(owner, self.name)
        tally *= scale

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        if not (theirs := getattr(other, self.name)).is_zero():
            tally = getattr(owner, self.name)
            tally += alpha * theirs

    def zero_stats(self, owner: Any) -> None:
        setattr(owner, self.name, 0.0)


class Statistic(_ArrayField):
    """Field for a float64 sum over the rows of minibatches; files store its average.

    `average_of` names the component's count to divide by; None stores the sum. With a `shape` the
    sum is zero if files have none. Without it the sum is None before the first minibatch, and files
    may have any size.
    """

    dtype = np.float64

    def __init__(
        self,
        token: str,
        average_of: str | None = None,
        *,
        ndim: int = 1,
        shape: Callable[[Any], Shape] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(token, shape, **named)
        self.average_of, self.ndim = average_of, ndim

    def count_of(self, owner: Any) -> float:
        """The owner's count that divides the sum in files; 1 if files have the sum itself."""
        return 1.0 if self.average_of is None else float(getattr(owner, self.average_of))

    def read_value(self, reader: Reader) -> Array:
        return (reader.read_vector if self.ndim == 1 else reader.read_matrix)(np.float64)

    def after_read(self, owner: Any) -> None:
        average = getattr(owner, self.name)
        if average is None or average.size == 0:
            owner.__dict__.pop(self.name, None)
        elif self.average_of is not None:
            setattr(owner, self.name, self.total(average, self.count_of(owner)))

    def total(self, average: Array, count: float) -> Array:
        """The sum over `count` rows, given their average from a file."""
        return average * count

    def owner_problem(self, owner: Any) -> str | None:
        value = getattr(owner, self.name)
        if self.shape is None or value.shape == (expected := self.shape(owner)):
            return None
        return f"{self.token} must be of shape {expected}, found {value.shape}"

    def file_value(self, owner: Any) -> Array:
        value = getattr(owner, self.name)
        if self.average_of is None:
            return np.zeros((0,) * self.ndim) if value is None else value
        average = rounded_average(value, self.count_of(owner))
        return average if value is not None or self.ndim == 1 else average.reshape(0, 0)

    def scale(self, owner: Any, scale: float) -> None:
        if (value := getattr(owner, self.name)) is not None:
            _scale(value, scale)

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        if (theirs := getattr(other, self.name)) is None:
            return
        if getattr(owner, self.name) is None:
            setattr(owner, self.name, tensor.zeros(theirs.shape, like=theirs, dtype=np.float64))
        tensor.add(getattr(owner, self.name), theirs, alpha=alpha)

    def zero_stats(self, owner: Any) -> None:
        self.scale(owner, 0.0)


def rounded_average(total: Array | None, count: float) -> np.ndarray:
    """The average total / count in float32 on the host, rounded at each step like Kaldi's.

    Files store averages. A program that only copies a model changes their last bits, and must
    change them as Kaldi does.
    """
    if total is None:
        return np.zeros(0, np.float32)
    values = tensor.to_host(total).astype(np.float32)
    return values * np.float32(1.0 / count) if count != 0.0 else values


# -- natural gradient


class Side(Enum):
    """Whether natural gradient preconditions the rows or the columns of a parameter matrix."""

    ROWS = 0
    """Derivatives at the output, one column per row of the matrix."""
    COLUMNS = 1
    """Inputs, with one more column for the bias."""


class Preconditioner(Field[OnlineNaturalGradient]):
    """Field for a natural-gradient estimate, which files do not contain.

    Its options, such as the rank, are in files as separate fields, declared with `of=`.
    """

    def __init__(self, side: Side = Side.COLUMNS, *, freezes: bool = True, **options: Any) -> None:
        """Declare an estimate for the rows or columns of a parameter matrix (`side`).

        `options` go to OnlineNaturalGradient. `freezes`: backstitch freezes the estimate.
        """
        super().__init__()
        self.side, self.freezes, self.options = side, freezes, options

    def default_of(self, owner: Any) -> OnlineNaturalGradient:
        value: OnlineNaturalGradient = OnlineNaturalGradient(**self.options)
        owner.__dict__[self.name] = value
        return value

    def owner_problem(self, owner: Any) -> str | None:
        value: OnlineNaturalGradient = getattr(owner, self.name)
        return value.problem()

    def dim(self, owner: Any) -> int:
        """Number of columns of the matrices that `owner` preconditions with the estimate."""
        shapes = [p.shape for p in owner.parameters().values()]
        largest = max(shapes, key=lambda shape: (len(shape), shape))
        return int(largest[0] if self.side is Side.ROWS else largest[-1] + 1)

    def map_arrays(self, owner: Any, function: Callable[[Any], Any]) -> None:
        getattr(owner, self.name).map_arrays(function)

    def num_bytes(self, owner: Any) -> int:
        return 0

    def preconditioners(self, owner: Any) -> list[tuple[OnlineNaturalGradient, int]]:
        return [(getattr(owner, self.name), self.dim(owner))]

    def freeze_natural_gradient(self, owner: Any, freeze: bool) -> None:
        if self.freezes:
            getattr(owner, self.name).frozen = freeze

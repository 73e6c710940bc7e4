"""Kinds of fields with numbers, flags and lists of integers; see field.py."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from nnet3tools.io.stream import Reader, Writer
from nnet3tools.nnet.components.field import Field
from nnet3tools.nnet.config import ConfigLine

T = TypeVar("T")


class _Setting(Field[T]):
    """Field for a value that compiled programs depend on, such as a dimension or flag."""

    def structure(self, owner: Any) -> object:
        value = getattr(owner, self.name)
        return value.tolist() if isinstance(value, np.ndarray) else str(value)


class _Number(Field[T]):
    """Field for a number; with `positive`, config lines must have a number above zero."""

    def __init__(self, *args: Any, positive: bool = False, **named: Any) -> None:
        super().__init__(*args, **named)
        self.positive = positive

    def problem(self, value: Any) -> str | None:
        good = not self.positive or value > 0
        return None if good else f"must be positive, found {self.text(value)}"


class Int(_Number[int], _Setting[int]):
    """Field for an int32."""

    METHODS = "read_int32", "write_int32", "get_int"


class Float(_Number[float]):
    """Field for a float32 that Python holds as a float."""

    METHODS = "read_float", "write_float", "get_float"

    def text(self, value: float) -> str:
        return f"{value:g}"


class NotNegative(Float):
    """Field for a float that must not be negative in config lines; files may have any value."""

    def config_value(self, line: ConfigLine) -> float:
        if (value := super().config_value(line)) < 0.0:
            raise line.error(f"{self.config} must not be negative")
        return value


class Proportion(Float):
    """Field for a float from 0 to 1."""

    def problem(self, value: float) -> str | None:
        return None if 0.0 <= value <= 1.0 else f"must be between 0 and 1, found {value:g}"


class Flag(_Setting[bool]):
    """Field for a boolean."""

    METHODS = "read_bool", "write_bool", "get_bool"

    def text(self, value: bool) -> str:
        return str(value).lower()


class Mark(Flag):
    """Field for a boolean; True if a file contains the token."""

    def __init__(self, token: str, config: str | None = None, **named: Any) -> None:
        super().__init__(token, config, False, omit=True, **named)

    def read_value(self, reader: Reader) -> bool:
        return True

    def write_value(self, writer: Writer, value: bool) -> None:
        pass  # the token alone means true


class IntVector(_Setting[np.ndarray]):
    """Field for a list of int32, held as an array on the host."""

    METHODS = "read_int32_vector", "write_int32_vector", "get_int_list"

    def config_value(self, line: ConfigLine) -> np.ndarray:
        return np.array(super().config_value(line), np.int32)

    def text(self, value: np.ndarray) -> str:
        return ",".join(map(str, value.tolist()))


class IntPairs(_Setting[np.ndarray]):
    """Field for a list of int32 pairs, held as an array (N, 2) on the host."""

    METHODS = "read_int_pairs", "write_int_pairs", ""


class Obsolete(Field[None]):
    """A field of old files, which is read and ignored."""

    def __init__(self, token: str, method: str = "read_double") -> None:
        super().__init__(token, None, None, optional=True)
        self.method = method

    def read_value(self, reader: Reader) -> None:
        getattr(reader, self.method)()

    def is_written(self, owner: Any) -> bool:
        return False

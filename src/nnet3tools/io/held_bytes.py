"""Objects of tables that pass as bytes and are parsed only if a program needs their contents."""

from __future__ import annotations

import io
from typing import Any, Generic, TypeVar

from nnet3tools.io.stream import Reader, Writer

__all__ = ["HeldBytes"]

T = TypeVar("T")


class HeldBytes(Generic[T]):
    """The binary form of an object, without the binary header of the table's entry.

    A subclass for one kind of object defines `read_whole`, which may import NumPy.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @staticmethod
    def read_whole(reader: Reader) -> T:
        """Parse the object."""
        raise NotImplementedError

    @staticmethod
    def write_whole(writer: Writer, value: Any) -> None:
        """Write a parsed object in the writer's mode, binary or text."""
        value.write(writer)

    def whole(self) -> T:
        """Parse the bytes and return the object."""
        return self.read_whole(Reader(io.BytesIO(self.data), binary=True))

    def write(self, writer: Writer) -> None:
        """Write the bytes in binary mode; parse the object and write it as text in text mode."""
        if writer.binary:
            writer.write_bytes(self.data)
        else:
            self.write_whole(writer, self.whole())

"""Objects of tables that pass as bytes, and are read only where somebody wants to see them."""

from __future__ import annotations

import io
from typing import Any, Generic, TypeVar

from nnet3tools.io.stream import Reader, Writer

__all__ = ["HeldBytes"]

T = TypeVar("T")


class HeldBytes(Generic[T]):
    """The bytes of an object in binary, without the header of the table's entry.

    A kind of objects says in `read_whole` how one is read; it may import NumPy there.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @staticmethod
    def read_whole(reader: Reader) -> T:
        """The object, read in full."""
        raise NotImplementedError

    @staticmethod
    def write_whole(writer: Writer, value: Any) -> None:
        """Write an object in the writer's form."""
        value.write(writer)

    def whole(self) -> T:
        """The object that the bytes stand for."""
        return self.read_whole(Reader(io.BytesIO(self.data), binary=True))

    def write(self, writer: Writer) -> None:
        """Write in the writer's form."""
        if writer.binary:
            writer.write_bytes(self.data)
        else:
            self.write_whole(writer, self.whole())

"""How one kind of object stands in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnet3tools.errors import DataError
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

__all__ = ["Holder"]

T = TypeVar("T")


@dataclass(frozen=True)
class Holder(Generic[T]):
    """How one kind of object stands in a table.

    `read(reader)` and `write(writer, value)` deal with the object alone; the binary header, the key
    and the file belong to the table. With `has_header` False (Kaldi's token holders) the object is
    text in any mode. `extract_range(value, "0:9,3:5")` cuts a part for `file[0:9,3:5]`.
    `entries(reader)`, if given, takes keys and objects of an archive several at a time: as many, if
    any, as are at hand in the reader in forms that it knows.
    `adopt(value)`, of an object that any holder wrote, is what reading it back would give, or None
    if that takes its bytes: programs in one process hand objects over so (handover.py).
    """

    name: str
    read: Callable[[Reader], T]
    write: Callable[[Writer, T], None]
    has_header: bool = True
    extract_range: Callable[[T, str], T] | None = None
    entries: Callable[[Reader], Iterator[tuple[str, T]]] | None = None
    adopt: Callable[[object], T | None] | None = None

    def read_object(self, reader: Reader) -> T:
        """Read header and object."""
        if self.has_header:
            reader.read_header()
        else:
            reader.binary = False
        return self.read(reader)

    def write_object(self, writer: Writer, value: T) -> None:
        """Write header and object."""
        if self.has_header:
            writer.write_header()
        self.write(writer, value)

    def cut(self, value: T, range_text: str) -> T:
        """The part of `value` that a range such as "0:9" names; DataError if it has none."""
        if self.extract_range is None:
            raise DataError(f"[{range_text}]: {self.name} has no ranges")
        return self.extract_range(value, range_text)

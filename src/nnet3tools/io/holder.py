"""Holder: how objects of one kind are read from and written to a table."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from nnet3tools.errors import DataError, ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

T = TypeVar("T")


def _never_written(writer: Writer, value: object) -> None:
    raise ProgramError(f"a {type(value).__name__} is only read from tables, never written")


@dataclass(frozen=True)
class Holder(Generic[T]):
    """How objects of one kind are read from and written to a table.

    `read(reader)` and `write(writer, value)` handle the object; the table handles the binary
    header, the key and the file. If `has_header` is False (Kaldi's token holders), objects are
    always text. `extract_range(value, "0:9,3:5")` cuts the block that `file[0:9,3:5]` names.
    `entries(reader)` reads the entries of an archive that are complete in the buffer and in a form
    that it knows, perhaps none. `adopt(value)` converts another holder's object to what `read`
    would give for its bytes, or returns None if the bytes have to be read (handover.py).
    """

    name: str
    read: Callable[[Reader], T]
    write: Callable[[Writer, T], None] = _never_written
    has_header: bool = True
    extract_range: Callable[[T, str], T] | None = None
    entries: Callable[[Reader], Iterator[tuple[str, T]]] | None = None
    adopt: Callable[[object], T | None] | None = None

    def read_object(self, reader: Reader) -> T:
        """Read the binary header, if the kind has one, and the object."""
        if self.has_header:
            reader.read_header()
        else:
            reader.binary = False
        return self.read(reader)

    def write_object(self, writer: Writer, value: T) -> None:
        """Write the binary header, if the kind has one, and the object `value`."""
        if self.has_header:
            writer.write_header()
        self.write(writer, value)

    def cut(self, value: T, range_text: str) -> T:
        """Cut the part of `value` that a range such as "0:9" names; DataError if there is none."""
        if self.extract_range is None:
            raise DataError(f"[{range_text}]: {self.name} has no ranges")
        return self.extract_range(value, range_text)

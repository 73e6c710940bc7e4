"""Pass tables and bytes between programs that run one after another in one process.

A worker process (recipe/) runs `a ark:- | b ark:- out` as a(), then b(). This module keeps what a()
writes to "-" for b(). Objects of tables pass without conversion if both holders allow it
(`Holder.adopt`), otherwise as the bytes that a pipe would carry. Other processes do not use it.
"""

import io
from collections.abc import Iterator
from typing import Any, Protocol, TypeVar

from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.holder import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

T = TypeVar("T")


@dataclass
class Handed:
    """A program's output in memory: bytes (`data`), or the (key, object) `items` of a table.

    `holder` is the one that wrote the items; None for bytes.
    """

    data: bytes = b""
    items: list[tuple[str, Any]] = field(default_factory=list)
    holder: Holder[Any] | None = None

    def as_bytes(self) -> bytes:
        """The output as the bytes that a pipe would have carried."""
        if self.holder is None:
            return self.data
        file = io.BytesIO()
        writer = Writer(file, True, "-")
        for key, value in self.items:
            writer.write_text(key + " ")
            self.holder.write_object(writer, value)
        return file.getvalue()

    def reader(self, name: str) -> Reader:
        """A Reader of the program's output as bytes; error messages call the stream `name`."""
        return Reader(io.BytesIO(self.as_bytes()), name)

    def table(self, holder: Holder[T]) -> Iterator[tuple[str, T]] | None:
        """The (key, object) pairs that a program wrote, as `holder` would read them from a file.

        None if the program wrote no table.
        """
        if self.holder is None:
            return None
        return ((key, self._object(key, value, holder)) for key, value in self.items)

    def _object(self, key: str, value: Any, holder: Holder[T]) -> T:
        if holder.adopt is not None and (adopted := holder.adopt(value)) is not None:
            return adopted
        assert self.holder is not None
        file = io.BytesIO()
        self.holder.write_object(Writer(file, True, "-"), value)
        reader = Reader(io.BytesIO(file.getvalue()), "-")
        reader.key = key
        return holder.read_object(reader)


class TableKeeper(Protocol):
    """Interface of a cache of archives that several programs of one process read."""

    def table(self, path: str, holder: Holder[T]) -> list[tuple[str, T]] | None:
        """The (key, object) pairs of archive `path` as read by `holder`; None to read from disk."""


_offered: dict[str, Handed] = {}
_collecting: dict[str, Handed] = {}
_keeper: TableKeeper | None = None


def offer(rxfilename: str, handed: Handed) -> None:
    """Make later calls that read `rxfilename` get the output `handed` in place of a file."""
    _offered[rxfilename] = handed


def collect(wxfilename: str) -> None:
    """Make later writes to `wxfilename` go to memory, from where `collected` returns them."""
    _collecting[wxfilename] = Handed()


def collected(wxfilename: str) -> Handed:
    """Return, and forget, the output written to `wxfilename` since `collect`."""
    return _collecting.pop(wxfilename)


def clear() -> None:
    """Forget all that `offer` and `collect` have registered."""
    _offered.clear()
    _collecting.clear()


def find(rxfilename: str) -> Handed | None:
    """The output that `offer` has stored under `rxfilename`, or None."""
    return _offered.get(rxfilename)


def sink(wxfilename: str) -> Handed | None:
    """The Handed that collects output to `wxfilename`; None without a `collect(wxfilename)`."""
    return _collecting.get(wxfilename)


def keep_tables(keeper: TableKeeper | None) -> None:
    """Set the keeper that `kept_table` asks for archives; None removes it."""
    global _keeper
    _keeper = keeper


def kept_table(path: str, holder: Holder[T]) -> list[tuple[str, T]] | None:
    """The (key, object) pairs of archive `path`, for `holder`, if the keeper has it; else None."""
    return None if _keeper is None else _keeper.table(path, holder)


class Collected(io.BytesIO):
    """A file in memory that stores its bytes in a Handed when it is closed."""

    def __init__(self, handed: Handed) -> None:
        super().__init__()
        self._handed = handed

    def close(self) -> None:
        """Store the written bytes in the Handed and close the file."""
        if not self.closed:
            self._handed.data = self.getvalue()
        super().close()

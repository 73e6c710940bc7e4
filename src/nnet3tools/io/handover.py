"""What programs that run one after another in one process hand over, instead of through pipes.

A process that stays (recipe/) runs `a ark:- | b ark:- out` as a(), then b(): what a writes to "-"
is kept here and is what b reads. Objects of tables pass as they are where both sides say that they
may (`Holder.adopt`), else as the bytes that a pipe would carry. Other programs hand over nothing.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol, TypeVar

from nnet3tools.io.holder import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.writer import Writer

__all__ = [
    "Handed",
    "TableKeeper",
    "clear",
    "collect",
    "collected",
    "find",
    "keep_tables",
    "kept_table",
    "offer",
    "open_sink",
    "sink",
]

T = TypeVar("T")


@dataclass
class Handed:
    """What was written: bytes, or objects of a table with the holder that wrote them."""

    data: bytes = b""
    items: list[tuple[str, Any]] = field(default_factory=list)
    holder: Holder[Any] | None = None

    def as_bytes(self) -> bytes:
        """What a pipe would have carried."""
        if self.holder is None:
            return self.data
        file = io.BytesIO()
        writer = Writer(file, True, "-")
        for key, value in self.items:
            writer.write_text(key + " ")
            self.holder.write_object(writer, value)
        return file.getvalue()

    def reader(self, name: str) -> Reader:
        """A reader of the bytes."""
        return Reader(io.BytesIO(self.as_bytes()), name)

    def table(self, holder: Holder[T]) -> Iterator[tuple[str, T]] | None:
        """The objects as reading them with `holder` gives; None if they must be read as bytes."""
        if self.holder is None:
            return None
        return self._adopted(holder)

    def _adopted(self, holder: Holder[T]) -> Iterator[tuple[str, T]]:
        for key, value in self.items:
            adopted = None if holder.adopt is None else holder.adopt(value)
            yield key, self._reread(key, value, holder) if adopted is None else adopted

    def _reread(self, key: str, value: Any, holder: Holder[T]) -> T:
        assert self.holder is not None
        file = io.BytesIO()
        self.holder.write_object(Writer(file, True, "-"), value)
        reader = Reader(io.BytesIO(file.getvalue()), "-")
        reader.key = key
        return holder.read_object(reader)


class TableKeeper(Protocol):
    """Keeps what was read from archives on disk for the next program that reads them."""

    def table(self, path: str, holder: Holder[T]) -> list[tuple[str, T]] | None:
        """All of an archive; None to read it as usual."""


_offered: dict[str, Handed] = {}
_collecting: dict[str, Handed] = {}
_keeper: TableKeeper | None = None


def offer(rxfilename: str, handed: Handed) -> None:
    """From now on whoever opens this rxfilename gets `handed`."""
    _offered[rxfilename] = handed


def collect(wxfilename: str) -> None:
    """From now on what is written to this wxfilename is kept for `collected`."""
    _collecting[wxfilename] = Handed()


def collected(wxfilename: str) -> Handed:
    """What was written to a wxfilename since `collect`."""
    return _collecting.pop(wxfilename)


def clear() -> None:
    """Nothing is handed over any more."""
    _offered.clear()
    _collecting.clear()


def find(rxfilename: str) -> Handed | None:
    """What is offered under this rxfilename."""
    return _offered.get(rxfilename)


def sink(wxfilename: str) -> Handed | None:
    """Where to put what is written to this wxfilename, if it is collected."""
    return _collecting.get(wxfilename)


def keep_tables(keeper: TableKeeper | None) -> None:
    """Ask `keeper` for archives on disk before they are read."""
    global _keeper
    _keeper = keeper


def kept_table(path: str, holder: Holder[T]) -> list[tuple[str, T]] | None:
    """What the keeper has of an archive on disk."""
    return None if _keeper is None else _keeper.table(path, holder)


class Collected(io.BytesIO):
    """A file whose bytes go to a Handed when it is closed."""

    def __init__(self, handed: Handed) -> None:
        super().__init__()
        self._handed = handed

    def close(self) -> None:
        """Keep the bytes."""
        if not self.closed:
            self._handed.data = self.getvalue()
        super().close()


def open_sink(handed: Handed) -> BinaryIO:
    """A file to write what is collected."""
    return Collected(handed)

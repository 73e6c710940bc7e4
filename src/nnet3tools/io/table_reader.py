"""Reading tables in order: archives and script files."""

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Generic, Self, TypeVar

from nnet3tools.errors import DataError, UserError, quoted
from nnet3tools.io import handover, log
from nnet3tools.io.files import FileKind, classify_input, open_input, read_text_lines, split_offset
from nnet3tools.io.holder import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.specifiers import Rspecifier, TableKind, parse_rspecifier

T = TypeVar("T")

_RANGE = r"(.+)\[([^\[\]]*)\]"


def parse_script_line(line: str, where: str) -> tuple[str, str, str]:
    """Split a script file's line into key, rxfilename, range ("" if none); errors give `where`."""
    key, *rest = line.strip().split(None, 1)
    if not rest or line[0].isspace():
        raise DataError(f"{where}: expected 'key rxfilename', found {quoted(line, 60)}")
    return key, *split_range(rest[0])


def split_range(rxfilename: str) -> tuple[str, str]:
    """Split 'file[0:9]' into ('file', '0:9'); the range is "" if there is none."""
    match = re.fullmatch(_RANGE, rxfilename) if rxfilename[-1:] == "]" else None
    return (match[1].rstrip(), match[2]) if match else (rxfilename, "")


def script_lines(rxfilename: str) -> Iterator[tuple[str, str, str]]:
    """Yield (key, rxfilename, range) for each line of a script file; DataError for a wrong line."""
    name = rxfilename or "-"
    for number, line in enumerate(read_text_lines(rxfilename), start=1):
        if not line.strip():
            raise DataError(f"{name}: line {number} of the script file is empty")
        yield parse_script_line(line, f"{name}: line {number}")


def read_object(rxfilename: str, holder: Holder[T]) -> T:
    """Read the object in a file or pipe, or the part that a range after its name selects."""
    with contextlib.closing(ObjectLoader(holder)) as loader:
        return loader.load("", *split_range(rxfilename))


class ObjectLoader(Generic[T]):
    """Loads objects that lines of script files name.

    It keeps the last file open, because most lines point into one archive, and the last object,
    because lines may name ranges of one object.
    """

    def __init__(self, holder: Holder[T]) -> None:
        self._holder = holder
        self._path = ""
        self._files = contextlib.ExitStack()
        self._reader: Reader | None = None
        self._last: tuple[str, T] | None = None

    def close(self) -> None:
        """Close the open files."""
        self._files.close()
        self._reader, self._path = None, ""

    def load(self, key: str, rxfilename: str, range_text: str = "") -> T:
        """Load an object, or the part that `range_text` names; errors give `key`."""
        if self._last is None or self._last[0] != rxfilename:
            self._last = None
            self._last = (rxfilename, self._read(key, rxfilename))
        value = self._last[1]
        if not range_text:
            return value
        try:
            return self._holder.cut(value, range_text)
        except DataError as error:
            raise DataError(f"{rxfilename}: key '{key}': {error}") from None

    def _read(self, key: str, rxfilename: str) -> T:
        if classify_input(rxfilename) in (FileKind.PIPE, FileKind.STANDARD):
            with open_input(rxfilename, header=False) as reader:
                reader.key = key
                return self._holder.read_object(reader)
        path, offset = split_offset(rxfilename)
        if self._reader is None or path != self._path:
            self.close()
            self._reader = self._files.enter_context(open_input(path, header=False))
            self._path = path
        self._reader.key = key
        self._reader.seek(offset)
        return self._holder.read_object(self._reader)


def iterate_archive(reader: Reader, holder: Holder[T]) -> Iterator[tuple[str, T]]:
    """Yield the (key, object) pairs of an archive up to its end."""
    while True:
        reader.key, reader.binary = "", False
        if holder.entries is not None:
            yield from holder.entries(reader)
        if reader.at_end():
            return
        key = _read_key(reader)
        reader.key = key
        yield key, holder.read_object(reader)


def archive_items(
    rxfilename: str, holder: Holder[T], opened: Callable[[Reader], None] | None = None
) -> Iterator[tuple[str, T]]:
    """Yield the (key, object) pairs of an archive, from memory if this process holds the archive.

    `opened` is called with the reader if the archive is read from a file or pipe.
    """
    if (handed := handover.find(rxfilename)) is not None:
        if (items := handed.table(holder)) is not None:
            yield from items
            return
    elif (kept := handover.kept_table(rxfilename, holder)) is not None:
        yield from kept
        return
    with open_input(rxfilename, header=False) as reader:
        if opened is not None:
            opened(reader)
        yield from iterate_archive(reader, holder)


def _read_key(reader: Reader) -> str:
    """Read a key and the blank after it; a newline after the key is left to the object."""
    start = reader.offset
    key = reader.peek_token()
    reader.skip_word()
    if reader.peek_byte() not in (32, 9, 10):
        raise reader.error(
            f"expected a key and a space, found {quoted(key, 40)} (not an archive?)", start
        )
    if reader.peek_byte() != 10:
        reader.skip_byte()
    return key


class Closeable:
    """Base class of context managers that are closed when the block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the open files."""
        raise NotImplementedError


class SequentialTableReader(Closeable, Generic[T]):
    """Iterates over the (key, object) pairs of a table; a context manager.

    One object is in memory at a time. OptionError for a wrong rspecifier, DataError for unreadable
    data. With the option `p`, an archive ends at the first error, and unreadable objects of a
    script file are skipped with a warning.
    """

    def __init__(self, rspecifier: str, holder: Holder[T]) -> None:
        self._specifier = parse_rspecifier(rspecifier)
        self._holder = holder
        self._items: Iterator[tuple[str, T]] | None = None
        self._reader: Reader | None = None

    def close(self) -> None:
        """Stop reading and close the open files."""
        if self._items is not None:
            self._items.close()  # type: ignore[attr-defined]
            self._items = None

    def __iter__(self) -> Iterator[tuple[str, T]]:
        if self._items is None:
            items = self._all_items()
            is_here = handover.find(self._specifier.rxfilename) is not None
            ahead = self._specifier.background and not is_here
            if ahead:
                from nnet3tools.io.read_ahead import read_ahead  # takes 2 ms

                items = read_ahead(items, depth=1)
            self._items = items
        return self._items

    def pauses(self, seconds: float) -> bool:
        """Whether an archive gives no byte for `seconds`: its writer may wait for our output.

        False before the first object was read.
        """
        ahead = self._specifier.background
        return self._reader is not None and not ahead and self._reader.pauses(seconds)

    def _all_items(self) -> Iterator[tuple[str, T]]:
        specifier = self._specifier
        if specifier.kind is TableKind.SCRIPT:
            yield from _script_items(specifier, self._holder)
            return
        try:
            yield from archive_items(specifier.rxfilename, self._holder, self._opened)
        except DataError as error:
            if not specifier.permissive:
                raise
            log.warning(f"{error} (ignored: {specifier.text} is permissive)")

    def _opened(self, reader: Reader) -> None:
        self._reader = reader


def _script_items(specifier: Rspecifier, holder: Holder[T]) -> Iterator[tuple[str, T]]:
    with contextlib.closing(ObjectLoader(holder)) as loader:
        for key, rxfilename, range_text in script_lines(specifier.rxfilename):
            try:
                value = loader.load(key, rxfilename, range_text)
            except UserError as error:
                if not specifier.permissive:
                    raise
                log.warning(f"{error} (left out: {specifier.text} is permissive)")
            else:
                yield key, value

"""Reading tables by key: script files, and archives with or without sorted keys."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from nnet3tools.errors import DataError, UserError
from nnet3tools.io import log
from nnet3tools.io.holder import Holder
from nnet3tools.io.specifiers import Rspecifier, TableKind, parse_rspecifier
from nnet3tools.io.table_reader import Closeable, ObjectLoader, archive_items, script_lines

T = TypeVar("T")


def _order(key: str) -> bytes:
    """Sort key of a table's key: its bytes, as in `LC_ALL=C sort`."""
    return key.encode("utf-8", "surrogateescape")


class RandomAccessTableReader(Closeable, Generic[T]):
    """Reads the objects of a table by key: `key in reader`, `reader[key]`.

    An archive is read only as far as needed to find a key (to its end if it is not sorted). Objects
    stay in memory, unless the options allow to drop them: with `o` after their first use, with
    `s,cs` once a later key is asked for. DataError for unreadable objects and missing keys; with
    `p`, an unreadable object counts as missing.
    """

    def __init__(self, rspecifier: str, holder: Holder[T]) -> None:
        specifier = parse_rspecifier(rspecifier)
        source: _Script[T] | _Archive[T]
        if specifier.kind is TableKind.SCRIPT:
            source = _Script(specifier, holder)
        else:
            source = _Archive(specifier, holder)
        self._specifier, self._source = specifier, source

    def close(self) -> None:
        """Close the open files."""
        self._source.close()

    def __contains__(self, key: str) -> bool:
        return self._source.has(key)

    def __getitem__(self, key: str) -> T:
        if not self._source.has(key):
            raise DataError(f"no key '{key}' in the table '{self._specifier.text}'")
        return self._source.take(key)

    def get(self, key: str) -> T | None:
        """The object with this key; None if the table does not have the key."""
        return self._source.take(key) if self._source.has(key) else None


class _Script(Generic[T]):
    def __init__(self, specifier: Rspecifier, holder: Holder[T]) -> None:
        self._permissive = specifier.permissive
        self._loader = ObjectLoader(holder)
        self._entries: dict[str, tuple[str, str]] = {}
        last = ""
        for key, rxfilename, range_text in script_lines(specifier.rxfilename):
            if key in self._entries:
                raise DataError(f"{specifier.rxfilename}: duplicate key '{key}'")
            if specifier.sorted and _order(key) < _order(last):
                raise DataError(
                    f"{specifier.rxfilename}: key '{key}' after '{last}' is not in sorted order "
                    "(option s)"
                )
            self._entries[key] = rxfilename, range_text
            last = key

    def close(self) -> None:
        self._loader.close()

    def has(self, key: str) -> bool:
        if key not in self._entries or not self._permissive:
            return key in self._entries
        try:
            self.take(key)
        except UserError as error:
            log.warning(f"{error} (key '{key}' counts as missing: permissive)")
            return False
        return True

    def take(self, key: str) -> T:
        return self._loader.load(key, *self._entries[key])


class _Archive(Generic[T]):
    """Access by key to an archive; keeps the objects that the rspecifier's options require."""

    def __init__(self, specifier: Rspecifier, holder: Holder[T]) -> None:
        self._specifier = specifier
        self._items: Iterator[tuple[str, T]] | None = self._read(holder)
        self._kept: dict[str, T] = {}
        self._used_keys: set[str] = set()
        self._last_read = ""
        self._last_asked = ""
        self._is_closed = False

    def close(self) -> None:
        if self._items is not None:
            self._items.close()  # type: ignore[attr-defined]
        self._items = None
        self._kept.clear()
        self._is_closed = True

    def has(self, key: str) -> bool:
        if self._is_closed:
            raise DataError(f"table '{self._specifier.text}' is closed")
        sorted_both = self._specifier.sorted and self._specifier.called_sorted
        if sorted_both and _order(key) < _order(self._last_asked):
            raise DataError(
                f"table '{self._specifier.text}' (option cs) asked for '{key}' after "
                f"'{self._last_asked}'"
            )
        self._last_asked = key
        if key in self._used_keys:
            raise DataError(
                f"table '{self._specifier.text}' (option o) asked for key '{key}' a second time"
            )
        while key not in self._kept and not self._is_past(key) and self._advance():
            if sorted_both:
                self._kept = {self._last_read: self._kept[self._last_read]}
        return key in self._kept

    def take(self, key: str) -> T:
        if self._specifier.once and not (self._specifier.sorted and self._specifier.called_sorted):
            self._used_keys.add(key)
            return self._kept.pop(key)
        return self._kept[key]

    def _is_past(self, key: str) -> bool:
        """Whether a sorted archive was read beyond the position that the key would have."""
        read = self._last_read
        return bool(self._specifier.sorted and read and _order(read) > _order(key))

    def _advance(self) -> bool:
        """Read one more object of the archive; False at its end."""
        item = next(self._items, None) if self._items is not None else None
        if item is None:
            self._items = None
            return False
        key, value = item
        if self._specifier.sorted and self._last_read and _order(key) <= _order(self._last_read):
            raise DataError(
                f"{self._specifier.rxfilename}: key '{key}' after '{self._last_read}' is not in "
                "sorted order (option s)"
            )
        if key in self._kept or key in self._used_keys:
            raise DataError(f"{self._specifier.rxfilename}: duplicate key '{key}'")
        self._kept[key] = value
        self._last_read = key
        return True

    def _read(self, holder: Holder[T]) -> Iterator[tuple[str, T]]:
        try:
            yield from archive_items(self._specifier.rxfilename, holder)
        except DataError as error:
            if not self._specifier.permissive:
                raise
            log.warning(f"{error} (ignored: {self._specifier.text} is permissive)")


class MappedTableReader(Closeable, Generic[T]):
    """Reads a table by key through a map such as utt2spk, or directly if there is no map."""

    def __init__(self, rspecifier: str, holder: Holder[T], map_rspecifier: str = "") -> None:
        self._map: RandomAccessTableReader[str] | None = None
        self._lookup: Callable[[str], str | None] = lambda key: key
        with contextlib.ExitStack() as stack:
            if map_rspecifier:
                from nnet3tools.io.holders import TOKEN  # imported late because it imports NumPy

                self._map = stack.enter_context(RandomAccessTableReader(map_rspecifier, TOKEN))
                self._lookup = self._map.get
            self._table = stack.enter_context(RandomAccessTableReader(rspecifier, holder))
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close both tables."""
        self._stack.close()

    def __contains__(self, key: str) -> bool:
        mapped = self._lookup(key)
        return mapped is not None and mapped in self._table

    def __getitem__(self, key: str) -> T:
        if (mapped := self._lookup(key)) is None:
            raise DataError(f"no key '{key}' in the map of the table")
        return self._table[mapped]

    def get(self, key: str) -> T | None:
        """The object for `key` through the map; None if the key, or its mapped key, is missing."""
        mapped = self._lookup(key)
        return None if mapped is None else self._table.get(mapped)

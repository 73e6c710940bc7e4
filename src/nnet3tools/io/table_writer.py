"""Writing tables: an archive, the files that a script names, or an archive and its script."""

import contextlib
import io
import itertools
import os
from collections.abc import Sequence
from typing import Generic, Self, TypeVar

from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import handover
from nnet3tools.io.files import FileKind, classify_output, open_output
from nnet3tools.io.holder import Holder
from nnet3tools.io.reader import Reader
from nnet3tools.io.specifiers import TableKind, parse_wspecifier
from nnet3tools.io.table_reader import script_lines
from nnet3tools.io.writer import Writer

T = TypeVar("T")


def _same_file(a: str, b: str) -> bool:
    """Whether two wxfilenames name one regular file."""
    a, b = os.path.realpath(a), os.path.realpath(b)
    return a == b and (os.path.isfile(a) or not os.path.exists(a))


class TableWriter(Generic[T]):
    """Writes (key, object) pairs to a table; a context manager.

    Files appear only if the block ends without an exception; pipes and standard output receive
    objects immediately. OptionError for a wrong wspecifier, DataError if writing fails.
    """

    def __init__(self, wspecifier: str, holder: Holder[T]) -> None:
        self._specifier = specifier = parse_wspecifier(wspecifier)
        self._holder = holder
        self._stack = contextlib.ExitStack()
        self._archive: Writer | None = None
        self._script: Writer | None = None
        self._files: dict[str, str] = {}
        self._handed: handover.Handed | None = None
        if specifier.kind is TableKind.SCRIPT:
            self._files = {key: name for key, name, _ in script_lines(specifier.script)}
            return
        if (
            specifier.kind is TableKind.BOTH
            and classify_output(specifier.archive) is not FileKind.FILE
        ):
            raise OptionError(f"'{wspecifier}': a script can only point into an archive on disk")
        if specifier.kind is TableKind.BOTH and _same_file(specifier.archive, specifier.script):
            raise OptionError(f"'{wspecifier}': archive and script are the same file")
        if specifier.binary and (handed := handover.sink(specifier.archive)) is not None:
            handed.holder, self._handed = holder, handed
            return
        with contextlib.ExitStack() as stack:
            # Entered first, so closed last: a script must never appear before its archive.
            if specifier.kind is TableKind.BOTH:
                self._script = stack.enter_context(open_output(specifier.script, False, False))
            self._archive = stack.enter_context(
                open_output(specifier.archive, specifier.binary, header=False)
            )
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def close(self) -> None:
        """Close the files, which makes them appear. Only needed without `with`."""
        self._stack.close()

    def flush(self) -> None:
        """Flush the archive, so that a reader of a pipe or standard output gets all objects."""
        if self._archive is not None:
            self._archive.file.flush()

    def write(self, key: str, value: T) -> None:
        """Write an object under a key."""
        raw = key.encode("utf-8", "surrogateescape") if isinstance(key, str) else b""
        if raw.split() != [raw]:
            raise DataError(f"'{key}' cannot be the key of a table: expected one word")
        if self._handed is not None:
            self._handed.items.append((key, value))
            return
        if self._archive is None:
            self._write_file(key, value)
            return
        self._archive.write_bytes(raw + b" ")
        if self._script is not None:
            where = f"{self._specifier.archive}:{self._archive.offset}"
            self._script.write_text(f"{key} {where}\n")
        self._holder.write_object(self._archive, value)
        if self._specifier.flush:
            self._archive.file.flush()

    def write_encoded(self, keys: Sequence[str], objects: Sequence[bytes]) -> bool:
        """Write objects, in binary form without header, under valid keys as `write` does.

        Returns False, writing nothing, unless the table is one binary archive.
        """
        is_plain = self._script is None and not self._specifier.flush
        if self._archive is None or not self._archive.binary or not is_plain:
            return False
        heads = [key.encode("utf-8", "surrogateescape") + b" \0B" for key in keys]
        parts = itertools.chain.from_iterable(zip(heads, objects, strict=True))
        self._archive.write_bytes(b"".join(parts))
        return True

    def write_all(self, keys: Sequence[str], objects: Sequence[T | bytes]) -> None:
        """Write objects under valid keys; bytes are an object in binary form without header."""
        if set(map(type, objects)) == {bytes} and self.write_encoded(keys, objects):  # type: ignore[arg-type]
            return
        for key, one in zip(keys, objects, strict=True):
            if isinstance(one, bytes):
                one = self._holder.read(Reader(io.BytesIO(one), binary=True))
            self.write(key, one)

    def _write_file(self, key: str, value: T) -> None:
        if (name := self._files.get(key)) is None:
            if self._specifier.permissive:
                return
            raise DataError(f"{self._specifier.script}: no entry for key '{key}'")
        with open_output(name, self._specifier.binary, header=False) as writer:
            self._holder.write_object(writer, value)

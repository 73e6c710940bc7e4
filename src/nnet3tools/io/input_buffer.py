"""The buffer of an input stream: look-ahead, byte offsets, and bulk reads that trust no header.

A size in a header never causes an allocation by itself. It is checked against the length of the
stream or, if that is unknown, the bytes are read in bounded blocks.
"""

from __future__ import annotations

import os
import re
import select
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from nnet3tools.errors import DataError, quoted
from nnet3tools.io.memory import lack_of_memory
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

T = TypeVar("T")

_PIECE, _LARGEST_PIECE = 1 << 16, 1 << 20
"""The bytes of the first read, and of later ones if a stream is read on and on."""
_BIG_PIECE = 1 << 24
_LARGEST_TAKEN = 1 << 26
LOOK_AHEAD = 1 << 16
MAX_TEXT = 1 << 30
"""The most bytes of a line, of a matrix in text, and of a whole text: /dev/zero has no end."""
_WORD = re.compile(rb"[ \t\n\r\f\v]*[^ \t\n\r\f\v]+")
_SPACE = re.compile(rb"[ \t\n\r\f\v]*")


class InputBuffer:
    """A buffered binary input stream, which may be a pipe without length and seek.

    Errors in the data are DataErrors that give `name` (of the stream) and `key` (of the table's
    entry). Errors of the system while reading remain OSErrors, so that no caller takes them for
    damaged data, which it may skip.
    `binary` is the mode of the values; `read_header` sets it.
    """

    def __init__(self, file: BinaryIO, name: str = "stream", binary: bool = False) -> None:
        self.name, self.binary, self.key = name, binary, ""
        self._file = file
        self._read = getattr(file, "read1", file.read)
        self._buffer = bytearray()
        self._at = 0
        self._base = 0  # file offset of the buffer's first byte
        self._piece = _PIECE
        self.insufficient_end = -1
        """Offset of the end of bytes in which `take` need not look for the next object again."""
        self.ended = False
        """Whether the end of the stream was met; unread bytes may still be in the buffer."""

    @property
    def offset(self) -> int:
        """Offset in bytes of the next byte, counted from the start of the stream."""
        return self._base + self._at

    def error(self, message: str, offset: int | None = None) -> DataError:
        """Make a DataError with stream, key, byte offset (default: the position) and message."""
        key = f" key {quoted(self.key, 60)}:" if self.key else ""
        place = self.offset if offset is None else offset
        text = f"{self.name}:{key} byte {place}: {message}"
        return DataError(text if text.isprintable() else repr(text)[1:-1])

    def seek(self, offset: int) -> None:
        """Continue at a byte offset of a seekable file."""
        if self._base <= offset <= self._base + len(self._buffer):
            self._at = offset - self._base
            return
        try:
            self._file.seek(offset)
        except OSError as error:
            raise self.error(f"cannot go to byte {offset}: {error.strerror}") from None
        self._buffer.clear()
        self._at, self._base, self.ended = 0, offset, False
        self._piece = _PIECE

    def pauses(self, seconds: float) -> bool:
        """Whether neither a byte nor the end of the stream arrives within `seconds`."""
        if self._at < len(self._buffer) or self.ended:
            return False
        try:
            poll = select.poll()
            poll.register(self._file.fileno(), select.POLLIN)
        except (OSError, AttributeError):  # no file descriptor, such as a BytesIO
            return False
        return not poll.poll(1000 * seconds)

    def read_header(self) -> None:
        r"""Consume the binary header "\0B" if it comes next, and set `binary` accordingly."""
        self.binary = False
        if self.peek_byte() == 0:
            self._need(2, "the binary header")
            if self._buffer[self._at + 1] != ord("B"):
                raise self.error("expected the binary header \\0B, found a zero byte")
            self._at += 2
            self.binary = True

    def peek_byte(self) -> int:
        """Return the next byte without consuming it; -1 at the end of the stream."""
        if self._at == len(self._buffer) and not self.more():
            return -1
        return self._buffer[self._at]

    def skip_byte(self) -> None:
        """Consume the byte that `peek_byte` returned."""
        self._at += 1

    def buffered(self, limit: int) -> bytes:
        """Return up to `limit` unread bytes of the buffer, without consuming them."""
        with memoryview(self._buffer) as view:
            return bytes(view[self._at : self._at + limit])

    def more(self) -> bool:
        """Append a block of the stream to the buffer; False at the end of the stream."""
        if self._at:
            del self._buffer[: self._at]
            self._base += self._at
            self._at = 0
        piece = self._read(max(self._piece, min(len(self._buffer), _BIG_PIECE)))
        if not piece:
            self.ended = True
            return False
        self._buffer += piece
        self._piece = min(2 * self._piece, _LARGEST_PIECE)
        return True

    def advance(self, size: int) -> None:
        """Consume `size` bytes, which `buffered` has shown."""
        self._at += size

    def take(self, find: Callable[[bytearray, int], tuple[T, int] | None]) -> T | None:
        """Consume and return the object that `find` recognizes; None, consuming nothing, if none.

        `find(data, start)` returns the object at `start` and its end, or None if it does not know
        the object's form. It raises IndexError if it needs more data.
        """
        while True:
            try:
                if self._base + len(self._buffer) == self.insufficient_end:
                    raise IndexError
                found = find(self._buffer, self._at)
            except IndexError:
                if len(self._buffer) - self._at > _LARGEST_TAKEN or not self.more():
                    return None
                continue
            if found is None:
                return None
            value, self._at = found
            return value

    def skip_space(self) -> None:
        """Consume white space."""
        while True:
            self._at = _SPACE.match(self._buffer, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._buffer) or not self.more():
                return

    def skip_word(self) -> None:
        """Consume white space and the word after it, but not the character after the word."""
        self._at = self._match(_WORD, "a word").end()

    def at_end(self) -> bool:
        """Whether the stream has no more data; in text mode white space does not count as data."""
        if not self.binary:
            self.skip_space()
        return self.peek_byte() < 0

    def expect_byte(self, byte: bytes, what: str) -> None:
        """Consume white space and then `byte`; DataError, expecting `what`, for other bytes."""
        self.skip_space()
        if self.peek_byte() != byte[0]:
            raise self.error(f"expected {what} ({byte.decode()}), found {self._next_text()}")
        self._at += 1

    def until_bracket(self, what: str) -> bytes:
        """Consume bytes through the next ']'; return the bytes before it; errors name `what`."""
        end = self._find(b"]")
        if end < 0:
            raise self.error(f"expected {what}, found the end of the stream before its ']'")
        body = bytes(self._buffer[self._at : end])
        self._at = end + 1
        return body

    def until_brackets(self, count: int, what: str) -> bytes:
        """Consume and return bytes through the next `count` ']'; `what` names them in errors."""
        num_brackets, searched = 0, 0
        while True:
            piece = np.frombuffer(bytes(self._buffer[self._at + searched :]), np.uint8)
            brackets = np.flatnonzero(piece == ord("]"))
            if num_brackets + brackets.size >= count:
                end = searched + int(brackets[count - num_brackets - 1]) + 1 if count else 0
                body = self.buffered(end)
                self._at += end
                return body
            num_brackets, searched = num_brackets + brackets.size, searched + piece.size
            if not self.more():
                raise self.error(f"expected {what}, found the end of the stream")

    def read_array(self, count: int, dtype: DTypeLike, what: str) -> NDArray:
        """Read `count` raw elements of type `dtype`; an error says that `what` was expected."""
        dtype = np.dtype(dtype)
        return self._read_bytes(count * dtype.itemsize, what).view(dtype)

    def _need(self, size: int, what: str) -> None:
        """Buffer at least `size` (few) bytes; DataError, expecting `what`, if the stream ends."""
        while len(self._buffer) - self._at < size:
            if not self.more():
                left = len(self._buffer) - self._at
                raise self.error(f"expected {what}, found the end of the stream ({left} bytes on)")

    def _match(
        self, pattern: re.Pattern[bytes], what: str, closed: bool = False
    ) -> re.Match[bytes]:
        """Match `pattern` at the position, reading on while more bytes may change the match.

        `closed` says that bytes after a match never change it. DataError, expecting `what`, if
        there is no match.
        """
        while True:
            match = pattern.match(self._buffer, self._at)
            if match is not None and (closed or match.end() < len(self._buffer)):
                return match
            if len(self._buffer) - self._at > LOOK_AHEAD or not self.more():
                # Match again, because a match refers to the buffer, which `more` may have moved.
                if (match := pattern.match(self._buffer, self._at)) is not None:
                    return match
                raise self.error(f"expected {what}, found {self._next_text()}")

    def _find(self, byte: bytes, most: int = MAX_TEXT) -> int:
        """Position in the buffer of the next `byte`, reading ahead; -1 if the stream has none.

        DataError if none of the next `most` bytes is `byte`, and more follow.
        """
        searched = 0
        while (place := self._buffer.find(byte, self._at + searched)) < 0:
            searched = len(self._buffer) - self._at
            if searched > most:
                raise self.error(f"expected at most {most} bytes of text, found more")
            if not self.more():
                return -1
        return place

    def _bytes_left(self) -> int | None:
        """Number of unread bytes of the stream; None if its length is unknown."""
        buffered = len(self._buffer) - self._at
        try:
            if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
                return None
        except (OSError, AttributeError):
            pass  # no file descriptor, such as a BytesIO
        if not self._file.seekable():
            return None
        here = self._file.tell()
        end = self._file.seek(0, os.SEEK_END)
        self._file.seek(here)
        return buffered + max(0, end - here)

    def _read_bytes(self, size: int, what: str) -> NDArray[np.uint8]:
        buffered = min(size, len(self._buffer) - self._at)
        left = buffered if size <= buffered else self._bytes_left()
        if left is not None and left < size:
            raise self.error(
                f"expected {what} ({size} bytes), found {left} bytes to the end of the stream"
            )
        self._check_memory(0 if left is None else size, what)
        first = np.empty(min(size, _BIG_PIECE) if left is None else size, np.uint8)
        first.data[:buffered] = self._buffer[self._at : self._at + buffered]
        self._at += buffered
        self._read_into(first[buffered:], size - buffered, what)
        pieces, missing = [first], size - first.size
        self._check_memory(2 * missing, what)
        while missing:
            piece = np.empty(min(missing, _BIG_PIECE), np.uint8)
            self._read_into(piece, missing, what)
            pieces.append(piece)
            missing -= piece.size
        return first if len(pieces) == 1 else np.concatenate(pieces)

    def _check_memory(self, size: int, what: str) -> None:
        if lack := lack_of_memory(size):
            raise self.error(f"{what} takes {lack}")

    def _read_into(self, piece: NDArray[np.uint8], missing: int, what: str) -> None:
        """Fill `piece` with the next bytes of the file; used while the buffer is empty.

        `missing` bytes (at least piece.size) are to be read; errors say that `what` was expected.
        """
        file: Any = self._file
        view, done = piece.data, 0
        while done < len(view):
            count = file.readinto(view[done:])
            if not count:
                self.ended = True
                raise self.error(
                    f"expected {what}, found the end of the stream {missing - done} bytes early"
                )
            done += count
            self._base += count

    def _next_text(self) -> str:
        """The next few bytes, quoted for an error message."""
        if self.peek_byte() < 0:
            return "the end of the stream"
        return quoted(bytes(self._buffer[self._at : self._at + 40]).decode("utf-8", "replace"))

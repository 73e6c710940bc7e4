"""Reader: Kaldi's basic values from a stream, in text or binary.

`InputBuffer` handles positions and bytes.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from nnet3tools.errors import DataError, quoted
from nnet3tools.io.input_buffer import LOOK_AHEAD, MAX_TEXT, InputBuffer
from nnet3tools.io.numpy_later import np
from nnet3tools.io.text import cast, parse_numbers, parse_rows
from nnet3tools.number_text import parse_double, parse_int

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

_TOKEN = re.compile(rb"[ \t\n\r\f\v]*([^ \t\n\r\f\v]+)[ \t\n\r\f\v]")
_LAST_TOKEN = re.compile(rb"[ \t\n\r\f\v]*([^ \t\n\r\f\v]+)")
_NUMBER = re.compile(rb"[ \t\n\r\f\v]*([^ \t\n\r\f\v,\]\[:]+)")


class Reader(InputBuffer):
    """Reads Kaldi's tokens, numbers, vectors and matrices from a stream; raises DataError."""

    def read_token(self) -> str:
        """Read the next word and the one white-space character that must follow it."""
        match = self._match(_TOKEN, "a token", closed=True)
        self._at = match.end()
        return match.group(1).decode("utf-8", "surrogateescape")

    def peek_token(self) -> str:
        """Return the next word without consuming it; "" at the end of the stream."""
        while (match := _TOKEN.match(self._buffer, self._at)) is None:
            if len(self._buffer) - self._at > LOOK_AHEAD or not self.more():
                match = _LAST_TOKEN.match(self._buffer, self._at)
                break
        return match.group(1).decode("utf-8", "surrogateescape") if match else ""

    def expect_token(self, *tokens: str) -> Self:
        """Consume the given tokens in order; returns the reader. DataError for another token."""
        for token in tokens:
            word = token.encode() + b" "
            if self._buffer.startswith(word, self._at):
                self._at += len(word)
                continue
            start = self.offset
            try:
                found = self.read_token()
            except DataError:
                raise self.error(f"expected {token}, found {self._next_text()}", start) from None
            if found != token:
                raise self.error(f"expected {token}, found {quoted(found)}", start)
        return self

    def read_line(self) -> str:
        """Read the rest of the line without its newline; DataError at the end of the stream."""
        if self.peek_byte() < 0:
            raise self.error("expected a line, found the end of the stream")
        end = self._find(b"\n")
        stop = len(self._buffer) if end < 0 else end
        line = bytes(self._buffer[self._at : stop])
        self._at = stop if end < 0 else stop + 1
        return line.decode("utf-8", "surrogateescape")

    def lines(self) -> Iterator[str]:
        """Read and yield lines, without their newlines, up to the end of the stream."""
        while self.peek_byte() >= 0:
            yield self.read_line()

    def read_rest(self, most: int = MAX_TEXT) -> str:
        """Read the rest of the stream as text; DataError for a zero byte or over `most` bytes."""
        if (zero := self._find(b"\0", most)) >= 0:
            raise self.error("expected text, found binary bytes", self._base + zero)
        rest = bytes(self._buffer[self._at :])
        self._at = len(self._buffer)
        return rest.decode("utf-8", "surrogateescape")

    def read_bool(self) -> bool:
        """Read a boolean, stored as T or F."""
        if not self.binary:
            self.skip_space()
        value = self.peek_byte()
        if value not in (ord("T"), ord("F")):
            raise self.error(f"expected T or F, found {self._next_text()}")
        self._at += 1
        return value == ord("T")

    def read_int32(self) -> int:
        """Read a 32-bit integer."""
        return self._read_int(4, "<i")

    def read_count(self, what: str, parts: str) -> int:
        """Read the number of `parts` (a plural) of the value `what`; DataError if negative."""
        if (count := self.read_int32()) < 0:
            raise self.error(f"expected {what}, found one of {count} {parts}")
        return count

    def read_size(self) -> int:
        """Read a C++ size_t, whose size byte Kaldi negates because the type is unsigned."""
        start = self.offset
        value = self._read_int(8, "<q", size_byte=256 - 8)
        if value < 0:
            raise self.error(f"expected a count, found {value}", start)
        return value

    def _read_int(self, size: int, code: str, size_byte: int = 0) -> int:
        what = f"an int{8 * size}"
        if self.binary:
            self._expect_size((size_byte or size,), what)
            self._need(size, what)
            (value,) = struct.unpack_from(code, self._buffer, self._at)
            self._at += size
            return int(value)
        match = self._match(_NUMBER, what)
        limit = 1 << (8 * size - 1)
        if (found := parse_int(match.group(1).decode("latin-1"), -limit, limit - 1)) is None:
            raise self.error(f"expected {what}, found {self._next_text()}")
        self._at = match.end()
        return found

    def read_float(self) -> float:
        """Read a number and round it to float32; in binary it may be stored as float or double."""
        if self.binary and self.peek_byte() == 4:
            return self.read_double()
        return float(cast(self.read_double(), np.float32))

    def read_double(self) -> float:
        """Read a number with the precision in which it is stored."""
        if self.binary:
            size = self._expect_size((4, 8), "a float")
            self._need(size, "a float")
            (value,) = struct.unpack_from("<f" if size == 4 else "<d", self._buffer, self._at)
            self._at += size
            return float(value)
        match = self._match(_NUMBER, "a number")
        if (found := parse_double(match.group(1).decode("latin-1"))) is None:
            raise self.error(f"expected a number, found {self._next_text()}")
        self._at = match.end()
        return found

    def read_int32_vector(self) -> NDArray[np.int32]:
        """Read integers (N,) in the form of Kaldi's WriteIntegerVector."""
        if self.binary:
            return self._read_sized_ints("an integer vector", 1)
        self.expect_byte(b"[", "an integer vector")
        return self._parse(self.until_bracket("an integer vector"), np.int32)

    def read_int_pairs(self) -> NDArray[np.int32]:
        """Read integer pairs (N, 2) in the form of Kaldi's WriteIntegerPairVector."""
        if self.binary:
            return self._read_sized_ints("a vector of integer pairs", 2).reshape(-1, 2)
        self.expect_byte(b"[", "a vector of integer pairs")
        body = self.until_bracket("a vector of integer pairs")
        values = self._parse(body.replace(b",", b" "), np.int32)
        if values.size != 2 * body.count(b",") or values.size % 2:
            raise self.error("expected pairs of integers such as 3,5")
        return values.reshape(-1, 2)

    def read_vector(self, dtype: DTypeLike = "float32") -> NDArray:
        """Read a vector (N,), stored as FV, DV or text, and convert it to `dtype`."""
        if not self.binary:
            body = self._open_bracket("a vector")
            if b"\n" in body:
                raise self.error("expected a vector, found a newline in it (a matrix?)")
            return self._parse(body, dtype)
        stored = self._stored_dtype({"FV": "<f4", "DV": "<f8"}, "a vector (FV or DV)")
        size = self.read_count("a vector", "elements")
        return cast(self.read_array(size, stored, f"a vector of {size}"), dtype)

    def read_matrix(self, dtype: DTypeLike = "float32") -> NDArray:
        """Read a full or compressed matrix as a C-contiguous array (rows, columns) of `dtype`."""
        if not self.binary:
            body = self._open_bracket("a matrix")
            try:
                return parse_rows(body, dtype)
            except ValueError as error:
                raise self.error(f"in a matrix: {error}") from None
        if self.peek_token() in ("CM", "CM2", "CM3"):
            from nnet3tools.io.compressed import read_compressed

            return read_compressed(self).to_dense().astype(dtype, copy=False)
        stored = self._stored_dtype({"FM": "<f4", "DM": "<f8"}, "a matrix (FM, DM, CM, CM2, CM3)")
        rows, cols = self.read_int32(), self.read_int32()
        if rows < 0 or cols < 0:
            raise self.error(f"expected a matrix, found one of {rows} x {cols}")
        flat = self.read_array(rows * cols, stored, f"a matrix of {rows} x {cols}")
        return cast(flat.reshape(rows, cols), dtype)

    def read_packed(self) -> NDArray[np.float64]:
        """Read a lower triangle (FP, DP or text) as an (N, N) matrix, 0 above the diagonal."""
        if self.binary:
            tokens = {"FP": "<f4", "DP": "<f8"}
            stored = self._stored_dtype(tokens, "a symmetric matrix (FP or DP)")
            size = self.read_count("a symmetric matrix", "rows")
            count = size * (size + 1) // 2
            values = self.read_array(count, stored, f"a triangle of {size} rows")
        else:
            values = self._parse(self._open_bracket("a symmetric matrix"), np.float64)
            size = int(np.sqrt(2 * len(values)))
            if size * (size + 1) != 2 * len(values):
                raise self.error(f"{len(values)} numbers are no triangle of a symmetric matrix")
        matrix = np.zeros((size, size))
        matrix[np.tril_indices(size)] = values
        return matrix

    def _open_bracket(self, what: str) -> bytes:
        """Consume "[...]" and a newline after it; return the text inside. Errors name `what`."""
        self.expect_byte(b"[", what)
        body = self.until_bracket(what)
        if self.peek_byte() == ord("\r"):
            self._at += 1
        if self.peek_byte() == ord("\n"):
            self._at += 1
        return body

    def _parse(self, body: bytes, dtype: DTypeLike) -> NDArray:
        try:
            return parse_numbers(body, dtype)
        except ValueError as error:
            raise self.error(str(error)) from None

    def _expect_size(self, sizes: tuple[int, ...], what: str) -> int:
        """Consume and return a number's size byte; DataError, naming `what`, if not in `sizes`."""
        size = self.peek_byte()
        if size not in sizes:
            expected = " or ".join(map(str, sizes))
            found = "the end of the stream" if size < 0 else f"{size}"
            raise self.error(f"expected {what} (size byte {expected}), found {found}")
        self._at += 1
        return size

    def _read_sized_ints(self, what: str, per_element: int) -> NDArray[np.int32]:
        self._expect_size((4,), what)
        self._need(4, what)
        (count,) = struct.unpack_from("<i", self._buffer, self._at)
        self._at += 4
        if count < 0:
            raise self.error(f"expected {what}, found one of {count} elements")
        return self.read_array(count * per_element, "<i4", f"{what} of {count} elements")

    def _stored_dtype(self, tokens: dict[str, str], what: str) -> str:
        start = self.offset
        token = self.peek_token()
        if token not in tokens:
            raise self.error(f"expected {what}, found {quoted(token) or self._next_text()}", start)
        self.read_token()
        return tokens[token]

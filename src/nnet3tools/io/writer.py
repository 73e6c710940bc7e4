"""Writer: Kaldi's basic values to a stream, in text or binary."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, BinaryIO, Self

from nnet3tools.errors import DataError, ProgramError
from nnet3tools.io.numpy_later import np
from nnet3tools.io.text import format_float, format_floats, format_matrix, is_word

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


@functools.lru_cache(maxsize=1024)
def _token(token: str) -> bytes:
    """The bytes of a token and a space; ProgramError if it has white space. Cached for speed."""
    if not is_word(token):
        raise ProgramError(f"not a token: '{token}'")
    return (token + " ").encode("utf-8", "surrogateescape")


class Writer:
    """Writes Kaldi's tokens, numbers, vectors and matrices byte for byte as Kaldi does."""

    def __init__(self, file: BinaryIO, binary: bool = True, name: str = "stream") -> None:
        self.file, self.binary, self.name = file, binary, name
        self.offset = 0
        """Bytes written so far."""

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Write raw bytes; DataError, which names the output, if the system cannot do so."""
        try:
            self.file.write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise DataError(f"cannot write '{self.name}': {error.strerror}") from None
        self.offset += len(data)

    def write_text(self, text: str) -> None:
        """Write text unchanged, in binary and in text mode."""
        self.write_bytes(text.encode("utf-8", "surrogateescape"))

    def flush(self) -> None:
        """Flush the buffer of the output file."""
        self.file.flush()

    def write_header(self) -> None:
        r"""Write the header "\0B" in binary mode."""
        if self.binary:
            self.write_bytes(b"\0B")

    def write_newline(self) -> None:
        """Write a newline, in text mode only."""
        if not self.binary:
            self.write_bytes(b"\n")

    def write_token(self, token: str) -> Self:
        """Write a word and a space, in binary and in text mode; returns the writer."""
        self.write_bytes(_token(token))
        return self

    def write_bool(self, value: bool) -> None:
        """Write T or F, followed by a space in text mode."""
        self.write_bytes((b"T" if value else b"F") + (b"" if self.binary else b" "))

    def write_int32(self, value: int) -> None:
        """Write a 32-bit integer."""
        self.write_bytes(struct.pack("<bi", 4, value) if self.binary else b"%d " % value)

    def write_size(self, value: int) -> None:
        """Write a C++ size_t, whose size byte Kaldi negates because the type is unsigned."""
        self.write_bytes(struct.pack("<bQ", -8, value) if self.binary else b"%d " % value)

    def write_float(self, value: float) -> None:
        """Write a number as float32."""
        single = float(np.float32(value))
        if self.binary:
            self.write_bytes(struct.pack("<bf", 4, single))
        else:
            self.write_text(format_float(single) + " ")

    def write_double(self, value: float) -> None:
        """Write a number as float64."""
        if self.binary:
            self.write_bytes(struct.pack("<bd", 8, value))
        else:
            self.write_text(format_float(value) + " ")

    def write_int32_vector(self, values: ArrayLike) -> None:
        """Write integers (N,) in the form of Kaldi's WriteIntegerVector."""
        array = np.ascontiguousarray(values, np.int32)
        if self.binary:
            self.write_bytes(struct.pack("<bi", 4, len(array)) + array.tobytes())
        else:
            self.write_text("[ " + "%d " * array.size % tuple(array.tolist()) + "]\n")

    def write_int_pairs(self, pairs: ArrayLike) -> None:
        """Write integer pairs (N, 2) in the form of Kaldi's WriteIntegerPairVector."""
        array = np.ascontiguousarray(pairs, np.int32).reshape(-1, 2)
        if self.binary:
            self.write_bytes(struct.pack("<bi", 4, len(array)) + array.tobytes())
        else:
            self.write_text("[ " + "%d,%d " * len(array) % tuple(array.ravel().tolist()) + "]\n")

    def write_vector(self, vector: NDArray) -> None:
        """Write a vector: float64 as DV, other types as float32 (FV)."""
        array = _as_real(vector)
        if self.binary:
            self.write_text("DV " if array.dtype == np.float64 else "FV ")
            self.write_int32(array.size)
            self.write_bytes(array.data.cast("B") if array.size else b"")
        else:
            self.write_text(" [ " + format_floats(array) + "]\n")

    def write_matrix(self, matrix: NDArray) -> None:
        """Write a matrix: float64 as DM, other types as float32 (FM)."""
        array = _as_real(matrix)
        if self.binary:
            self.write_text("DM " if array.dtype == np.float64 else "FM ")
            self.write_int32(array.shape[0])
            self.write_int32(array.shape[1])
            self.write_bytes(array.data.cast("B") if array.size else b"")
        else:
            self.write_text(format_matrix(array))

    def write_packed(self, matrix: NDArray) -> None:
        """Write the lower triangle of an (N, N) matrix, row after row, as float32."""
        lower = np.asarray(matrix[np.tril_indices(len(matrix))], "<f4")
        if self.binary:
            self.write_token("FP")
            self.write_int32(len(matrix))
            self.write_bytes(lower.tobytes())
            return
        rows = [format_floats(row) for row in np.split(lower, np.cumsum(range(1, len(matrix))))]
        self.write_text("[\n" + "\n".join(rows) + "]\n" if len(matrix) else "[ ]\n")


def _as_real(array: NDArray) -> NDArray:
    return np.ascontiguousarray(array, "<f8" if array.dtype == np.float64 else "<f4")

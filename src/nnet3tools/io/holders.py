"""The Holder of each kind of object in tables: reading, writing and cutting a range."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, quoted
from nnet3tools.io import log
from nnet3tools.io.general_matrix import (
    GeneralMatrix,
    read_general_matrix,
    to_dense,
    write_general_matrix,
)
from nnet3tools.io.holder import Holder
from nnet3tools.io.posterior import Posterior, read_posterior, write_posterior
from nnet3tools.io.reader import Reader
from nnet3tools.io.text import format_float, parse_numbers
from nnet3tools.io.writer import Writer
from nnet3tools.number_text import parse_counts, parse_double, parse_int

T = TypeVar("T")


# -- ranges

_TOLERANCE = 3
"""Rows that a range may exceed the end by, as in Kaldi: lengths in seconds are rounded."""


def _parse_range(text: str, size: int, what: str, tolerance: int) -> slice:
    """Slice for '3:5' (ends included) or ':' of `size` items; errors call the items `what`.

    The end may exceed the last item by `tolerance`.
    """
    if text == ":":
        return slice(0, size)
    ends = parse_counts(text.split(":"))
    if ends is None or len(ends) != 2:
        raise DataError(f"[{text[:80]}]: expected a range of {what} such as 0:9")
    begin, end = ends
    if not begin <= end < size + tolerance or begin >= max(size, 1):
        raise DataError(f"[{text}]: there are only {size} {what}")
    if end >= size:
        log.warning(f"range {text} goes beyond the {size} {what} there are")
    return slice(begin, min(end + 1, size))


def _matrix_range(matrix: NDArray, text: str) -> NDArray:
    rows, _, cols = text.partition(",")
    row_slice = _parse_range(rows, matrix.shape[0], "rows", _TOLERANCE)
    col_slice = _parse_range(cols or ":", matrix.shape[1], "columns", 0)
    return np.ascontiguousarray(matrix[row_slice, col_slice])


# basic types: one line for each object in text mode


def _basic(name: str, of_reader: Callable[[Reader], T], of_writer: Callable) -> Holder[T]:
    def read(reader: Reader) -> T:
        value = of_reader(reader)
        if not reader.binary:
            rest = reader.read_line() if reader.peek_byte() >= 0 else ""
            if rest.strip():
                raise reader.error(
                    f"expected the end of the line after {name}, found {quoted(rest, 40)}"
                )
        return value

    def write(writer: Writer, value: T) -> None:
        of_writer(writer, value)
        writer.write_newline()

    return Holder(name, read, write)


def _read_int32_vector(reader: Reader) -> NDArray[np.int32]:
    """Read integers as Kaldi's BasicVectorHolder: a text line, or binary with size bytes."""
    if not reader.binary:
        line = reader.read_line()
        try:
            return parse_numbers(line.encode("utf-8", "surrogateescape"), np.int32)
        except ValueError:
            raise reader.error(f"expected a line of integers, found {quoted(line, 40)}") from None
    count = reader.read_count("a vector", "elements")
    return _read_cells(reader, count, np.int32, f"a vector of {count} integers")


def _write_int32_vector(writer: Writer, values: NDArray[np.int32]) -> None:
    array = np.ascontiguousarray(values, "<i4")
    if not writer.binary:
        writer.write_text("%d " * array.size % tuple(array.tolist()) + "\n")
    else:
        _write_cells(writer, len(array), array)


_CELLS: dict[type, np.dtype] = {
    kind: np.dtype([("size", "u1"), ("value", code)])
    for kind, code in ((np.int32, "<i4"), (np.float32, "<f4"))
}
"""A number after its size byte, by the type of the number."""


def _int32_entries(reader: Reader) -> Iterator[tuple[str, NDArray[np.int32]]]:
    """Consume archive entries complete in the reader's buffer; yield (key, vector) of each."""
    from nnet3tools.io.entries import encoded_entries

    for key, elements in encoded_entries(reader, find_int32_vector):
        yield key, numbers_of_bytes(elements, np.int32)


def find_int32_vector(data: bytes, start: int) -> tuple[bytes, int] | None:
    """(bytes of the elements of the vector at `start`, its end in `data`).

    None if there is no binary vector of integers; IndexError if the data end too early.
    """
    begin = start + 5
    if begin > len(data):
        raise IndexError
    count = int.from_bytes(data[start + 1 : begin], "little", signed=True)
    end = begin + 5 * count
    if data[start] != 4 or count <= 0:
        return None
    if end > len(data):
        raise IndexError
    if data[begin:end:5] != b"\4" * count:
        return None
    return data[begin:end], end


def numbers_of_bytes(data: bytes | NDArray[np.uint8], kind: type) -> NDArray:
    """Numbers of type `kind` (int32 or float32) of bytes with a size byte before each number."""
    return np.ascontiguousarray(np.frombuffer(data, _CELLS[kind])["value"])


def bytes_of_numbers(values: NDArray) -> bytes:
    """The bytes of numbers (int32 or float32) of any shape, each after its size byte."""
    cells = np.empty(values.size, _CELLS[values.dtype.type])
    cells["size"], cells["value"] = 4, values.ravel()
    return cells.tobytes()


def _read_cells(reader: Reader, count: int, kind: type, what: str) -> NDArray:
    """Read `count` numbers of type `kind` (int32 or float32), each after a size byte.

    Errors say that `what` was expected.
    """
    cells = reader.read_array(5 * count, np.uint8, what)
    if (cells[::5] != 4).any():
        raise reader.error(f"expected {what} of type {kind.__name__}")
    return numbers_of_bytes(cells, kind)


def _write_cells(writer: Writer, count: int, values: NDArray) -> None:
    """Write `count`, then numbers of four bytes, each after its size byte."""
    writer.write_int32(count)
    writer.write_bytes(bytes_of_numbers(values))


def _read_pairs(reader: Reader, kind: type) -> NDArray:
    """Read pairs as Kaldi's BasicPairVectorHolder: `1 2 ; 3 4` in text, or binary.

    `kind` is int32 or float32.
    """
    if reader.binary:
        count = reader.read_int32()
        if count < 0:
            raise reader.error(f"expected pairs, found {count} of them")
        return _read_cells(reader, 2 * count, kind, f"{count} pairs").reshape(-1, 2)
    line = reader.read_line().strip()
    try:
        parse = parse_int if kind is np.int32 else parse_double
        pairs = [[parse(word) for word in pair.split()] for pair in line.split(";")] if line else []
        if any(None in pair for pair in pairs):
            raise ValueError
        return np.array(pairs, kind).reshape(len(pairs), 2)
    except (ValueError, OverflowError):
        raise reader.error(f"expected pairs such as 1 2 ; 3 4, found {quoted(line, 40)}") from None


def _write_pairs(writer: Writer, pairs: NDArray) -> None:
    if not writer.binary:
        texts = list(map(format_float if pairs.dtype.kind == "f" else str, pairs.ravel().tolist()))
        both = zip(texts[::2], texts[1::2], strict=True)
        writer.write_text("; ".join(f"{one} {other} " for one, other in both) + "\n")
    else:
        _write_cells(writer, len(pairs), pairs)


def _read_token(reader: Reader) -> str:
    words = _read_tokens(reader)
    if len(words) != 1:
        raise reader.error(f"expected one word on the line, found {len(words)}")
    return words[0]


def _read_tokens(reader: Reader) -> list[str]:
    return reader.read_line().split()


MATRIX: Holder[NDArray] = Holder(
    "a matrix", Reader.read_matrix, Writer.write_matrix, extract_range=_matrix_range
)
"""Dense float32 matrices; a compressed matrix is decompressed when it is read."""

DOUBLE_MATRIX: Holder[NDArray] = Holder(
    "a matrix",
    lambda reader: reader.read_matrix(np.float64),
    Writer.write_matrix,
    extract_range=_matrix_range,
)
"""Dense float64 matrices; a compressed matrix is decompressed when it is read."""

GENERAL_MATRIX: Holder[GeneralMatrix] = Holder(
    "a matrix",
    read_general_matrix,
    write_general_matrix,
    extract_range=lambda matrix, text: _matrix_range(to_dense(matrix), text),
)
"""Matrices that keep their stored form: full, compressed or sparse."""

VECTOR: Holder[NDArray] = Holder(
    "a vector",
    Reader.read_vector,
    Writer.write_vector,
    extract_range=lambda v, text: v[_parse_range(text, len(v), "elements", _TOLERANCE)],
)

POSTERIOR: Holder[Posterior] = Holder("a posterior", read_posterior, write_posterior)

INT32: Holder[int] = _basic("an integer", Reader.read_int32, Writer.write_int32)
FLOAT: Holder[float] = _basic("a number", Reader.read_float, Writer.write_float)
DOUBLE: Holder[float] = _basic("a number", Reader.read_double, Writer.write_double)
BOOL: Holder[bool] = _basic("T or F", Reader.read_bool, Writer.write_bool)

INT32_VECTOR: Holder[NDArray[np.int32]] = Holder(
    "a vector of integers", _read_int32_vector, _write_int32_vector, entries=_int32_entries
)

INT32_PAIR_VECTOR: Holder[NDArray[np.int32]] = Holder(
    "a vector of pairs of integers", partial(_read_pairs, kind=np.int32), _write_pairs
)
"""Integer pairs as arrays of shape (pairs, 2)."""

FLOAT_PAIR_VECTOR: Holder[NDArray[np.float32]] = Holder(
    "a vector of pairs of numbers", partial(_read_pairs, kind=np.float32), _write_pairs
)
"""Pairs of numbers as arrays of shape (pairs, 2)."""

TOKEN: Holder[str] = Holder(
    "a word", _read_token, lambda writer, word: writer.write_text(word + "\n"), has_header=False
)

TOKEN_VECTOR: Holder[list[str]] = Holder(
    "words",
    _read_tokens,
    lambda writer, words: writer.write_text("".join(word + " " for word in words) + "\n"),
    has_header=False,
)

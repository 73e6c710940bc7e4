"""Numbers as text, in bulk, as C++ streams print them with precision 7; parsing of such text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.errors import quoted
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

_ROWS_AT_ONCE = 1024


def cast(values: ArrayLike, dtype: DTypeLike) -> NDArray:
    """Convert to an array of type `dtype`; numbers too large for float32 become infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(dtype, copy=False)


def is_word(text: str) -> bool:
    """Whether `Reader` reads the text as one word; only ASCII white space separates words."""
    raw = text.encode("utf-8", "surrogateescape")
    return raw.split() == [raw]


def format_float(value: float) -> str:
    """Format a number as `std::ostream` with precision 7; a negative NaN keeps its sign."""
    if value != value:
        return "-nan" if np.signbit(float(value)) else "nan"
    return f"{value:.7g}"


def format_floats(values: NDArray[np.floating]) -> str:
    """Format the numbers, each followed by a space."""
    return _fill("%.7g " * values.size, values)


def format_matrix(matrix: NDArray[np.floating]) -> str:
    """Format a matrix in Kaldi's text form, from the leading space to the final newline."""
    num_rows, num_cols = matrix.shape
    if num_cols == 0:
        return " [ ]\n"
    if num_rows == 0:
        return " []\n"
    row_format = "\n  " + "%.7g " * num_cols
    pieces = [" ["]
    for start in range(0, num_rows, _ROWS_AT_ONCE):
        piece = matrix[start : start + _ROWS_AT_ONCE]
        pieces.append(_fill(row_format * len(piece), piece))
    pieces.append("]\n")
    return "".join(pieces)


def _fill(template: str, values: NDArray[np.floating]) -> str:
    flat = values.ravel()
    if (np.isnan(flat) & np.signbit(flat)).any():  # Python's % drops the sign of a NaN
        return template.replace("%.7g", "%s") % tuple(map(format_float, flat.tolist()))
    return template % tuple(flat.tolist())


def parse_numbers(body: bytes, dtype: DTypeLike) -> NDArray:
    """Parse numbers between white space as an array of `dtype`; ValueError for a wrong word."""
    words = body.split()
    if b"_" in body:  # Python accepts underscores, as in 1_000
        raise _no_number(next(word for word in words if b"_" in word))
    if np.dtype(dtype).kind == "f":
        return cast(_converted(words, float, np.float64) if words else [], dtype)
    values = _converted(words, int, np.int64)
    info = np.iinfo(np.dtype(dtype))
    if values.size and (values.min() < info.min or values.max() > info.max):
        raise ValueError(f"integer out of range of {np.dtype(dtype)}")
    return values.astype(dtype)


def _converted(words: list[bytes], convert: type[int] | type[float], dtype: type) -> NDArray:
    """Convert words by int() or float() to an array; ValueError quotes the first wrong word."""
    try:
        return np.array(words if convert is float else list(map(int, words)), dtype)
    except (ValueError, OverflowError):
        for word in words:
            try:
                np.array(convert(word), dtype)
            except (ValueError, OverflowError):
                raise _no_number(word) from None
        raise


def _no_number(word: bytes) -> ValueError:
    found = word[:40].decode("utf-8", "replace")
    return ValueError(f"expected a number, found {quoted(found)}")


def parse_lines(body: bytes, dtype: DTypeLike) -> tuple[NDArray, NDArray[np.intp]]:
    """Parse lines: (all numbers as an array of `dtype`, count of each non-empty line)."""
    values = parse_numbers(body, dtype)
    chars = np.frombuffer(b"\n" + body + b"\n", np.uint8)
    space = chars <= 32
    number_ends = np.flatnonzero(~space[:-1] & space[1:])
    row_ends = np.flatnonzero(chars == 10)
    counts = np.diff(np.searchsorted(number_ends, row_ends))
    return values, counts[counts > 0]


def parse_rows(body: bytes, dtype: DTypeLike) -> NDArray:
    """Parse a matrix whose rows end in newlines or semicolons; empty rows are skipped.

    ValueError names the wrong number or the wrong row.
    """
    values, counts = parse_lines(body.replace(b";", b"\n"), dtype)
    if values.size == 0:
        return np.empty((0, 0), dtype)
    wrong = np.flatnonzero(counts != counts[0])
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"row {row} has {counts[row]} numbers, row 0 has {counts[0]}")
    return values.reshape(len(counts), -1)

"""Matrices that are copied from table to table as bytes if they are binary, full and float32.

Other matrices (text, double, compressed, empty) are converted, which imports NumPy.
"""

import io
from typing import Any

from nnet3tools.io.entries import encoded_entries
from nnet3tools.io.holder import Holder
from nnet3tools.io.matrix_forms import LONGEST_HEAD, stored_form
from nnet3tools.io.stream import Reader, Writer


def find_full_matrix(data: bytes | bytearray, start: int) -> tuple[bytes, int] | None:
    """(bytes of the full float32 matrix at `start`, its end in `data`).

    None if the matrix has another form or no elements. IndexError if more data are needed.
    """
    form = stored_form(data, start)
    end = start + (LONGEST_HEAD if form is None else form.size if form.token == "FM" else 0)
    if end > len(data):
        raise IndexError
    return (bytes(data[start:end]), end) if form is not None and form.token == "FM" else None


def _read(reader: Reader) -> Any:
    found = reader.take(find_full_matrix) if reader.binary else None
    return reader.read_matrix() if found is None else found


def _array(matrix: Any) -> Any:
    is_bytes = isinstance(matrix, bytes)
    return Reader(io.BytesIO(matrix), binary=True).read_matrix() if is_bytes else matrix


def _write(writer: Writer, matrix: Any) -> None:
    if isinstance(matrix, bytes) and writer.binary:
        writer.write_bytes(matrix)
    else:
        from nnet3tools.io.general_matrix import write_general_matrix

        write_general_matrix(writer, _array(matrix))


def _cut(matrix: Any, text: str) -> Any:
    from nnet3tools.io.holders import MATRIX

    return MATRIX.cut(_array(matrix), text)


PASSED_MATRIX: Holder[Any] = Holder(
    "a matrix",
    _read,
    _write,
    extract_range=_cut,
    entries=lambda reader: encoded_entries(reader, find_full_matrix),
)
"""Matrices as the bytes of their binary form or, if that is not full float32, as float32 arrays."""

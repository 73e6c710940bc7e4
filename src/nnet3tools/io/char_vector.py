"""Vectors of numbers from 0 to 1, stored as one byte per element (Kaldi's WriteVectorAsChar)."""

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.stream import Reader, Writer

_SCALE = np.float32(1.0 / 255.0)


def read_vector_as_char(reader: Reader) -> NDArray[np.float32]:
    """Read a vector of numbers from 0 to 1, stored as bytes (value * 255) or, in text, as text."""
    if not reader.binary:
        return reader.read_vector()
    size = reader.read_array(1, "u1", "a vector of bytes")[0]
    count = int(reader.read_array(1, "<i4", "a vector of bytes")[0])
    if size != 1 or count < 0:
        raise reader.error("expected a vector of bytes")
    return reader.read_array(count, "u1", "a vector of bytes").astype(np.float32) * _SCALE


def write_vector_as_char(writer: Writer, vector: NDArray[np.float32]) -> None:
    """Write a vector of numbers from 0 to 1, rounded to 255 steps in binary mode."""
    if not writer.binary:
        writer.write_vector(vector)
        return
    rounded = (255.0 * vector.astype(np.float64) + 0.5).astype(np.uint8)
    writer.write_bytes(b"\x01" + np.int32(len(vector)).astype("<i4").tobytes() + rounded.tobytes())

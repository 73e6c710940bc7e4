"""Symmetric and triangular matrices; Kaldi stores the lower triangle row after row."""

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.text import format_floats
from nnet3tools.io.writer import Writer


def symmetric(lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric matrix with the given lower triangle."""
    return lower + np.tril(lower, -1).T


def write_packed(writer: Writer, matrix: NDArray) -> None:
    """Write the lower triangle of an (N, N) matrix as float32."""
    lower = np.asarray(matrix[np.tril_indices(len(matrix))], "<f4")
    if writer.binary:
        writer.write_token("FP")
        writer.write_int32(len(matrix))
        writer.write_bytes(lower.tobytes())
        return
    rows = [format_floats(row) for row in np.split(lower, np.cumsum(np.arange(1, len(matrix))))]
    writer.write_text("[\n" + "\n".join(rows) + "]\n" if len(matrix) else "[ ]\n")

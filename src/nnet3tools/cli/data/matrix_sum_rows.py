"""matrix-sum-rows: the sum of each matrix's rows."""

from __future__ import annotations

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Sum the rows of an input table of matrices and output the corresponding
table of vectors

Usage: matrix-sum-rows [options] <matrix-rspecifier> <vector-wspecifier>
e.g.: matrix-sum-rows ark:- ark:- | vector-sum ark:- sum.vec
See also: matrix-sum, vector-sum
"""


@program("matrix-sum-rows", USAGE, NoOptions, num_args=2)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import MATRIX, VECTOR

    num_rows = 0

    def convert(key: str, matrix: np.ndarray) -> np.ndarray:
        nonlocal num_rows
        num_rows += len(matrix)
        return matrix.sum(axis=0, dtype=np.float64).astype(np.float32)

    num_done, _ = convert_table(args[0], args[1], (MATRIX, VECTOR), convert)
    log.log(f"Summed rows {num_done} matrices, {num_rows} rows in total.")
    return 0 if num_done else 1

"""copy-matrix: copies matrices, optionally with changed elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

USAGE = """Copy matrices, or archives of matrices (e.g. features or transforms)
Also see copy-feats which has other format options

Usage: copy-matrix [options] <matrix-in-rspecifier> <matrix-out-wspecifier>
  or: copy-matrix [options] <matrix-in-rxfilename> <matrix-out-wxfilename>
 e.g.: copy-matrix --binary=false 1.mat -
   copy-matrix ark:2.trans ark,t:-
See also: copy-feats, matrix-sum
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")
    scale: float = option(1.0, "This option can be used to scale the matrices being copied.")
    apply_log: bool = option(
        False,
        "This option can be used to apply log on the matrices. Must be avoided if matrix has "
        "negative quantities.",
    )
    apply_exp: bool = option(False, "This option can be used to apply exp on the matrices")
    apply_power: float = option(1.0, "This option can be used to apply a power on the matrices")
    apply_softmax_per_row: bool = option(
        False, "This option can be used to apply softmax per row of the matrices"
    )

    def apply(self, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
        """A copy of the matrix, scaled or changed in its elements as the options say."""
        if self.scale != 1.0:
            matrix = matrix * np.float32(self.scale)
        if self.apply_log:
            matrix = np.log(np.maximum(matrix, np.float32(1.0e-20)))
        if self.apply_exp:
            matrix = np.exp(matrix)
        if self.apply_softmax_per_row and matrix.size:
            matrix = np.exp(matrix - matrix.max(axis=1, keepdims=True))
            matrix /= matrix.sum(axis=1, keepdims=True)
        if self.apply_power != 1.0:
            matrix = matrix ** np.float32(self.apply_power)
        return matrix


@program("copy-matrix", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.io.holders import MATRIX

    source, target = args
    if options.apply_log + options.apply_exp + options.apply_softmax_per_row > 1:
        raise OptionError("Only one of apply-log, apply-exp and apply-softmax-per-row can be given")
    if not are_tables(source, target, "matrices"):
        matrix = options.apply(read_object(source, MATRIX))
        write_object(target, MATRIX, matrix, options.binary)
        log.log(f"Copied matrix to {target}")
        return 0
    num_done, _ = convert_table(
        source, target, (MATRIX, MATRIX), lambda key, matrix: options.apply(matrix)
    )
    log.log(f"Copied {num_done} matrices.")
    return 0 if num_done else 1

"""matrix-sum: sums and averages of matrices."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError

USAGE = """Add matrices (supports various forms)

Type one usage:
 matrix-sum [options] <matrix-in-rspecifier1> [<matrix-in-rspecifier2> <matrix-in-rspecifier3> \
...] <matrix-out-wspecifier>
  e.g.: matrix-sum ark:1.weights ark:2.weights ark:combine.weights
  This usage supports the --scale1 and --scale2 options to scale the
  first two input tables.
Type two usage (sums a single table input to produce a single output):
 matrix-sum [options] <matrix-in-rspecifier> <matrix-out-wxfilename>
 e.g.: matrix-sum --binary=false ark:mats.ark sum.mat
Type three usage (sums or averages single-file inputs to produce
a single output):
 matrix-sum [options] <matrix-in-rxfilename1> <matrix-in-rxfilename2> ... <matrix-out-wxfilename>
 e.g.: matrix-sum --binary=false 1.mat 2.mat 3.mat sum.mat
See also: matrix-sum-rows, copy-matrix
"""


class Options(OptionGroup):
    scale1: float = option(1.0, "Scale applied to first matrix (only for type one usage)")
    scale2: float = option(1.0, "Scale applied to second matrix (only for type one usage)")
    binary: bool = option(
        True, "If true, write output as binary (only relevant for usage types two or three"
    )
    average: bool = option(
        False,
        "If true, compute average instead of sum; currently compatible with type 3 or type 1 "
        "usage.",
    )


@program("matrix-sum", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.sums import Summing
    from nnet3tools.cli.tables import is_table
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    summing = Summing(MATRIX, "matrix", "matrices")
    if is_table(target):
        scales = [options.scale1, options.scale2, *[1.0] * len(sources)][: len(sources)]
        if options.average:
            scales = [1.0 / len(sources)] * len(sources)
        return summing.tables(sources, target, scales)
    if options.scale1 != 1.0 or options.scale2 != 1.0:
        raise OptionError("--scale1 and --scale2 are for sums over tables")
    if len(sources) == 1 and is_table(sources[0]):
        if options.average:
            raise OptionError("--average option not compatible with type two usage.")
        return summing.table(sources[0], target, options.binary)
    return summing.files(sources, target, options.binary, options.average)

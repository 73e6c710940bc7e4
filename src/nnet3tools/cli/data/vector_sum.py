"""vector-sum: sums and averages of vectors."""

from nnet3tools.cli.options import OptionGroup, option, program

USAGE = """Add vectors (e.g. weights, transition-accs; speaker vectors)
If you need to scale the inputs, use vector-scale on the inputs

Type one usage:
 vector-sum [options] <vector-in-rspecifier1> [<vector-in-rspecifier2> <vector-in-rspecifier3> \
...] <vector-out-wspecifier>
  e.g.: vector-sum ark:1.weights ark:2.weights ark:combine.weights
Type two usage (sums a single table input to produce a single output):
 vector-sum [options] <vector-in-rspecifier> <vector-out-wxfilename>
 e.g.: vector-sum --binary=false ark:vecs.ark sum.vec
Type three usage (sums single-file inputs to produce a single output):
 vector-sum [options] <vector-in-rxfilename1> <vector-in-rxfilename2> ... <vector-out-wxfilename>
 e.g.: vector-sum --binary=false 1.vec 2.vec 3.vec sum.vec
See also: copy-vector, dot-weights
"""


class Options(OptionGroup):
    binary: bool = option(
        True, "If true, write output as binary (only relevant for usage types two or three"
    )
    average: bool = option(False, "Do average instead of sum")


@program("vector-sum", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> int:
    """Sum vectors: of several tables by key, of one table, or of several files.

    As in Kaldi, --average applies to a single table only.
    """
    from nnet3tools.cli.sums import Summing
    from nnet3tools.cli.tables import is_table
    from nnet3tools.io.holders import VECTOR

    *sources, target = args
    summing = Summing(VECTOR, "vector", "vectors")
    if is_table(target):
        return summing.tables(sources, target, [1.0] * len(sources))
    if len(sources) == 1 and is_table(sources[0]):
        return summing.table(sources[0], target, options.binary, options.average)
    return summing.files(sources, target, options.binary)

"""feat-to-dim: the dimension of features."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.errors import DataError

USAGE = """Reads an archive of features.  If second argument is wxfilename, writes
the feature dimension of the first feature file; if second argument is
wspecifier, writes an archive of the feature dimension, indexed by utterance
id.
Usage: feat-to-dim [options] <feat-rspecifier> (<dim-wspecifier>|<dim-wxfilename>)
e.g.: feat-to-dim scp:feats.scp -
"""


@program("feat-to-dim", USAGE, NoOptions, num_args=2)
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table, is_table
    from nnet3tools.io.files import open_output
    from nnet3tools.io.holders import INT32, MATRIX
    from nnet3tools.io.table import SequentialTableReader

    source, target = args
    if is_table(target):
        convert_table(source, target, (MATRIX, INT32), lambda key, matrix: matrix.shape[1])
        return
    with SequentialTableReader(source, MATRIX) as reader:
        first = next(iter(reader), None)
    if first is None:
        raise DataError(f"{source}: Could not read any features (empty archive?)")
    with open_output(target, binary=False) as writer:
        writer.write_text(f"{first[1].shape[1]}\n")

"""matrix-dim: prints the numbers of rows and columns of matrices."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Print dimension info on an input matrix (rows then cols, separated by tab), to
standard output.  Output for single filename: rows[tab]cols.  Output per line for
archive of files: key[tab]rows[tab]cols
Usage: matrix-dim [options] <matrix-in>|<in-rspecifier>
e.g.: matrix-dim final.mat | cut -f 2
See also: feat-to-len, feat-to-dim
"""


@program("matrix-dim", USAGE, NoOptions, num_args=1)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table, read_object
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    (source,) = args
    if not is_table(source):
        print(*read_object(source, MATRIX).shape, sep="\t")
        return 0
    count = 0
    with SequentialTableReader(source, MATRIX) as reader:
        for key, matrix in reader:
            print(key, *matrix.shape, sep="\t")
            count += 1
    if not count:
        log.warning(f"No features read from rspecifier '{source}'")
    return 0 if count else 1

"""feat-to-len: the lengths of features, or their sum."""

from nnet3tools.cli.options import NoOptions, program

USAGE = """Reads an archive of features and writes a corresponding archive
that maps utterance-id to utterance length in frames, or (with
one argument) print to stdout the total number of frames in the
input archive.
Usage: feat-to-len [options] <in-rspecifier> [<out-wspecifier>]
e.g.: feat-to-len scp:feats.scp ark,t:feats.lengths
or: feat-to-len scp:feats.scp
"""


@program("feat-to-len", USAGE, NoOptions, num_args=(1, 2))
def main(options: NoOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import INT32, MATRIX
    from nnet3tools.io.table import SequentialTableReader

    if len(args) == 2:
        convert_table(args[0], args[1], (MATRIX, INT32), lambda key, matrix: len(matrix))
        return
    with SequentialTableReader(args[0], MATRIX) as reader:
        print(sum(len(matrix) for _, matrix in reader))

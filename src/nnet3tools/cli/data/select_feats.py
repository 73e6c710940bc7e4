"""select-feats: selects columns of features."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.errors import DataError
from nnet3tools.io import log

USAGE = """Select certain dimensions of the feature file;  think of it as the unix
command cut -f ...
Usage: select-feats <selection> <in-rspecifier> <out-wspecifier>
  e.g.: select-feats 0,24-22,3-12 scp:feats.scp ark,scp:feat-red.ark,feat-red.scp
See also copy-feats, extract-feature-segments, subset-feats, subsample-feats
"""


@program("select-feats", USAGE, NoOptions, num_args=3)
def main(options: NoOptions, args: list[str]) -> None:
    from itertools import chain

    from nnet3tools.features.frames import select_columns
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    selection, source, target = args
    with SequentialTableReader(source, MATRIX) as reader:
        items = iter(reader)
        if (first := next(items, None)) is None:
            log.warning("Empty archive provided.")
            return
        columns = select_columns(selection, first[1].shape[1])
        with TableWriter(target, MATRIX) as writer:
            for key, features in chain([first], items):
                if features.shape[1] <= max(columns):
                    raise DataError(
                        f"{source}: key '{key}': there is no column {max(columns)} among the "
                        f"{features.shape[1]}"
                    )
                writer.write(key, features[:, columns])

"""shift-feats: shifts features in time."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Copy features, and possibly shift them while maintaining the num-frames.
Usage: shift-feats [options] <feature-rspecifier> <feature-wspecifier>
or:  shift-feats [options] <feats-rxfilename> <feats-wxfilename>
e.g.: shift-feats --shift=-1 scp:foo.scp ark:bar.ark
or: shift-feats --shift=1 foo.mat bar.mat
See also: copy-feats, copy-matrix, select-feats, subset-feats, subsample-feats, splice-feats,
paste-feats, concat-feats
"""


class Options(OptionGroup):
    shift: int = option(0, "Number of frames by which to shift the features.")
    binary: bool = option(True, "Binary-mode output (not relevant if writing to archive)")


@program("shift-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.features.frames import shift
    from nnet3tools.io.holders import MATRIX

    source, target = args
    if not are_tables(source, target, "features"):
        features = read_object(source, MATRIX)
        if not len(features):
            raise DataError(f"{source}: empty input matrix")
        write_object(target, MATRIX, shift(features, options.shift), options.binary)
        return 0

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        if not len(features):
            log.warning(f"Empty matrix for key {key}")
            return None
        return shift(features, options.shift)

    num_done, num_failed = convert_table(source, target, (MATRIX, MATRIX), convert)
    log.log(f"Shifted {num_done} features by {options.shift} frames; {num_failed} with errors.")
    return 0 if num_done else 1

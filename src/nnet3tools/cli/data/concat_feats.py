"""concat-feats: concatenates feature files."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io.numpy_later import np

USAGE = """Concatenate feature files (assuming they have the same dimensions),
so the output file has the sum of the num-frames of the inputs.
Usage: concat-feats <in-rxfilename1> <in-rxfilename2> [<in-rxfilename3> ...] <out-wxfilename>
 e.g.: concat-feats mfcc/foo.ark:12343 mfcc/foo.ark:56789 -
See also: copy-feats, append-vector-to-feats, paste-feats
"""


class Options(OptionGroup):
    binary: bool = option(True, "If true, output files in binary")


@program("concat-feats", USAGE, Options, num_args=(3, None))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.tables import read_object, write_object
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    parts = [read_object(source, MATRIX) for source in sources]
    dim = parts[0].shape[1]
    for source, part in zip(sources, parts, strict=True):
        if part.shape[1] != dim:
            raise DataError(f"{source} has dimension {part.shape[1]}, {sources[0]} has {dim}")
    write_object(target, MATRIX, np.concatenate(parts), options.binary)

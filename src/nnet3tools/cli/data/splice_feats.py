"""splice-feats: joins each frame with its neighbours."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError

USAGE = """Splice features with left and right context (e.g. prior to LDA)
Usage: splice-feats [options] <feature-rspecifier> <feature-wspecifier>
e.g.: splice-feats scp:feats.scp ark:-
"""


class Options(OptionGroup):
    left_context: int = option(4, "Number of frames of left context")
    right_context: int = option(4, "Number of frames of right context")


@program("splice-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.frames import splice
    from nnet3tools.io.holders import MATRIX

    left, right = options.left_context, options.right_context
    if left < 0 or right < 0:
        raise OptionError("--left-context and --right-context must not be negative")
    convert_table(
        args[0], args[1], (MATRIX, MATRIX), lambda key, features: splice(features, left, right)
    )

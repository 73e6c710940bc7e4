"""subsample-feats: selects every n-th frame, or repeats each frame n times."""

from __future__ import annotations

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Sub-samples features by taking every n'th frame.
With negative values of n, will repeat each frame n times
(e.g. --n=-2 will repeat each frame twice)

Usage: subsample-feats [options] <in-rspecifier> <out-wspecifier>
  e.g.: subsample-feats --n=2 ark:- ark:-
"""


class Options(OptionGroup):
    n: int = option(
        1,
        "Take every n'th feature, for this value of n(with negative value, repeats each feature n "
        "times)",
    )
    offset: int = option(
        0, "Start with the feature with this offset, then take every n'th feature."
    )


@program("subsample-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.frames import subsample
    from nnet3tools.io.holders import MATRIX

    if options.n == 0 or options.offset < 0:
        raise OptionError("--n must not be 0, nor --offset negative")
    if options.n < 0 and options.offset:
        raise OptionError("--offset option cannot be used with negative n.")
    frames_in = frames_out = 0

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        nonlocal frames_in, frames_out
        output = subsample(features, options.n, options.offset)
        frames_in += len(features)
        frames_out += len(output)
        if options.n > 0 and len(output) == 0:
            log.warning(f"For utterance {key}, output would have no rows, producing no output.")
            return None
        return output

    num_done, num_failed = convert_table(args[0], args[1], (MATRIX, MATRIX), convert)
    log.log(f"Processed {num_done} feature matrices; {num_failed} with errors.")
    log.log(f"Processed {frames_in} input frames and {frames_out} output frames.")
    return 0 if num_done else 1

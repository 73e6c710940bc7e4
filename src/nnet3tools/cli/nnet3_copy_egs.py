"""nnet3-copy-egs: copy examples, cut them down, weight or rename them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.egs_tables import Changes, CopyOptions, copy_examples
from nnet3tools.cli.options import option, option_group, program

if TYPE_CHECKING:
    from nnet3tools.io.holder import Holder

USAGE = """Copy examples (single frames or fixed-size groups of frames) for neural
network training, possibly changing the binary mode.  Supports multiple wspecifiers, in
which case it will write the examples round-robin to the outputs.

Usage:  nnet3-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
nnet3-copy-egs ark:train.egs ark,t:text.egs
or:
nnet3-copy-egs ark:train.egs ark:1.egs ark:2.egs
See also: nnet3-subset-egs, nnet3-get-egs, nnet3-merge-egs, nnet3-shuffle-egs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-copy-egs."""

    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = option(
        0,
        "Allows you to shift time values in the supervision data (excluding iVector data).  Only "
        "really useful for topologies with modulus != 1.  Done after any frame selection.",
    )
    frame: str = option(
        "", "A number 0, 1, etc. to select a single frame of each example, or 'random'"
    )


@program("nnet3-copy-egs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Copy to one or more tables."""
    if options.common.changes_nothing and not options.frame and not options.frame_shift:
        from nnet3tools.training.example_bytes import EXAMPLE_BYTES

        copy_examples(args, options.common, EXAMPLE_BYTES, None)
        return
    from nnet3tools.training.like_changes import LikeChanges
    from nnet3tools.training.like_examples import LIKE_EXAMPLES
    from nnet3tools.training.selection import FrameSelection

    holder: Holder[Any] = LIKE_EXAMPLES  # which writes what `finish` gives
    contexts = options.common.left_context, options.common.right_context
    changer = LikeChanges(FrameSelection(options.frame, *contexts, options.frame_shift))
    changes = Changes(
        changer.scale, changer.select, changer.rename, changer.finish, changer.num_bytes
    )
    copy_examples(args, options.common, holder, changes)

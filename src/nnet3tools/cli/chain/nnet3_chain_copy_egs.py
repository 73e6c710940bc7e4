"""nnet3-chain-copy-egs: copy chain examples, cut them down, weight or rename them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nnet3tools.cli.egs_tables import Changes, CopyOptions, copy_examples, frame_shift_option
from nnet3tools.cli.options import option_group, program

if TYPE_CHECKING:
    from nnet3tools.io.holder import Holder

USAGE = """Copy examples for nnet3+chain network training, possibly changing the binary mode.
Supports multiple wspecifiers, in which case it will write the examples
round-robin to the outputs.

Usage:  nnet3-chain-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
nnet3-chain-copy-egs ark:train.cegs ark,t:text.cegs
or:
nnet3-chain-copy-egs ark:train.cegs ark:1.cegs ark:2.cegs
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-chain-copy-egs."""

    common: CopyOptions = option_group("", CopyOptions)
    frame_shift: int = frame_shift_option()


@program("nnet3-chain-copy-egs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Copy to one or more tables."""
    from nnet3tools.chain.example_bytes import CHAIN_BYTES

    if options.common.changes_nothing and not options.frame_shift:
        copy_examples(args, options.common, CHAIN_BYTES, None)
        return
    from nnet3tools.chain.byte_changes import ChainChanges
    from nnet3tools.chain.selection import ChainSelection
    from nnet3tools.training.selection import ContextCutter

    holder: Holder[Any] = CHAIN_BYTES  # which writes what `finish` gives
    contexts = ContextCutter(options.common.left_context, options.common.right_context)
    changer = ChainChanges(ChainSelection(options.frame_shift, contexts))
    changes = Changes(
        changer.scale, changer.select, changer.rename, changer.finish, changer.num_bytes
    )
    copy_examples(args, options.common, holder, changes)

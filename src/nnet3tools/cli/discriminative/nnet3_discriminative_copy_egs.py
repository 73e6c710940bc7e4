"""nnet3-discriminative-copy-egs: copy discriminative examples, perhaps moved in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.egs_tables import (
    Changes,
    CopyOptions,
    DrawOptions,
    copy_examples,
    frame_shift_option,
)
from nnet3tools.cli.options import program

if TYPE_CHECKING:
    from nnet3tools.discriminative.example import NnetDiscriminativeExample

USAGE = """Copy examples for nnet3 discriminative training, possibly changing the binary mode.
Supports multiple wspecifiers, in which case it will write the examples
round-robin to the outputs.

Usage:  nnet3-discriminative-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
nnet3-discriminative-copy-egs ark:train.degs ark,t:text.degs
or:
nnet3-discriminative-copy-egs ark:train.degs ark:1.degs ark:2.degs
"""  # noqa: E501


@dataclass(frozen=True)
class Options(DrawOptions):
    """Options of nnet3-discriminative-copy-egs."""

    frame_shift: int = frame_shift_option()


@program("nnet3-discriminative-copy-egs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    """Copy to one or more tables."""
    from nnet3tools.chain.selection import shift_sequence_times
    from nnet3tools.discriminative.example import DISCRIMINATIVE_EXAMPLE

    common = CopyOptions(options.random, options.keep_proportion, options.srand)
    changes: Changes[NnetDiscriminativeExample] = Changes(
        scale=lambda example, key, weight: example,
        select=lambda example, key: shift_sequence_times(example, options.frame_shift),
        rename=lambda example, key, name: example,
    )
    copy_examples(args, common, DISCRIMINATIVE_EXAMPLE, changes)

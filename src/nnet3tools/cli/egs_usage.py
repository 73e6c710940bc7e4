"""Kaldi's usage messages of the programs that copy, merge, shuffle and choose examples."""

from __future__ import annotations

__all__ = ["USAGE"]

_COPY_FRAMES = """Copy examples (single frames or fixed-size groups of frames) for neural
network training, possibly changing the binary mode.  Supports multiple wspecifiers, in
which case it will write the examples round-robin to the outputs.

Usage:  nnet3-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
nnet3-copy-egs ark:train.egs ark,t:text.egs
or:
nnet3-copy-egs ark:train.egs ark:1.egs ark:2.egs
See also: nnet3-subset-egs, nnet3-get-egs, nnet3-merge-egs, nnet3-shuffle-egs
"""

_COPY_SEQUENCES = """Copy examples for {what} training, possibly changing the binary mode.
Supports multiple wspecifiers, in which case it will write the examples
round-robin to the outputs.

Usage:  {name} [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
{name} ark:train.{suffix} ark,t:text.{suffix}
or:
{name} ark:train.{suffix} ark:1.{suffix} ark:2.{suffix}
"""

_MERGE_FRAMES = """This copies nnet training examples from input to output, but while doing so it
merges many NnetExample objects into one, forming a minibatch consisting of a
single NnetExample.

Usage:  nnet3-merge-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-merge-egs --minibatch-size=512 ark:1.egs ark:- | nnet3-train ...
See also: nnet3-copy-egs
"""

_MERGE_SEQUENCES = """This copies {what} training examples from input to output, merging them
into composite examples.  The --minibatch-size option controls how many egs
are merged into a single output eg.

Usage:  {name} [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
{name} --minibatch-size=128 ark:1.{suffix} ark:- | {trainer} ...
{see_also}
"""

_SHUFFLE_FRAMES = """Copy examples (typically single frames or small groups of frames) for
neural network training, from the input to output, but randomly shuffle the order.
This program will keep all of the examples in memory at once, unless you
use the --buffer-size option

Usage:  nnet3-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""

_SHUFFLE_SEQUENCES = """{first_line}
while randomly shuffling the order.  This program will keep all of the examples
in memory at once, unless you use the --buffer-size option

Usage:  {name} [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
{name} --srand=1 ark:train.egs ark:shuffled.egs
"""

_SUBSET = """Creates a random subset of the input {examples}, of a specified size.
Uses no more memory than the size of the subset.

Usage:  {name} [options] <{egs}-rspecifier> <{egs}-wspecifier>

e.g.:
{copy} [args] ark:{egs}.1.ark ark:- | {command}
"""

_CHAIN = "nnet3-chain"
_DISCRIMINATIVE = "nnet3-discriminative"

USAGE = {
    "nnet3-copy-egs": _COPY_FRAMES,
    "nnet3-chain-copy-egs": _COPY_SEQUENCES.format(
        what="nnet3+chain network", name=f"{_CHAIN}-copy-egs", suffix="cegs"
    ),
    "nnet3-discriminative-copy-egs": _COPY_SEQUENCES.format(
        what="nnet3 discriminative", name=f"{_DISCRIMINATIVE}-copy-egs", suffix="degs"
    ),
    "nnet3-merge-egs": _MERGE_FRAMES,
    "nnet3-chain-merge-egs": _MERGE_SEQUENCES.format(
        what="nnet3+chain",
        name=f"{_CHAIN}-merge-egs",
        suffix="cegs",
        trainer=f"{_CHAIN}-train",
        see_also=f"See also: {_CHAIN}-copy-egs",
    ),
    "nnet3-discriminative-merge-egs": _MERGE_SEQUENCES.format(
        what="nnet3 discriminative",
        name=f"{_DISCRIMINATIVE}-merge-egs",
        suffix="degs",
        trainer=f"{_DISCRIMINATIVE}-train",
        see_also=f"See also {_DISCRIMINATIVE}-copy-egs",
    ),
    "nnet3-shuffle-egs": _SHUFFLE_FRAMES,
    "nnet3-chain-shuffle-egs": _SHUFFLE_SEQUENCES.format(
        first_line="Copy nnet3+chain examples for neural network training, from the input to "
        "output,",
        name=f"{_CHAIN}-shuffle-egs",
    ),
    "nnet3-discriminative-shuffle-egs": _SHUFFLE_SEQUENCES.format(
        first_line="Copy nnet3 discriminative training examples from the input to output,",
        name=f"{_DISCRIMINATIVE}-shuffle-egs",
    ),
    "nnet3-subset-egs": _SUBSET.format(
        examples="examples",
        name="nnet3-subset-egs",
        egs="egs",
        copy="nnet3-copy-egs",
        command="nnet3-subset-egs --n=1000 ark:- ark:subset.egs",
    ),
    "nnet3-chain-subset-egs": _SUBSET.format(
        examples="nnet3+chain examples",
        name=f"{_CHAIN}-subset-egs",
        egs="egs",
        copy=f"{_CHAIN}-copy-egs",
        command=f"{_CHAIN}-subset-egs --n=1000 ark:- \\\n   ark:subset.cegs",
    ),
    "nnet3-discriminative-subset-egs": _SUBSET.format(
        examples="examples",
        name=f"{_DISCRIMINATIVE}-subset-egs",
        egs="degs",
        copy=f"{_DISCRIMINATIVE}-copy-egs",
        command=f"{_DISCRIMINATIVE}-subset-egs \\\n   --n=1000 ark:- ark:subset.egs",
    ),
}
"""Program -> usage message."""

"""Kaldi's usage messages of the programs that copy, merge, shuffle and choose examples."""

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

_COPY_SEQUENCES = """Copy examples for {copied} training, possibly changing the binary mode.
Supports multiple wspecifiers, in which case it will write the examples
round-robin to the outputs.

Usage:  {kind}-copy-egs [options] <egs-rspecifier> <egs-wspecifier1> [<egs-wspecifier2> ...]

e.g.:
{kind}-copy-egs ark:train.{suffix} ark,t:text.{suffix}
or:
{kind}-copy-egs ark:train.{suffix} ark:1.{suffix} ark:2.{suffix}
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

Usage:  {kind}-merge-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
{kind}-merge-egs --minibatch-size=128 ark:1.{suffix} ark:- | {kind}-train ...
See also{colon} {kind}-copy-egs
"""

_SHUFFLE_FRAMES = """Copy examples (typically single frames or small groups of frames) for
neural network training, from the input to output, but randomly shuffle the order.
This program will keep all of the examples in memory at once, unless you
use the --buffer-size option

Usage:  nnet3-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""

_SHUFFLE_SEQUENCES = """Copy {shuffled} from the input to output,
while randomly shuffling the order.  This program will keep all of the examples
in memory at once, unless you use the --buffer-size option

Usage:  {kind}-shuffle-egs [options] <egs-rspecifier> <egs-wspecifier>

e.g.:
{kind}-shuffle-egs --srand=1 ark:train.egs ark:shuffled.egs
"""

_SUBSET = """Creates a random subset of the input {examples}, of a specified size.
Uses no more memory than the size of the subset.

Usage:  {kind}-subset-egs [options] <{egs}-rspecifier> <{egs}-wspecifier>

e.g.:
{kind}-copy-egs [args] ark:{egs}.1.ark ark:- | {kind}-subset-egs{command}
"""

_WORDS = {
    "nnet3": {"examples": "examples", "egs": "egs", "command": " --n=1000 ark:- ark:subset.egs"},
    "nnet3-chain": {
        "what": "nnet3+chain",
        "copied": "nnet3+chain network",
        "suffix": "cegs",
        "colon": ":",
        "shuffled": "nnet3+chain examples for neural network training,",
        "examples": "nnet3+chain examples",
        "egs": "egs",
        "command": " --n=1000 ark:- \\\n   ark:subset.cegs",
    },
    "nnet3-discriminative": {
        "what": "nnet3 discriminative",
        "copied": "nnet3 discriminative",
        "suffix": "degs",
        "colon": "",
        "shuffled": "nnet3 discriminative training examples",
        "examples": "examples",
        "egs": "degs",
        "command": " \\\n   --n=1000 ark:- ark:subset.egs",
    },
}
_FRAMES = {"copy": _COPY_FRAMES, "merge": _MERGE_FRAMES, "shuffle": _SHUFFLE_FRAMES}
_SEQUENCES = {"copy": _COPY_SEQUENCES, "merge": _MERGE_SEQUENCES, "shuffle": _SHUFFLE_SEQUENCES}


def usage(kind: str, action: str) -> str:
    """The usage message of the program `<kind>-<action>-egs`, such as nnet3-chain-copy-egs."""
    texts = _FRAMES if kind == "nnet3" else _SEQUENCES
    return texts.get(action, _SUBSET).format(kind=kind, **_WORDS[kind])

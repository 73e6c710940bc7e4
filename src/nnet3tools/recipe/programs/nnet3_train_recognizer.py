"""nnet3-train-recognizer: from recordings and transcripts to a recognizer's directory."""

from __future__ import annotations

from nnet3tools.cli.options import program
from nnet3tools.recipe.speech.options import RecognizerTrainingOptions

USAGE = """Train a recognizer on recordings and their transcripts.
<data> is a Kaldi data directory, or a TSV, CSV or JSON-lines file that names sound files and
transcripts; <lexicon> is a dictionary, or "none": letters are the phones then. <out> becomes a
model directory for nnet3-decode, with report.html and, in work/, everything that the training
needs. All data is checked first. Called again with the same options, the program goes on after
the last finished step.

Usage:  nnet3-train-recognizer [options] <data> <lexicon> <out>
e.g.:
nnet3-train-recognizer recordings.tsv none exp/words
nnet3-train-recognizer --arpa=lm.arpa --test=data/test data/train lexicon.txt exp/recognizer
nnet3-decode exp/recognizer new.wav
See also: nnet3-recognizer-info, nnet3-make-lm, docs/own-data.md
"""


@program("nnet3-train-recognizer", USAGE, RecognizerTrainingOptions, num_args=3)
def main(options: RecognizerTrainingOptions, args: list[str]) -> None:
    from nnet3tools.recipe.speech.run import train_recognizer

    train_recognizer(options, *args)

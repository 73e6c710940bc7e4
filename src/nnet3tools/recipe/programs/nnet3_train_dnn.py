"""nnet3-train-dnn: the whole training of a feed-forward acoustic model."""

from __future__ import annotations

from nnet3tools.cli.options import program
from nnet3tools.recipe.options import AmDnnOptions

USAGE = """Train a feed-forward acoustic model: examples, initial
model, iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/train_dnn.py. Started again with the same options it goes on after the last
whole step.

Usage:  nnet3-train-dnn [options]
e.g.:
nnet3-train-dnn --feat-dir=data/train --ali-dir=exp/ali --dir=exp/nnet
See also: nnet3-xconfig-to-configs, docs/training.md
"""


@program("nnet3-train-dnn", USAGE, AmDnnOptions, num_args=0, values_apart=True)
def main(options: AmDnnOptions, args: list[str]) -> None:
    """Run the training."""
    from nnet3tools.recipe.experiment import Experiment
    from nnet3tools.recipe.train import train

    train(Experiment("nnet3-train-dnn", options))

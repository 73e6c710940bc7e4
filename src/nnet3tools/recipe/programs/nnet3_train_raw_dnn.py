"""nnet3-train-raw-dnn: the whole training of a feed-forward network (no transition model)."""

from __future__ import annotations

from nnet3tools.cli.options import program
from nnet3tools.recipe.options import RawDnnOptions

USAGE = """Train a feed-forward network (no transition model): examples, initial
model, iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/train_raw_dnn.py. Started again with the same options it goes on after the last
whole step.

Usage:  nnet3-train-raw-dnn [options]
e.g.:
nnet3-train-raw-dnn --feat-dir=data/train --targets-scp=targets.scp --dir=exp/nnet
See also: nnet3-xconfig-to-configs, docs/training.md
"""


@program("nnet3-train-raw-dnn", USAGE, RawDnnOptions, num_args=0, values_apart=True)
def main(options: RawDnnOptions, args: list[str]) -> None:
    """Run the training."""
    from nnet3tools.recipe.experiment import Experiment
    from nnet3tools.recipe.train import train

    train(Experiment("nnet3-train-raw-dnn", options))

"""nnet3-train-chain-e2e: flat-start LF-MMI training of a chain model."""

from __future__ import annotations

from nnet3tools.cli.options import program
from nnet3tools.recipe.chain_options import E2eOptions

USAGE = """Train a chain model without alignments, from graphs of the transcripts (fst.N.scp in
--tree-dir, of compile-train-graphs) and utterances of the lengths in
FEAT-DIR/allowed_lengths.txt. Options and files are those of Kaldi's
steps/nnet3/chain/e2e/train_e2e.py. Started again with the same options it goes on after
the last whole step.

Usage:  nnet3-train-chain-e2e [options]
e.g.:
nnet3-train-chain-e2e --feat-dir=data/train --tree-dir=exp/mono --dir=exp/e2e
See also: nnet3-xconfig-to-configs, nnet3-prepare-lang, docs/training.md
"""


@program("nnet3-train-chain-e2e", USAGE, E2eOptions, num_args=0, values_apart=True)
def main(options: E2eOptions, args: list[str]) -> None:
    from nnet3tools.recipe.chain_experiment import chain_experiment
    from nnet3tools.recipe.chain_preparation import ChainPreparation
    from nnet3tools.recipe.train import train

    experiment = chain_experiment("nnet3-train-chain-e2e", options)
    train(experiment, ChainPreparation(experiment))

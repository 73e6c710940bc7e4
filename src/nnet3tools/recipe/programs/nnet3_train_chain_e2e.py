"""nnet3-train-chain-e2e: flat-start LF-MMI training of a chain model."""

from nnet3tools.recipe.chain_options import E2eOptions
from nnet3tools.recipe.programs.training_program import training_program

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

main = training_program("nnet3-train-chain-e2e", USAGE, E2eOptions)

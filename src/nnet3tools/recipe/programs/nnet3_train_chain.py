"""nnet3-train-chain: the whole LF-MMI training of a chain model."""

from nnet3tools.recipe.chain_options import LatticeChainOptions
from nnet3tools.recipe.programs.training_program import training_program

USAGE = """Train a chain model: phone language model, denominator graph, examples, initial model,
iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/chain/train.py; without --lat-dir supervision comes from the alignments
(ali.N.gz) in --tree-dir. If started again with the same options, it continues after the last
finished step.

Usage:  nnet3-train-chain [options]
e.g.:
nnet3-train-chain --feat-dir=data/train --tree-dir=exp/tree --lat-dir=exp/lats --dir=exp/chain
See also: nnet3-xconfig-to-configs, nnet3-prepare-lang, docs/training.md
"""

main = training_program("nnet3-train-chain", USAGE, LatticeChainOptions)

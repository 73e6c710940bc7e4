"""The programs that train a network in all stages, from data to the last model."""

from __future__ import annotations

from nnet3tools.cli.options import Main, program
from nnet3tools.recipe.chain_options import ChainOptions, E2eOptions, LatticeChainOptions
from nnet3tools.recipe.options import (
    AmDnnOptions,
    AmRnnOptions,
    DnnOptions,
    RawDnnOptions,
    RawRnnOptions,
    RnnOptions,
)

_FRAMES = """Train a {network}: examples, initial
model, iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/{script}. If started again with the same options, it continues after the last
finished step.

Usage:  {name} [options]
e.g.:
{name} --feat-dir=data/train {targets} --dir=exp/nnet
See also: nnet3-xconfig-to-configs, docs/training.md
"""

_CHAIN = """Train a chain model: phone language model, denominator graph, examples, initial model,
iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/chain/train.py; without --lat-dir supervision comes from the alignments
(ali.N.gz) in --tree-dir. If started again with the same options, it continues after the last
finished step.

Usage:  nnet3-train-chain [options]
e.g.:
nnet3-train-chain --feat-dir=data/train --tree-dir=exp/tree --lat-dir=exp/lats --dir=exp/chain
See also: nnet3-xconfig-to-configs, nnet3-prepare-lang, docs/training.md
"""

_E2E = """Train a chain model without alignments, from graphs of the transcripts (fst.N.scp in
--tree-dir, of compile-train-graphs) and utterances of the lengths in
FEAT-DIR/allowed_lengths.txt. Options and files are those of Kaldi's
steps/nnet3/chain/e2e/train_e2e.py. Started again with the same options it goes on after
the last whole step.

Usage:  nnet3-train-chain-e2e [options]
e.g.:
nnet3-train-chain-e2e --feat-dir=data/train --tree-dir=exp/mono --dir=exp/e2e
See also: nnet3-xconfig-to-configs, nnet3-prepare-lang, docs/training.md
"""


def _training(
    name: str, usage: str, options_class: type[DnnOptions | RnnOptions | ChainOptions]
) -> Main:
    """The training program `name`, from its usage text and its class of options."""

    @program(name, usage, options_class, num_args=0, values_apart=True)
    def main(options: DnnOptions | RnnOptions | ChainOptions, args: list[str]) -> None:
        from nnet3tools.recipe.train import train

        train(name, options)

    return main


def _frame_training(
    name: str, network: str, targets: str, options_class: type[DnnOptions | RnnOptions]
) -> Main:
    """The training program `name` for targets of frames; its usage has `network` and `targets`."""
    script = name.removeprefix("nnet3-").replace("-", "_") + ".py"
    usage = _FRAMES.format(name=name, network=network, script=script, targets=targets)
    return _training(name, usage, options_class)


_ALI, _TARGETS = "--ali-dir=exp/ali", "--targets-scp=targets.scp"
nnet3_train_dnn = _frame_training(
    "nnet3-train-dnn", "feed-forward acoustic model", _ALI, AmDnnOptions
)
nnet3_train_rnn = _frame_training("nnet3-train-rnn", "recurrent acoustic model", _ALI, AmRnnOptions)
nnet3_train_raw_dnn = _frame_training(
    "nnet3-train-raw-dnn", "feed-forward network (no transition model)", _TARGETS, RawDnnOptions
)
nnet3_train_raw_rnn = _frame_training(
    "nnet3-train-raw-rnn", "recurrent network (no transition model)", _TARGETS, RawRnnOptions
)
nnet3_train_chain = _training("nnet3-train-chain", _CHAIN, LatticeChainOptions)
nnet3_train_chain_e2e = _training("nnet3-train-chain-e2e", _E2E, E2eOptions)

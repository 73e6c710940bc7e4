"""The body of the training programs, and the usage of the four that train on targets of frames."""

from __future__ import annotations

from nnet3tools.cli.options import Main, program
from nnet3tools.recipe.chain_options import ChainOptions
from nnet3tools.recipe.options import DnnOptions, RnnOptions

_USAGE_OF_FRAMES = """Train a {network}: examples, initial
model, iterations with diagnostics, combination. Options and files are those of Kaldi's
steps/nnet3/{script}. If started again with the same options, it continues after the last
finished step.

Usage:  {name} [options]
e.g.:
{name} --feat-dir=data/train {targets} --dir=exp/nnet
See also: nnet3-xconfig-to-configs, docs/training.md
"""


def frame_training(
    name: str, network: str, targets: str, options_class: type[DnnOptions | RnnOptions]
) -> Main:
    """Make the `main` of program `name`; `network` and `targets` are words of its usage text."""
    script = name.removeprefix("nnet3-").replace("-", "_") + ".py"
    usage = _USAGE_OF_FRAMES.format(name=name, network=network, script=script, targets=targets)
    return training_program(name, usage, options_class)


def training_program(
    name: str, usage: str, options_class: type[DnnOptions | RnnOptions | ChainOptions]
) -> Main:
    """Make the `main` of program `name` from its usage text and its class of options."""

    @program(name, usage, options_class, num_args=0, values_apart=True)
    def main(options: DnnOptions | RnnOptions | ChainOptions, args: list[str]) -> None:
        from nnet3tools.recipe.train import train

        train(name, options)

    return main

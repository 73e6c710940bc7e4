"""nnet3-copy: copy a network, changing it on the way."""

from __future__ import annotations

from dataclasses import dataclass

from nnet3tools.cli.options import option, program
from nnet3tools.io import log

USAGE = """Copy a 'raw' nnet3 network, in text or binary form, and optionally change it: learning
rates (--learning-rate), nodes and components (--nnet-config), edit commands (--edits).

Usage:  nnet3-copy [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-copy --binary=false 0.raw text.raw
"""


@dataclass(frozen=True)
class Options:
    """Options of nnet3-copy."""

    binary: bool = option(True, "Write output in binary mode")
    learning_rate: float = option(
        -1.0, "If supplied, all the learning rates of updatable components are set to this value."
    )
    nnet_config: str = option(
        "",
        "Name of nnet3 config file that adds or replaces components or nodes of the neural "
        "network (the same as you would give to nnet3-init).",
    )
    edits_config: str = option(
        "",
        "Name of a file of edit commands that modify the network (applied after nnet-config).",
    )
    edits: str = option(
        "",
        "Inline alternative to edits-config; semicolons separate commands. E.g. "
        "'--edits=remove-orphans'.",
    )
    scale: float = option(1.0, "The parameter matrices are scaled by the specified value.")
    prepare_for_test: bool = option(
        False,
        "If true, prepares the model for test time: sets test mode in dropout and batch-norm "
        "components, and merges components where that saves computation.",
    )
    batchnorm_test_mode: bool = option(
        False,
        "Batch-norm components' test mode is set to this value (without --prepare-for-test).",
    )


@program("nnet3-copy", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    """Copy the network."""
    from nnet3tools.cli.model_changes import apply_edits, prepare_for_test
    from nnet3tools.nnet.arithmetic import scale_nnet, set_batchnorm_test_mode, set_learning_rate
    from nnet3tools.nnet.model_file import read_config_file, read_nnet, write_nnet

    nnet_in, nnet_out = args
    nnet = read_nnet(nnet_in)
    if options.nnet_config:
        nnet.read_config(read_config_file(options.nnet_config))
    if options.learning_rate >= 0.0:
        set_learning_rate(nnet, options.learning_rate)
    scale_nnet(nnet, options.scale)
    apply_edits(nnet, options.edits_config, options.edits)
    if options.prepare_for_test:
        prepare_for_test(nnet)
    else:
        set_batchnorm_test_mode(nnet, options.batchnorm_test_mode)
    write_nnet(nnet, nnet_out, options.binary)
    log.log(f"Copied raw neural net from {nnet_in} to {nnet_out}")

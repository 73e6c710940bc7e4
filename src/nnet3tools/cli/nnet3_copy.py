"""nnet3-copy: copy a network, with optional changes."""

from nnet3tools.cli.model_changes import (
    ChangeOptions,
    apply_edits,
    read_config,
    scale_parameters,
    set_learning_rates,
)
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.io import log

USAGE = """Copy a 'raw' nnet3 network, in text or binary form, and optionally change it: learning
rates (--learning-rate), nodes and components (--nnet-config), edit commands (--edits).

Usage:  nnet3-copy [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-copy --binary=false 0.raw text.raw
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    changes: ChangeOptions = option_group("", ChangeOptions)
    batchnorm_test_mode: bool = option(
        False,
        "Batch-norm components' test mode is set to this value (without --prepare-for-test).",
    )


@program("nnet3-copy", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode
    from nnet3tools.nnet.model_file import read_nnet, write_nnet

    nnet_in, nnet_out = args
    changes = options.changes
    nnet = read_nnet(nnet_in)
    read_config(nnet, changes)
    set_learning_rates(nnet, changes)
    scale_parameters(nnet, changes)
    apply_edits(nnet, changes)
    if changes.prepare_for_test:
        from nnet3tools.nnet.collapse import prepare_for_test

        prepare_for_test(nnet)
    else:
        set_batchnorm_test_mode(nnet, options.batchnorm_test_mode)
    write_nnet(nnet, nnet_out, options.binary)
    log.log(f"Copied raw neural net from {nnet_in} to {nnet_out}")

"""nnet3-am-copy: copy an acoustic model, with optional changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.model_changes import (
    ChangeOptions,
    apply_edits,
    read_config,
    scale_parameters,
    set_learning_rates,
)
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.nnet.am_nnet import AmNnet

USAGE = """Copy a nnet3 acoustic model, in text or binary form, and optionally change it: another
network (--set-raw-nnet), learning rates (--learning-rate), edit commands (--edits).
With --raw=true only the network is written.

Usage:  nnet3-am-copy [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-am-copy --binary=false 1.mdl text.mdl
 nnet3-am-copy --raw=true 1.mdl 1.raw
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    raw: bool = option(
        False, "If true, write only the 'raw' network, without transition model and priors."
    )
    set_raw_nnet: str = option(
        "", "Replace the network by this one (an rxfilename), before any other change."
    )
    convert_repeated_to_block: bool = option(
        False,
        "Convert all RepeatedAffineComponents and NaturalGradientRepeatedAffineComponents to "
        "BlockAffineComponents. Done after set-raw-nnet.",
    )
    changes: ChangeOptions = option_group("", ChangeOptions)


@program("nnet3-am-copy", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet, set_context
    from nnet3tools.graph.context import draw_before_statistics
    from nnet3tools.nnet.model_file import write_nnet

    model_in, model_out = args
    changes = options.changes
    model = load_am_nnet(model_in)
    may_draw = bool(options.set_raw_nnet) or changes.more_than_numbers
    if may_draw:
        draw_before_statistics(model.nnet)
    if options.set_raw_nnet:
        _set_raw_nnet(model, options.set_raw_nnet)
    read_config(model.nnet, changes)
    if options.convert_repeated_to_block:
        _convert_repeated_to_block(model)
    set_learning_rates(model.nnet, changes)
    apply_edits(model.nnet, changes)
    if may_draw:
        set_context(model)
        draw_before_statistics(model.nnet)
    scale_parameters(model.nnet, changes)
    if changes.prepare_for_test:
        from nnet3tools.nnet.collapse import prepare_for_test

        prepare_for_test(model.nnet)
    if options.raw:
        write_nnet(model.nnet, model_out, options.binary)
        log.log(f"Copied neural net from {model_in} to raw format as {model_out}")
    else:
        model.save(model_out, options.binary)
        log.log(f"Copied neural net from {model_in} to {model_out}")


def _set_raw_nnet(model: AmNnet, rxfilename: str) -> None:
    from nnet3tools.cli.am_models import set_context
    from nnet3tools.graph.context import draw_before_statistics
    from nnet3tools.nnet.model_file import read_nnet

    model.set_nnet(read_nnet(rxfilename))
    set_context(model)
    draw_before_statistics(model.nnet)


def _convert_repeated_to_block(model: AmNnet) -> None:
    from nnet3tools.nnet.repeated_affine import convert_repeated_to_block_affine

    convert_repeated_to_block_affine(model.nnet)

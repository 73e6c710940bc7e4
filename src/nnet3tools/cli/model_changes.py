"""Programs that copy networks and acoustic models, with optional changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

if TYPE_CHECKING:
    from nnet3tools.nnet.nnet import Nnet


class ChangeOptions(OptionGroup):
    """Options that change a network, of nnet3-copy and nnet3-am-copy."""

    learning_rate: float = option(
        -1.0, "If supplied, all the learning rates of updatable components are set to this value."
    )
    nnet_config: str = option(
        "",
        "Name of nnet3 config file that adds or replaces components or nodes of the neural "
        "network (the same as you would give to nnet3-init).",
    )
    edits_config: str = option(
        "", "Name of a file of edit commands that modify the network (applied after nnet-config)."
    )
    edits: str = option(
        "",
        "Inline alternative to edits-config; semicolons separate commands. E.g. "
        "'--edits=remove-orphans'.",
    )
    scale: float = option(
        1.0, "The parameter matrices are scaled by the specified value.", infinite=True
    )
    prepare_for_test: bool = option(
        False,
        "If true, prepares the model for test time: sets test mode in dropout and batch-norm "
        "components, and merges components where that saves computation.",
    )

    dequantize: bool = option(
        False,
        "If true, integer weights (see nnet3-quantize) become floats, so that the network can be "
        "trained, changed and read by Kaldi. The first of all changes.",
    )

    @property
    def more_than_numbers(self) -> bool:
        """Whether the options may change the network's structure, and so its context."""
        return bool(self.nnet_config or self.edits_config or self.edits or self.prepare_for_test)


def begin_changes(nnet: Nnet, options: ChangeOptions) -> None:
    """Convert integer weights of `nnet` to floats, then apply a config file, if options say so."""
    if options.dequantize:
        from nnet3tools.nnet.quantization import dequantize

        log.log(f"Dequantized {len(dequantize(nnet))} components")
    if options.nnet_config:
        from nnet3tools.nnet.model_file import apply_config_file

        apply_config_file(nnet, options.nnet_config)


def set_learning_rates(nnet: Nnet, options: ChangeOptions) -> None:
    """Set the learning rates of `nnet` to --learning-rate, unless that is negative."""
    if options.learning_rate >= 0.0:
        for _, component in nnet.updatable_components():
            component.set_underlying_learning_rate(options.learning_rate)


def scale_parameters(nnet: Nnet, options: ChangeOptions, name: str) -> None:
    """Multiply the parameters of `nnet`, from the file `name`, by --scale.

    An infinite scale turns zeros into NaN.
    """
    from nnet3tools.nnet.arithmetic import scale_nnet

    with naming(name), np.errstate(invalid="ignore", over="ignore"):
        scale_nnet(nnet, options.scale)


def apply_edits(nnet: Nnet, options: ChangeOptions) -> None:
    """Apply to `nnet` the edits of --edits-config, then of --edits, split at semicolons."""
    if not (options.edits_config or options.edits):
        return
    from nnet3tools.io.files import MAX_CONFIG, read_text_lines
    from nnet3tools.nnet.edits import edit_network

    if options.edits_config:
        text = "\n".join(read_text_lines(options.edits_config, MAX_CONFIG))
        edit_network(nnet, text, options.edits_config)
    if options.edits:
        edit_network(nnet, options.edits.replace(";", "\n"), "--edits")


COPY_USAGE = """\
Copy a 'raw' nnet3 network, in text or binary form, and optionally change it: learning
rates (--learning-rate), nodes and components (--nnet-config), edit commands (--edits).

Usage:  nnet3-copy [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-copy --binary=false 0.raw text.raw
"""


class CopyOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    changes: ChangeOptions = option_group("", ChangeOptions)
    batchnorm_test_mode: bool = option(
        False, "Batch-norm components' test mode is set to this value (without --prepare-for-test)."
    )


@program("nnet3-copy", COPY_USAGE, CopyOptions, num_args=2)
def nnet3_copy(options: CopyOptions, args: list[str]) -> None:
    from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode
    from nnet3tools.nnet.model_file import read_nnet, write_nnet

    nnet_in, nnet_out = args
    changes = options.changes
    nnet = read_nnet(nnet_in)
    begin_changes(nnet, changes)
    set_learning_rates(nnet, changes)
    scale_parameters(nnet, changes, nnet_in)
    apply_edits(nnet, changes)
    if changes.prepare_for_test:
        from nnet3tools.nnet.collapse import prepare_for_test

        prepare_for_test(nnet)
    else:
        set_batchnorm_test_mode(nnet, options.batchnorm_test_mode)
    write_nnet(nnet, nnet_out, options.binary)
    log.log(f"Copied raw neural net from {nnet_in} to {nnet_out}")


AM_COPY_USAGE = """\
Copy a nnet3 acoustic model, in text or binary form, and optionally change it: another
network (--set-raw-nnet), learning rates (--learning-rate), edit commands (--edits).
With --raw=true only the network is written.

Usage:  nnet3-am-copy [options] <nnet-in> <nnet-out>
e.g.:
 nnet3-am-copy --binary=false 1.mdl text.mdl
 nnet3-am-copy --raw=true 1.mdl 1.raw
"""


class AmCopyOptions(OptionGroup):
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


@program("nnet3-am-copy", AM_COPY_USAGE, AmCopyOptions, num_args=2)
def nnet3_am_copy(options: AmCopyOptions, args: list[str]) -> None:
    from nnet3tools.cli.am_models import load_am_nnet, set_context
    from nnet3tools.graph.context import draw_before_statistics
    from nnet3tools.nnet.model_file import read_nnet, write_nnet

    model_in, model_out = args
    changes = options.changes
    model = load_am_nnet(model_in)
    may_draw = bool(options.set_raw_nnet) or changes.more_than_numbers
    if may_draw:
        draw_before_statistics(model.nnet)
    if options.set_raw_nnet:
        model.set_nnet(read_nnet(options.set_raw_nnet))
        set_context(model)
        draw_before_statistics(model.nnet)
    begin_changes(model.nnet, changes)
    if options.convert_repeated_to_block:
        from nnet3tools.nnet.edits import convert_repeated_to_block_affine

        convert_repeated_to_block_affine(model.nnet)
    set_learning_rates(model.nnet, changes)
    apply_edits(model.nnet, changes)
    if may_draw:
        set_context(model)
        draw_before_statistics(model.nnet)
    scale_parameters(model.nnet, changes, model_in)
    if changes.prepare_for_test:
        from nnet3tools.nnet.collapse import prepare_for_test

        prepare_for_test(model.nnet)
    if options.raw:
        write_nnet(model.nnet, model_out, options.binary)
        log.log(f"Copied neural net from {model_in} to raw format as {model_out}")
    else:
        model.save(model_out, options.binary)
        log.log(f"Copied neural net from {model_in} to {model_out}")

"""Options of nnet3-copy and nnet3-am-copy that change a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option
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
        "",
        "Name of a file of edit commands that modify the network (applied after nnet-config).",
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

    @property
    def more_than_numbers(self) -> bool:
        """Whether the options may change the network's structure, and so its context."""
        return bool(self.nnet_config or self.edits_config or self.edits or self.prepare_for_test)


def read_config(nnet: Nnet, options: ChangeOptions) -> None:
    """Apply the config file of --nnet-config to `nnet`, in place."""
    if options.nnet_config:
        from nnet3tools.nnet.model_file import apply_config_file

        apply_config_file(nnet, options.nnet_config)


def set_learning_rates(nnet: Nnet, options: ChangeOptions) -> None:
    """Set the learning rates of `nnet` to --learning-rate, unless that is negative."""
    from nnet3tools.nnet.arithmetic import set_learning_rate

    if options.learning_rate >= 0.0:
        set_learning_rate(nnet, options.learning_rate)


def scale_parameters(nnet: Nnet, options: ChangeOptions) -> None:
    """Multiply the parameters of `nnet` by --scale; an infinite scale turns zeros into NaN."""
    from nnet3tools.nnet.arithmetic import scale_nnet

    with np.errstate(invalid="ignore", over="ignore"):
        scale_nnet(nnet, options.scale)


def apply_edits(nnet: Nnet, options: ChangeOptions) -> None:
    """Apply to `nnet` the edits of --edits-config, then of --edits, split at semicolons."""
    if not (options.edits_config or options.edits):
        return
    from nnet3tools.io.files import read_text_lines
    from nnet3tools.nnet.edits import edit_network

    if options.edits_config:
        text = "\n".join(read_text_lines(options.edits_config))
        edit_network(nnet, text, options.edits_config)
    if options.edits:
        edit_network(nnet, options.edits.replace(";", "\n"), "--edits")


def set_test_modes(nnet: Nnet, batchnorm: bool, dropout: bool) -> None:
    """Switch batch norm or dropout to test mode, if requested; otherwise leave it unchanged."""
    from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode, set_dropout_test_mode

    if batchnorm:
        set_batchnorm_test_mode(nnet, True)
    if dropout:
        set_dropout_test_mode(nnet, True)

"""Changes to a network that nnet3-copy and nnet3-am-copy offer."""

from __future__ import annotations

from nnet3tools.io.files import read_text_lines
from nnet3tools.nnet.arithmetic import set_batchnorm_test_mode, set_dropout_test_mode
from nnet3tools.nnet.collapse import collapse_model
from nnet3tools.nnet.edits import edit_network
from nnet3tools.nnet.nnet import Nnet

__all__ = ["apply_edits", "prepare_for_test"]


def apply_edits(nnet: Nnet, edits_config: str, edits: str) -> None:
    """Obey a file of edit commands, then the commands of --edits, which semicolons separate."""
    if edits_config:
        edit_network(nnet, "\n".join(read_text_lines(edits_config)), edits_config)
    if edits:
        edit_network(nnet, edits.replace(";", "\n"), "--edits")


def prepare_for_test(nnet: Nnet) -> None:
    """Set the test modes and collapse what can be."""
    set_batchnorm_test_mode(nnet, True)
    set_dropout_test_mode(nnet, True)
    collapse_model(nnet)

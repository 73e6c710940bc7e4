"""Reading of models for computing outputs of utterances: the networks are prepared for test."""

from __future__ import annotations

import numpy as np

from nnet3tools.graph.context import draw_before_statistics
from nnet3tools.io.files import open_input
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.collapse import prepare_for_test
from nnet3tools.nnet.hmm.transition_model import TransitionModel
from nnet3tools.nnet.model_file import load_nnet
from nnet3tools.nnet.nnet import Nnet


def read_acoustic_model(rxfilename: str) -> tuple[TransitionModel, Nnet, np.ndarray]:
    """The transition model, the network prepared for test, and the priors in a .mdl file.

    The priors are empty if the file has none.
    """
    model = AmNnet.load(rxfilename)
    prepare_for_outputs(model.nnet, is_acoustic=True)
    return model.transition_model, model.nnet, model.priors


def read_model(rxfilename: str, use_priors: bool) -> tuple[Nnet, np.ndarray | None]:
    """The network in a .raw or .mdl file, prepared for test, and (if `use_priors`) its priors."""
    if use_priors:
        return read_acoustic_model(rxfilename)[1:]
    with open_input(rxfilename) as reader:
        is_acoustic = reader.peek_token() == "<TransitionModel>"
        nnet = load_nnet(reader)
    prepare_for_outputs(nnet, is_acoustic)
    return nnet, None


def prepare_for_outputs(nnet: Nnet, is_acoustic: bool) -> None:
    """Prepare a network for test (dropout, batch norm), in place; `is_acoustic`: of a .mdl file."""
    if is_acoustic:
        draw_before_statistics(nnet)
    prepare_for_test(nnet)

"""Shared parts of the nnet3-am programs."""

from __future__ import annotations

from nnet3tools.graph.context import compute_simple_nnet_context, draw_context_checks
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.components.base import BatchStatisticsComponent
from nnet3tools.nnet.nnet import Nnet

__all__ = ["draw_before_statistics", "load_am_nnet", "set_context"]


def draw_before_statistics(nnet: Nnet) -> None:
    """Draw Kaldi's random numbers for finding an acoustic model's context, if that shows.

    It does where batch norm has no statistics: those that it makes up will be Kaldi's.
    """
    if any(isinstance(c, BatchStatisticsComponent) and c.count == 0.0 for c in nnet.components):
        draw_context_checks(nnet)


def load_am_nnet(rxfilename: str) -> AmNnet:
    """Read an acoustic model; its context is computed anew, since some stored ones are wrong."""
    model = AmNnet.load(rxfilename)
    set_context(model)
    return model


def set_context(model: AmNnet) -> None:
    """Compute the context of a model whose network is new or has been changed."""
    model.check_simple("the network")
    context = compute_simple_nnet_context(model.nnet)
    model.left_context, model.right_context = context.left, context.right

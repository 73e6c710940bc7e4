"""The text of nnet3-info."""

from __future__ import annotations

from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.nnet.nnet import Nnet


def network_info(nnet: Nnet) -> str:
    """Context (of networks with the usual inputs and outputs), nodes and components as text."""
    text = ""
    if nnet.is_simple():
        context = compute_simple_nnet_context(nnet)
        text = f"left-context: {context.left}\nright-context: {context.right}\n"
    return text + nnet.info()

"""The text of nnet3-info."""

from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.nnet.nnet import Nnet


def network_info(nnet: Nnet) -> str:
    """The text of nnet3-info: context (if inputs and outputs are the usual ones), components."""
    text = ""
    if nnet.is_simple():
        context = compute_simple_nnet_context(nnet)
        text = f"left-context: {context.left}\nright-context: {context.right}\n"
    return text + nnet.info()

"""Functions shared by the nnet3-am programs."""

from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.nnet.am_nnet import AmNnet


def load_am_nnet(rxfilename: str) -> AmNnet:
    """The acoustic model in a file, with its context computed anew, as stored ones may be wrong."""
    model = AmNnet.load(rxfilename)
    set_context(model)
    return model


def set_context(model: AmNnet) -> None:
    """Compute the left and right context of a model whose network is new or has changed."""
    model.check_simple("the network")
    context = compute_simple_nnet_context(model.nnet)
    model.left_context, model.right_context = context.left, context.right

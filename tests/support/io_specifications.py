"""Inputs and outputs of requests."""

import numpy as np

from nnet3tools.graph.request import IoSpecification
from nnet3tools.nnet.indexes import make_indexes


def io_range(name: str, begin: int, end: int, has_deriv: bool = False) -> IoSpecification:
    """An input or output with the rows n = 0, x = 0, t = begin ... end - 1."""
    return IoSpecification(name, make_indexes(0, np.arange(begin, end)), has_deriv)

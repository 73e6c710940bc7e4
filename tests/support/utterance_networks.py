"""Networks to compute whole utterances with, whose outputs can be written out in a line."""

import numpy as np

from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet

WITH_IVECTOR = """
input-node name=input dim=3
input-node name=ivector dim=2
component name=a type=AffineComponent input-dim=5 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), ReplaceIndex(ivector, t, 0))
output-node name=output input=a
"""
"""Input of the frame before, and the i-vector."""


def recurrent_config(input_dim: int = 3, offset: int = -1, source: str = "input") -> str:
    """The output, of dimension 4, is tanh of a sum: of `source`, and of the output at `offset`."""
    return f"""
input-node name=input dim={input_dim}
component name=in type=AffineComponent input-dim={input_dim} output-dim=4
component name=back type=LinearComponent input-dim=4 output-dim=4
component name=tanh type=TanhComponent dim=4
component-node name=in component=in input={source}
component-node name=back component=back input=IfDefined(Offset(tanh, {offset}))
component-node name=tanh component=tanh input=Sum(in, back)
output-node name=output input=tanh
"""


def network_of(config: str) -> Nnet:
    """The network, its parameters random numbers, biases too, but the same every time."""
    nnet, rng = Nnet.from_config(parse_config_lines(config, "config")), np.random.default_rng(3)
    for component in nnet.components:
        for values in getattr(component, "parameters", dict)().values():
            values[...] = rng.normal(size=values.shape) / 3
    return nnet

"""A network and features for the tests of the Python interface."""

from pathlib import Path
from typing import cast

import numpy as np

import nnet3tools
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from support.configs import in_a_row

CONFIG = in_a_row("""input dim=3
a NaturalGradientAffineComponent input-dim=9 output-dim=6 \
input=Append(Offset(input, -1), input, Offset(input, 1))
r RectifiedLinearComponent dim=6
b BatchNormComponent dim=6
d DropoutComponent dim=6 dropout-proportion=0.3
o NaturalGradientAffineComponent input-dim=6 output-dim=4
s LogSoftmaxComponent dim=4""")


def network(config: str = CONFIG) -> nnet3tools.Nnet:
    """A network with random parameters, which are the same at every call."""
    Path("net.config").write_text(config)
    nnet, rng = nnet3tools.Nnet.from_config_file("net.config"), np.random.default_rng(3)
    for values in nnet.parameters().values():
        values[...] = rng.normal(size=values.shape) / 3
    if "b" in nnet.component_names:  # statistics, without which test mode invents random ones
        norm = cast(BatchNormComponent, nnet.component("b"))
        norm.count, norm.stats_sum[:], norm.stats_sumsq[:] = 50, rng.normal(size=6), 50
    return nnet


def frames(num: int, dim: int = 3) -> np.ndarray:
    """Random features (num, dim), which are the same at every call."""
    return np.random.default_rng(num).normal(size=(num, dim)).astype(np.float32)

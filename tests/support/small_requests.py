"""A small network, and requests to compile for it."""

import numpy as np

from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes
from support.configs import in_a_row

CONFIG = in_a_row("""input dim=3
a1 AffineComponent input-dim=9 output-dim=4 \
input=Append(Offset(input, -1), input, Offset(input, 2))
r1 RectifiedLinearComponent dim=4
t2 TdnnComponent input-dim=4 output-dim=4 time-offsets=-1,1
a3 AffineComponent input-dim=4 output-dim=2 input=Sum(Scale(0.5, t2), r1)""")


def request(num_sequences: int = 4, frames: int = 6, train: bool = True) -> ComputationRequest:
    n, t = np.arange(num_sequences), np.arange(-2, frames + 3)
    inputs = make_indexes(np.tile(n, len(t)), np.repeat(t, len(n)))
    outputs = make_indexes(np.tile(n, frames), np.repeat(np.arange(frames), len(n)))
    return ComputationRequest(
        [IoSpecification("input", inputs)],
        [IoSpecification("output", outputs, train)],
        need_model_derivative=train,
        store_component_stats=train,
    )

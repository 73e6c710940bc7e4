"""Networks with GRU cells on the emulated device, against the host."""

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.nnet.arithmetic import vectorize
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.device import move_nnet
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
from support.emulated_cuda import needs_compiler, to_device
from support.training_helpers import minibatch

pytestmark = needs_compiler

# s is the whole of c, or its first two columns, or (output-gated) not there
CELLS = {
    "gru": ("type=GruNonlinearityComponent cell-dim=4", 12, ""),
    "projected": ("type=GruNonlinearityComponent cell-dim=4 recurrent-dim=2", 10, ", s"),
    "output-gated": ("type=OutputGruNonlinearityComponent cell-dim=4", 8, ""),
}
CONFIG = """
input-node name=input dim=3
component name=w type=AffineComponent input-dim=3 output-dim={width}
component-node name=w component=w input=input
component name=cell {cell} self-repair-threshold=0.7 self-repair-scale=0.1
component-node name=cell component=cell input=Append(w, IfDefined(Offset(c, -1)){state})
dim-range-node name=c input-node=cell dim-offset=4 dim=4
dim-range-node name=s2 input-node=cell dim-offset=4 dim=2
component name=a type=AffineComponent input-dim=4 output-dim=5
component-node name=a component=a input=c
component name=ls type=LogSoftmaxComponent dim=5
component-node name=ls component=ls input=a
output-node name=output input=ls
"""


@pytest.mark.parametrize("kind", CELLS)
def test_training_agrees_with_the_host(device, kind):
    cell, width, state = CELLS[kind]
    state = state.replace("s", "IfDefined(Offset(s2, -1))")
    text, found = CONFIG.format(cell=cell, width=width, state=state), []
    for like in (None, to_device(np.zeros(0, np.float32))):
        tensor.random.seed(0)
        nnet = Nnet.from_config(parse_config_lines(text))
        trainer = NnetTrainer(NnetTrainerOptions(), nnet, like)
        for i in range(4):
            trainer.train(minibatch(seed=i % 2))
        move_nnet(nnet)
        component = nnet.components[1]
        repaired = float(component.self_repair_total)
        found.append((vectorize(nnet), component.deriv_sum, repaired))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=5e-3, atol=5e-4)
    assert found[0][2] > 0

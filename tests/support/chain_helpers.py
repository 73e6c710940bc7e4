"""A small network and minibatches for LF-MMI, plain and end-to-end."""

import numpy as np

from nnet3tools import tensor
from nnet3tools.chain.den_graph import DenominatorGraph
from nnet3tools.chain.example import NnetChainExample, NnetChainSupervision
from nnet3tools.chain.minibatch import minibatch
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample, NnetIo

PDFS, FRAMES, SEQUENCES = 4, 5, 3
DEN = Fst.from_lists(
    0,
    [0.0] * PDFS,
    [[(p + 1, p + 1, 1.0 + 0.3 * p, (s + p) % PDFS) for p in range(PDFS)] for s in range(PDFS)],
)
GRAPH = DenominatorGraph.from_fst(DEN, PDFS)
LOOPS = Fst.from_lists(
    0,
    [NOT_FINAL, NOT_FINAL, 0.0],
    [[(1, 1, 0.0, 1)], [(2, 2, 0.5, 1), (3, 3, 0.9, 2)], [(4, 4, 0.1, 2)]],
)


def supervision(kind: str, weight: float = 0.5) -> Supervision:
    if kind == "end-to-end":
        fsts = (LOOPS,) * SEQUENCES
        return Supervision(weight, SEQUENCES, FRAMES, PDFS, Fst.empty(), fsts)
    labels = np.random.default_rng(1).integers(1, PDFS + 1, SEQUENCES * FRAMES)
    return Supervision(weight, SEQUENCES, FRAMES, PDFS, Fst.linear(labels.tolist()))


NETWORK = """
input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=9 output-dim=6
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=r type=RectifiedLinearComponent dim=6
component-node name=r component=r input=a
component name=b type=NaturalGradientAffineComponent input-dim=6 output-dim=4
component-node name=b component=b input=r
output-node name=output input=b
component name=x type=NaturalGradientAffineComponent input-dim=6 output-dim=4
component-node name=x component=x input=r
component name=s type=LogSoftmaxComponent dim=4
component-node name=s component=s input=x
output-node name=output-xent input=s
"""


def network() -> Nnet:
    tensor.random.seed(4)
    return Nnet.from_config(parse_config_lines(NETWORK))


def chain_example(kind: str, name: str = "output") -> NnetChainExample:
    rng = np.random.default_rng(5)
    t = np.arange(-1, 3 * FRAMES)
    indexes = np.zeros((SEQUENCES * len(t), 3), np.int32)
    indexes[:, 0], indexes[:, 1] = np.repeat(np.arange(SEQUENCES), len(t)), np.tile(t, SEQUENCES)
    features = rng.normal(size=(len(indexes), 3)).astype(np.float32)
    rows = output_indexes(SEQUENCES, FRAMES, 0, 3)
    weights = rng.uniform(0.5, 1.0, len(rows)).astype(np.float32)
    chain = NnetChainSupervision(name, rows, supervision(kind), weights)
    return NnetChainExample([NnetIo("input", indexes, features)], [chain])


def example(kind: str, name: str = "output") -> NnetExample:
    return minibatch(chain_example(kind, name))

"""Good files of what decoding programs read: a model, graphs, features, lattices, transcripts."""

import contextlib
import io
from pathlib import Path

import numpy as np

from nnet3tools.fst.binary_writer import write_const_fst
from nnet3tools.fst.files import FST, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import MATRIX, TOKEN_VECTOR
from nnet3tools.io.table import TableWriter
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE

_CONFIG = """input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=9 output-dim=4 param-stddev=0.5
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
output-node name=output input=a
"""
# Both phones in any order, as words 1 and 2, with a way back that reads nothing. A phone's first
# frame has the transition that leaves it, as Kaldi reorders them, the others have the self-loop.
_GRAPH = Fst.from_lists(
    0,
    [0.5, NOT_FINAL, NOT_FINAL],
    [
        [(2, 1, 0.7, 1), (4, 2, 0.6, 2)],
        [(1, 0, 0.7, 1), (0, 0, 0.2, 0)],
        [(3, 0, 0.7, 2), (0, 0, 0.3, 0)],
    ],
)


def make_decoding_samples() -> None:
    """Write the files into the working directory."""
    Path("decode.config").write_text(_CONFIG)
    Path("decode.topo").write_text(CHAIN_TOPOLOGY)
    Path("decode.tree").write_text(MONO_TREE)
    save_fst("decode.fst", _GRAPH)
    with open_output("decode.const", header=False) as writer:
        write_const_fst(writer, _GRAPH)
    rng = np.random.default_rng(5)
    with (
        TableWriter("ark:decode.feats", MATRIX) as features,
        TableWriter("ark:decode.fsts", FST) as graphs,
        TableWriter("ark,t:decode.ref", TOKEN_VECTOR) as transcripts,
    ):
        for i in range(3):
            features.write(f"u{i}", rng.normal(size=(6 + i, 3)).astype(np.float32))
            graphs.write(f"u{i}", _GRAPH)
            transcripts.write(f"u{i}", ["1", "2"] * i)
    from nnet3tools.cli.am_models import nnet3_am_init as join
    from nnet3tools.cli.decoding.latgen import nnet3_latgen_faster as decode
    from nnet3tools.cli.nnet3_init import main as init

    tables = ("ark:decode.feats", "ark:decode.lat", "ark,t:decode.hyp", "ark:decode.ali")
    with contextlib.redirect_stderr(io.StringIO()):
        assert init(["decode.config", "decode.raw"]) == 0
        assert join(["decode.tree", "decode.topo", "decode.raw", "decode.mdl"]) == 0
        assert decode(["decode.mdl", "decode.fst", *tables]) == 0

"""Good files of what decoding programs read, and of a language, for the corpus."""

from pathlib import Path

import numpy as np

from nnet3tools.fst.binary_writer import write_const_fst
from nnet3tools.fst.files import FST, save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice import CompactLattice, Lattice
from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import TOKEN_VECTOR
from support.programs import must, write_table, write_tables
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

_COMPACT = CompactLattice.from_lists(
    0,
    [None, (0.5, -1.25, (3,))],
    [[(7, 1.5, 2.0, (1, 2, 2), 1), (8, 0.25, 3.0, (4,), 1)], []],
)
_PLAIN = Lattice.from_lists(
    0, [None, None, (0.5, 1.0)], [[(1, 7, 1.5, 2.0, 1)], [(2, 0, 0.0, 0.5, 2)], []]
)
_ARPA = """\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99\t<s>\t-0.3
-0.5\t</s>
-0.7\ta\t-0.2
-0.6\tb

\\2-grams:
-0.1\t<s> a
-0.2\ta b

\\end\\
"""
_WORDS = "<eps> 0\na 1\nb 2\n<s> 3\n</s> 4\n#0 5\n"


def make_decoding_samples() -> None:
    """Write the files into the working directory."""
    Path("decode.config").write_text(_CONFIG)
    Path("decode.topo").write_text(CHAIN_TOPOLOGY)
    Path("decode.tree").write_text(MONO_TREE)
    save_fst("decode.fst", _GRAPH)
    with open_output("decode.const", header=False) as writer:
        write_const_fst(writer, _GRAPH)
    rng = np.random.default_rng(5)
    features = {f"u{i}": rng.normal(size=(6 + i, 3)).astype(np.float32) for i in range(3)}
    write_table("ark:decode.feats", features)
    write_table("ark:decode.fsts", dict.fromkeys(features, _GRAPH), FST)
    transcripts = {f"u{i}": ["1", "2"] * i for i in range(3)}
    write_table("ark,t:decode.ref", transcripts, TOKEN_VECTOR)
    must("nnet3-init", "decode.config", "decode.raw")
    must("nnet3-am-init", "decode.tree", "decode.topo", "decode.raw", "decode.mdl")
    tables = ("ark:decode.feats", "ark:decode.lat", "ark,t:decode.hyp", "ark:decode.ali")
    must("nnet3-latgen-faster", "decode.mdl", "decode.fst", *tables)
    write_tables("compact.lat", {"u1": _COMPACT}, COMPACT_LATTICE)
    write_tables("plain.lat", {"u1": _PLAIN}, LATTICE)
    Path("grammar.arpa").write_text(_ARPA)
    Path("words.txt").write_text(_WORDS)
    Path("lexicon.txt").write_text("a A B\nb B\na A\n")
    Path("lexiconp.txt").write_text("a 0.5 A B\nb 1.0 B\n")
    Path("dropout").write_text("*tdnn*=0,0.2@0.25,0.1@0.5,0 lstm=0.3,0")

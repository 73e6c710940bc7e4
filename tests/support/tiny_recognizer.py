"""A complete model directory of a tiny chain model with random parameters, and sound for it."""

from pathlib import Path

import numpy as np

from nnet3tools.fst.files import save_fst
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.io.files import open_output
from nnet3tools.io.holders import DOUBLE_MATRIX
from nnet3tools.io.wave import WAVE, Wave
from nnet3tools.recognizer.directory import ModelFacts, write_directory
from support.programs import run
from support.streams import bytes_of
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

CONFIG = """
input-node name=input dim={dim}
component name=a type=NaturalGradientAffineComponent input-dim={three} output-dim=4 param-stddev=0.1
component-node name=a component=a input=Append(Offset(input, -2), input, Offset(input, 2))
output-node name=output input=a
"""
IVECTOR_CONFIG = """
input-node name=ivector dim=5
input-node name=input dim=13
component name=a type=NaturalGradientAffineComponent input-dim=18 output-dim=4 param-stddev=0.1
component-node name=a component=a input=Append(input, ReplaceIndex(ivector, t, 0))
output-node name=output input=a
"""


def write_model(
    path: Path, config: str = "", topology: str = CHAIN_TOPOLOGY, dim: int = 13
) -> None:
    """Write a model with random parameters."""
    _, model = model_of(MONO_TREE, topology)
    folder = path.parent
    folder.mkdir(parents=True, exist_ok=True)
    trans, raw, text = folder / "0.trans_mdl", folder / "0.raw", folder / "0.config"
    with open_output(str(trans)) as writer:
        model.write(writer)
    text.write_text(config or CONFIG.format(dim=dim, three=3 * dim))
    assert run("nnet3-init", "--srand=4", str(text), str(raw)) == 0
    assert run("nnet3-am-init", str(trans), str(raw), str(path)) == 0
    for made in (trans, raw, text):
        made.unlink()


_GRAPH = Fst.from_lists(
    0,
    [0.5, NOT_FINAL, NOT_FINAL],
    [
        [(2, 1, 0.7, 1), (4, 2, 0.6, 2)],
        [(1, 0, 0.7, 1), (0, 0, 0.2, 0)],
        [(3, 0, 0.7, 2), (0, 0, 0.3, 0)],
    ],
)
"""Phones 1 and 2 of CHAIN_TOPOLOGY, as words 1 and 2, in any order."""


def write_graph(folder: Path) -> None:
    """Write a graph of two words, each of which is a phone, in any order."""
    (folder / "phones").mkdir(parents=True)
    save_fst(str(folder / "HCLG.fst"), _GRAPH)
    (folder / "words.txt").write_text("<eps> 0\nyes 1\nno 2\n")
    (folder / "phones/silence.csl").write_text("3\n")
    (folder / "phones/align_lexicon.int").write_text("1 1 1\n2 2 2\n")


def write_statistics(path: Path, dim: int = 13) -> None:
    """Write statistics of features, as global_cmvn.stats."""
    stats = np.ones((2, dim + 1))
    stats[1, :-1], stats[0, -1], stats[1, -1] = 30.0, 10.0, 0.0
    with open_output(str(path)) as writer:
        DOUBLE_MATRIX.write(writer, stats)


def write_recognizer(folder: Path) -> None:
    """Write a complete directory, whose features are normalized online."""
    write_model(folder / "final.mdl")
    write_graph(folder / "graph")
    (folder / "source.conf").write_text("--dither=0\n")
    write_statistics(folder / "source.stats")
    facts = ModelFacts(
        frame_subsampling_factor=3,
        features=folder / "source.conf",
        cmvn_opts="--norm-means=true",
        global_cmvn_stats=folder / "source.stats",
        decoding={"acoustic-scale": 1.0, "beam": 14.0},
    )
    write_directory(folder, facts)
    (folder / "source.conf").unlink()
    (folder / "source.stats").unlink()


def write_wave(path: Path, seconds: float = 0.5, rate: int = 16000) -> None:
    """Write noise as a wave file."""
    samples = np.random.default_rng(1).normal(0, 2000, (1, int(seconds * rate)))
    path.write_bytes(bytes_of(WAVE.write, Wave(rate, samples.astype(np.int16))))

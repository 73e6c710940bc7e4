"""Good files of chain training, FSTs and sound, for the corpus."""

import contextlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnet3tools.chain.example import (
    CHAIN_EXAMPLE,
    NnetChainExample,
    NnetChainSupervision,
)
from nnet3tools.chain.sequences import output_indexes
from nnet3tools.chain.supervision import Supervision
from nnet3tools.discriminative.example import (
    DISCRIMINATIVE_EXAMPLE,
    NnetDiscriminativeExample,
    NnetDiscriminativeSupervision,
)
from nnet3tools.discriminative.merging import merge_discriminative_examples
from nnet3tools.fst.binary_writer import (
    write_compact_acceptor,
    write_const_fst,
    write_vector_fst,
)
from nnet3tools.fst.files import FST
from nnet3tools.fst.fst import NOT_FINAL, Fst
from nnet3tools.fst.lattice_files import LATTICE
from nnet3tools.fst.text_form import write_fst_text
from nnet3tools.io.files import open_output
from nnet3tools.io.foreign_features import HTK, SPHINX, HtkFeatures
from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.table import TableWriter
from nnet3tools.io.wave import WAVE, Wave
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.training.example import frames_io
from support.lattice_paths import MODEL, random_lattice, random_supervision

_FRAMES = 3
_LOOP = Fst.from_lists(0, [NOT_FINAL, 0.25], [[(1, 1, 0.5, 1)], [(2, 2, 0.7, 1)]])
_SPLIT = Fst.from_lists(
    0, [NOT_FINAL] * 3 + [0.0], [[(1, 1, 0, 1), (2, 2, 0, 2)], [(1, 1, 0, 3)], [(2, 2, 0, 3)], []]
)
_ALL = Fst.from_lists(0, [0.0], [[(i, i, 0.5, 0) for i in range(1, 5)]])
_DEN = Fst.from_lists(
    0, [0.0, 0.0], [[(1, 1, 0.9, 1), (2, 2, 1.2, 0)], [(3, 3, 0.7, 0), (4, 4, 0.8, 1)]]
)
_CONFIG = """input-node name=input dim=2
component name=a type=NaturalGradientAffineComponent input-dim=4 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), input)
output-node name=output input=a
"""
_SEGMENTS = "seg-1 rec 0.0 0.5\nseg-2 rec 0.25 -1\nseg-3 rec2 1.5 2.75 A\n"


def make_chain_samples() -> None:
    """Write the files into the working directory."""
    _chain_examples()
    _discriminative_examples()
    kinds = {
        "vector": (write_vector_fst, _SPLIT),
        "const": (write_const_fst, _LOOP),
        "text": (write_fst_text, _SPLIT),
        "compact": (write_compact_acceptor, _SPLIT),
        "den": (write_vector_fst, _DEN),
        "all": (write_vector_fst, _ALL),
    }
    for name, (write, fst) in kinds.items():
        with open_output(f"fst.{name}", header=False) as writer:
            write(writer, fst)
    for form, mode in (("bin", "ark"), ("txt", "ark,t")):
        with TableWriter(f"{mode}:fsts.{form}", FST) as table:
            table.write("a", _SPLIT)
            table.write("b", _LOOP)
    rng = np.random.default_rng(11)
    features = rng.normal(size=(3, 13)).astype(np.float32)
    wave = Wave(8000, rng.integers(-999, 999, (2, 100)).astype(np.int16))
    for name, holder, value in (
        ("htk", HTK, HtkFeatures(features, 9)),
        ("sphinx", SPHINX, features),
        ("wav", WAVE, wave),
    ):
        with open_output(f"sound.{name}", header=False) as writer:
            holder.write(writer, value)  # type: ignore[attr-defined]
    with TableWriter("ark:wavs.ark", WAVE) as waves:
        waves.write("rec", Wave(8000, wave.samples[:1]))
    Path("segments").write_text(_SEGMENTS)
    Path("copies").write_text("rec-1 rec 90\nrec-2 rec 120\n")


def _chain_examples() -> None:
    from nnet3tools.cli.nnet3_init import main as init

    Path("chain.config").write_text(_CONFIG)
    with contextlib.redirect_stderr(io.StringIO()):
        init(["chain.config", "chain.raw"])
    plain = Supervision(0.5, 1, _FRAMES, 4, Fst.linear([1, 4, 2]))
    loops = (_LOOP, Fst.linear([3, 3, 3]))
    e2e = Supervision(1.0, 2, _FRAMES, 4, Fst.empty(), loops)
    aligned = replace(plain, alignment_pdfs=np.array([0, 3, 1], np.int32))
    for form, mode, kinds in (
        ("bin", "ark", (plain, e2e, aligned)),
        ("txt", "ark,t", (plain, e2e, aligned)),
        ("plain", "ark", (plain, aligned)),
        ("like", "ark", (plain, plain)),
    ):
        with TableWriter(f"{mode}:cegs.{form}", CHAIN_EXAMPLE) as writer:
            for number, supervision in enumerate(kinds):
                indexes = output_indexes(supervision.num_sequences, _FRAMES, 0, 3)
                weights = np.array([1, 0.5, 0], np.float32)[: 3 * (number == 0 or form == "like")]
                output = NnetChainSupervision("output", indexes, supervision, weights)
                features = frames_io("input", -1, np.ones((11, 2), np.float32))
                writer.write(f"e{number}", NnetChainExample([features], [output]))


def _discriminative_examples() -> None:
    from nnet3tools.cli.nnet3_init import main as init

    Path("disc.config").write_text(_CONFIG.replace("output-dim=4", f"output-dim={MODEL.num_pdfs}"))
    with contextlib.redirect_stderr(io.StringIO()):
        init(["disc.config", "disc.raw"])
    AmNnet(MODEL, read_nnet("disc.raw")).save("disc.mdl")
    rng = np.random.default_rng(12)
    part = random_supervision(rng, _FRAMES)
    weights = np.array([1, 0.5, 0], np.float32)
    output = NnetDiscriminativeSupervision(
        "output", output_indexes(1, _FRAMES, 0, 3), part, weights
    )
    features = frames_io("input", -1, np.ones((11, 2), np.float32))
    single = NnetDiscriminativeExample([features], [output])
    for form, mode in (("bin", "ark"), ("txt", "ark,t")):
        with TableWriter(f"{mode}:degs.{form}", DISCRIMINATIVE_EXAMPLE) as writer:
            writer.write("e0", single)
            writer.write("e1", merge_discriminative_examples([single, single], False))
    with TableWriter("ark:degs.single", DISCRIMINATIVE_EXAMPLE) as writer:
        for name in ("e0", "e1"):
            writer.write(name, single)
    with TableWriter("ark:disc.lat", LATTICE) as lattices:
        lattices.write("u0", random_lattice(rng, _FRAMES))
    with TableWriter("ark:disc.ali", INT32_VECTOR) as alignments:
        alignments.write("u0", np.array([1, 2, 3], np.int32))

"""Good files of chain and discriminative training, FSTs and sound, for the corpus."""

import shutil
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
from nnet3tools.io.wave import WAVE, Wave
from nnet3tools.nnet.am_nnet import AmNnet
from nnet3tools.nnet.model_file import read_nnet
from nnet3tools.training.example import frames_io
from support.lattice_paths import MODEL, random_lattice, random_supervision
from support.programs import must, read_table, write_table, write_tables

GRAPHS, BAD_GRAPHS = "graphs", "bad-graphs"
"""Folders of denominator FSTs; in the second that of language "default" is BAD."""

_FRAMES = 3
_WEIGHTS = np.array([1, 0.5, 0], np.float32)
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
_TWO_OUTPUTS = """input-node name=input dim=2
component name=a type=NaturalGradientAffineComponent input-dim=4 output-dim=4
component name=b type=NaturalGradientAffineComponent input-dim=2 output-dim=4
component-node name=a component=a input=Append(Offset(input, -1), input)
component-node name=b component=b input=input
output-node name=output-default input=a
output-node name=output-other input=b
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
    write_tables("fsts", {"a": _SPLIT, "b": _LOOP}, FST)
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
    write_table("ark:wavs.ark", {"rec": Wave(8000, wave.samples[:1])}, WAVE)
    _languages()
    Path("segments").write_text(_SEGMENTS)
    Path("copies").write_text("rec-1 rec 90\nrec-2 rec 120\n")


def _chain_examples() -> None:
    Path("chain.config").write_text(_CONFIG)
    must("nnet3-init", "chain.config", "chain.raw")
    plain = Supervision(0.5, 1, _FRAMES, 4, Fst.linear([1, 4, 2]))
    loops = (_LOOP, Fst.linear([3, 3, 3]))
    e2e = Supervision(1.0, 2, _FRAMES, 4, Fst.empty(), loops)
    aligned = replace(plain, alignment_pdfs=np.array([0, 3, 1], np.int32))
    write_tables("cegs", _examples(plain, e2e, aligned), CHAIN_EXAMPLE)
    write_table("ark:cegs.plain", _examples(plain, aligned), CHAIN_EXAMPLE)
    write_table("ark:cegs.like", _examples(plain, plain), CHAIN_EXAMPLE)


def _examples(*kinds: Supervision) -> dict[str, NnetChainExample]:
    """An example with each supervision; of different ones only the first has weights."""
    found = {}
    features = frames_io("input", -1, np.ones((11, 2), np.float32))
    for number, supervision in enumerate(kinds):
        indexes = output_indexes(supervision.num_sequences, _FRAMES, 0, 3)
        weights = _WEIGHTS if supervision is kinds[0] else _WEIGHTS[:0]
        output = NnetChainSupervision("output", indexes, supervision, weights)
        found[f"e{number}"] = NnetChainExample([features], [output])
    return found


def _languages() -> None:
    """Write a model of two languages, folders with their denominator FSTs, and examples."""
    Path("chain2.config").write_text(_TWO_OUTPUTS)
    must("nnet3-init", "chain2.config", "chain2.raw")
    for folder in (GRAPHS, BAD_GRAPHS):
        Path(folder).mkdir(exist_ok=True)
        for language in ("default", "other"):
            shutil.copy("fst.den", f"{folder}/{language}.den.fst")
    Path(BAD_GRAPHS, "default.den.fst").unlink()
    Path(BAD_GRAPHS, "default.den.fst").symlink_to("../BAD")
    examples = {}
    for key, example in read_table("ark:cegs.plain", CHAIN_EXAMPLE).items():
        examples[f"{key}?lang=default"] = examples[f"{key}?lang=other"] = example
        named = [replace(output, name="output-other") for output in example.outputs]
        examples[key] = replace(example, outputs=named)
    write_table("ark:cegs.languages", examples, CHAIN_EXAMPLE)


def _discriminative_examples() -> None:
    Path("disc.config").write_text(_CONFIG.replace("output-dim=4", f"output-dim={MODEL.num_pdfs}"))
    must("nnet3-init", "disc.config", "disc.raw")
    AmNnet(MODEL, read_nnet("disc.raw")).save("disc.mdl")
    rng = np.random.default_rng(12)
    part = random_supervision(rng, _FRAMES)
    output = NnetDiscriminativeSupervision(
        "output", output_indexes(1, _FRAMES, 0, 3), part, _WEIGHTS
    )
    features = frames_io("input", -1, np.ones((11, 2), np.float32))
    single = NnetDiscriminativeExample([features], [output])
    merged = merge_discriminative_examples([single, single], False)
    write_tables("degs", {"e0": single, "e1": merged}, DISCRIMINATIVE_EXAMPLE)
    write_table("ark:degs.single", {"e0": single, "e1": single}, DISCRIMINATIVE_EXAMPLE)
    write_table("ark:disc.lat", {"u0": random_lattice(rng, _FRAMES)}, LATTICE)
    write_table("ark:disc.ali", {"u0": np.array([1, 2, 3], np.int32)}, INT32_VECTOR)

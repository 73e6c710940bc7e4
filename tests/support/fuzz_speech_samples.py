"""Good files of alignments, statistics, chain preparation and a dictionary, for the corpus."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from nnet3tools.io.holders import (
    INT32_PAIR_VECTOR,
    INT32_VECTOR,
    MATRIX,
    TOKEN_VECTOR,
    VECTOR,
)
from support.programs import must, write_table
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE

_FRAMES = {f"u{i}": 14 + i for i in range(3)}
_XVECTOR = """input-node name=input dim=3
component name=pool type=StatisticsPoolingComponent input-dim=7 left-context=100 right-context=100
component name=stats type=StatisticsExtractionComponent input-dim=3
component name=a type=NaturalGradientAffineComponent input-dim=6 output-dim=2
component-node name=stats component=stats input=input
component-node name=pool component=pool input=stats
component-node name=a component=a input=pool
output-node name=output input=Round(a, 200)
"""
_DICTIONARY = {
    "lexicon.txt": "<UNK> SPN\na A B\nb B\na A\n",
    "silence_phones.txt": "SIL\nSPN\n",
    "nonsilence_phones.txt": "A\nB\n",
    "optional_silence.txt": "SIL\n",
    "extra_questions.txt": "SIL SPN\nA B\n",
}
DAMAGED_FOLDERS = {
    "dict": tuple(_DICTIONARY),
    "lang": ("L_disambig.fst", "G.fst", "phones/disambig.int", "phones/align_lexicon.txt"),
}
"""Folder -> its files of which each is BAD in a copy of the folder that is called by both."""


def make_speech_samples() -> None:
    """Write the files into the working directory, which has features and an acoustic model."""
    _alignments()
    _statistics()
    _chain()
    Path("xvector.config").write_text(_XVECTOR)
    must("nnet3-init", "xvector.config", "xvector.raw")
    _lang()


def _alignments() -> None:
    """Write alignments of a model with one phone: transition-id 1 stays in it, 2 leaves it."""
    alignments = {u: np.repeat([1, 2], [n - 1, 1]).astype(np.int32) for u, n in _FRAMES.items()}
    write_table("ark:ali", alignments, INT32_VECTOR)
    write_table("ark,t:ali.txt", alignments, INT32_VECTOR)
    must("ali-to-post", "ark:ali", "ark:ali.post")


def _statistics() -> None:
    must("compute-cmvn-stats", "ark:feats.ark", "ark:cmvn.ark")
    must("matrix-sum", "ark:cmvn.ark", "cmvn.global")
    write_table("ark,t:spk2utt", {"speaker": list(_FRAMES)}, TOKEN_VECTOR)
    must("compute-cmvn-stats", "--spk2utt=ark:spk2utt", "ark:feats.ark", "ark:cmvn.speakers")
    voiced = {u: (np.arange(n) % 3 > 0).astype(np.float32) for u, n in _FRAMES.items()}
    write_table("ark:vad.ark", voiced, VECTOR)


def _chain() -> None:
    Path("chain.topo").write_text(CHAIN_TOPOLOGY)
    Path("chain.tree").write_text(MONO_TREE)
    must("gmm-init-mono", "chain.topo", "3", "chain.mdl", "mono.tree")
    must("copy-transition-model", "chain.mdl", "chain.trans")
    lengths = {u: np.array([[1, 3], [2, 6], [1, n - 9]], np.int32) for u, n in _FRAMES.items()}
    write_table("ark:phone-lengths", lengths, INT32_PAIR_VECTOR)
    write_table("ark:phones", {u: pairs[:, 0] for u, pairs in lengths.items()}, INT32_VECTOR)
    must("chain-est-phone-lm", "--ngram-order=3", "ark:phones", "phone-lm")
    must("chain-make-den-fst", "chain.tree", "chain.trans", "phone-lm", "den", "normalization")
    supervision = ("chain-get-supervision", "chain.tree", "chain.trans", "ark:phone-lengths")
    must(*supervision, "ark:supervisions")
    outputs = {u: np.ones((n, 4), np.float32) for u, n in _FRAMES.items()}
    write_table("ark:network.out", outputs, MATRIX)


def _lang() -> None:
    """Write a dictionary, its lang folder, and copies of both in which one file is BAD."""
    Path("dict").mkdir()
    for name, text in _DICTIONARY.items():
        (Path("dict") / name).write_text(text)
    options = ("--position-dependent-phones=false", "--chain-topology=true")
    must("nnet3-prepare-lang", *options, "dict", "<UNK>", "lang")
    words = ("--disambig-symbol=#0", "--read-symbol-table=lang/words.txt")
    must("arpa2fst", *words, "grammar.arpa", "lang/G.fst")
    must("gmm-init-mono", "lang/topo", "3", "lang.mdl", "lang.tree")
    Path("text").write_text("u0 a b\nu1 b\nu2 a a\n")
    transcripts = {"u0": [1, 2], "u1": [2], "u2": [1, 1]}
    numbers = {u: np.array(words, np.int32) + 1 for u, words in transcripts.items()}
    write_table("ark:transcripts", numbers, INT32_VECTOR)
    graphs = ("compile-train-graphs", "lang.tree", "lang.mdl", "lang/L.fst", "ark:transcripts")
    must(*graphs, "ark:graphs.fsts")
    phones = {u: np.array([1, 3, 4, 1], np.int32) for u in _FRAMES}
    write_table("ark:lang.phones", phones, INT32_VECTOR)
    must("chain-est-phone-lm", "ark:lang.phones", "lang.phone-lm")
    denominator = ("chain-make-den-fst", "lang.tree", "lang.mdl", "lang.phone-lm")
    must(*denominator, "lang.den", "lang.normalization")
    numerators = ("chain-make-num-fst-e2e", "lang.mdl", "lang.normalization")
    must(*numerators, "ark:graphs.fsts", "ark:graphs.pdfs")
    for folder, names in DAMAGED_FOLDERS.items():
        damage_each(folder, names)


def damage_each(folder: str, names: Iterable[str]) -> None:
    """For each name, write a copy of the folder, `folder.NAME`, in which this file is BAD."""
    for name in names:
        copy = Path(f"{folder}.{Path(name).name}")
        shutil.copytree(folder, copy)
        (copy / name).unlink()
        (copy / name).symlink_to(Path(*[".."] * len(Path(name).parents), "BAD"))

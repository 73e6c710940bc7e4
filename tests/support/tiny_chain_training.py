"""Directories for chain trainings so small that a whole training takes seconds."""

import gzip
from pathlib import Path

import numpy as np

from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.hmm.tree import ContextDependency
from support.programs import run
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of

CONFIG = """input-node name=input dim=4
component name=a type=NaturalGradientAffineComponent input-dim=12 output-dim=8
component name=r type=RectifiedLinearComponent dim=8
component name=o type=NaturalGradientAffineComponent input-dim=8 output-dim={dim}
component name=x type=NaturalGradientAffineComponent input-dim=8 output-dim={dim}
component name=s type=LogSoftmaxComponent dim={dim}
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component-node name=r component=r input=a
component-node name=o component=o input=r
component-node name=x component=x input=r
component-node name=s component=s input=x
output-node name=output input=o
output-node name=output-xent input=s
"""
OPTIONS = (
    "--use-gpu=no",
    "--feat-dir=data",
    "--tree-dir=tree",
    "--trainer.num-epochs=1",
    "--trainer.num-chunk-per-minibatch=1:8",
    "--trainer.optimization.num-jobs-initial=1",
    "--trainer.optimization.num-jobs-final=2",
    "--trainer.optimization.initial-effective-lrate=0.01",
    "--trainer.optimization.final-effective-lrate=0.001",
    "--chain.xent-regularize=0.1",
    "--chain.leaky-hmm-coefficient=0.1",
    "--chain.lm-opts=--num-extra-lm-states=2",
    "--cleanup=false",
)


def make_dir(dim: int) -> None:
    Path("exp/configs").mkdir(parents=True)
    Path("exp/configs/final.config").write_text(CONFIG.format(dim=dim))
    Path("exp/configs/vars").write_text("model_left_context=1\nmodel_right_context=1\n")


def make_alignments() -> None:
    """Write tree/: two phones of random lengths, aligned with the frames of the features."""
    Path("tree").mkdir()
    _, model = model_of(MONO_TREE, CHAIN_TOPOLOGY)
    Path("tree/tree").write_text(MONO_TREE)
    Path("tree/phones.txt").write_text("a 1\nb 2\n")
    Path("tree/num_jobs").write_text("1\n")
    with open("tree/final.mdl", "wb") as file:
        writer = Writer(file)
        writer.write_header()
        model.write(writer)
    rng = np.random.default_rng(3)
    with gzip.open("tree/ali.1.gz", "wb") as packed:
        writer = Writer(packed)  # type: ignore[arg-type]
        for line in Path("data/utt2spk").read_text().splitlines():
            writer.write_token(line.split()[0])
            phones = rng.integers(1, 3, 5)
            # The transition that leaves a phone stands before its loops.
            parts = [[2 * phone, *[2 * phone - 1] * 5] for phone in phones]
            INT32_VECTOR.write_object(writer, np.concatenate(parts).astype(np.int32))


def must(name: str, *words: object) -> None:
    """Run a program, which must succeed."""
    assert run(name, *words) == 0, name


def make_graphs() -> int:
    """Write tree/ with a graph for each utterance, of words of one phone; the number of pdfs."""
    Path("dict").mkdir()
    Path("dict/lexicon.txt").write_text("<UNK> SPN\na A\nb B\n")
    Path("dict/silence_phones.txt").write_text("SIL\nSPN\n")
    Path("dict/optional_silence.txt").write_text("SIL\n")
    Path("dict/nonsilence_phones.txt").write_text("A\nB\n")
    utterances = [line.split()[0] for line in Path("data/utt2spk").read_text().splitlines()]
    Path("data/text").write_text("".join(f"{u} a b b\n" for u in utterances))
    Path("data/allowed_lengths.txt").write_text("30\n")
    Path("tree").mkdir()
    prepare = ("--position-dependent-phones=false", "--chain-topology=true")
    must("nnet3-prepare-lang", *prepare, "dict", "<UNK>", "lang")
    must("nnet3-text-to-phones", "lang", "data/text", "phones.txt")
    must("chain-est-phone-lm", "ark:phones.txt", "tree/phone_lm.fst")
    must("gmm-init-mono", "lang/topo", 10, "tree/final.mdl", "tree/tree")
    must("copy-transition-model", "tree/final.mdl", "tree/0.trans_mdl")
    must(
        "compile-train-graphs", "--read-disambig-syms=lang/phones/disambig.int",
        "--word-symbol-table=lang/words.txt", "tree/tree", "tree/final.mdl", "lang/L.fst",
        "ark:data/text", "ark,scp:tree/fst.1.ark,tree/fst.1.scp",
    )  # fmt: skip
    Path("tree/num_jobs").write_text("1\n")
    return ContextDependency.load("tree/tree").num_pdfs

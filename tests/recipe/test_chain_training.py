"""nnet3-train-chain(-e2e): the models equal those of the command lines in the logs."""

import gzip
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import INT32_VECTOR
from nnet3tools.io.writer import Writer
from nnet3tools.nnet.hmm.tree import ContextDependency
from support.plain_sound import with_sound_features
from support.shell import Shell
from support.tiny_chain import CHAIN_TOPOLOGY, MONO_TREE, model_of
from support.tiny_recognizer import write_graph, write_wave
from support.tiny_training import make_data

BIN = Path(__file__).parents[2] / "bin"
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


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Shell:
    make_data(tmp_path)
    return shell


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


def header(log: str) -> str:
    return Path(f"exp/log/{log}.log").read_text().splitlines()[0].removeprefix("# ")


def run_again(log: str, out: str) -> None:
    """Run the command line of a log in a shell, with another output file."""
    line = " ".join([*header(log).replace("=exp/cache.", "=cache.again.").split()[:-1], out])
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-c", line], env=environment, check=True, capture_output=True)


def first_model_again(shell: Shell) -> bytes:
    """The model that the command lines of iteration 0 make in a shell."""
    run_again("train.0.1", "again.raw")
    shell("nnet3-copy", "again.raw", "copied.raw")  # as select.0: means are rounded anew
    shell("nnet3-am-copy", "--set-raw-nnet=copied.raw", "exp/0.mdl", "again.mdl")
    return Path("again.mdl").read_bytes()


def check_decoding(data: Shell, folder: Path) -> None:
    """With a graph the trained directory decodes without any option, whole and as a stream."""
    assert (folder / "model.conf").read_text() == "--acoustic-scale=1.0\n"
    assert (folder / "lang/phones/sets.txt").read_text() == "a\n"
    write_graph(folder / "graph")
    data("nnet3-recognizer-info", folder)
    assert "normalization: online, from exp/global_cmvn.stats" in data.out
    write_wave(Path("one.wav"))
    texts = set()
    for stream in ("--stream=false", "--stream=true"):
        data("nnet3-decode", stream, folder, "one.wav")
        texts.add(data.out)
    assert len(texts) == 1
    assert texts.pop().startswith("one ")


def test_trained_from_alignments(data: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sound_features(monkeypatch)
    make_alignments()
    make_dir(dim=4)
    Path("lang/phones").mkdir(parents=True)
    Path("lang/phones/sets.txt").write_text("a\n")
    Path("data/conf").mkdir()
    Path("data/conf/mfcc.conf").write_text("--num-ceps=4\n--dither=0\n")
    options = (
        "--egs.chunk-width=12,9",
        "--trainer.frames-per-iter=200",
        "--egs.opts=--num-utts-subset 4 --online-cmvn true",
        "--lang=lang",
        "--dir=exp",
    )
    assert "will lack" not in data("nnet3-train-chain", *OPTIONS, *options)
    log = Path("exp/log/train.1.1.log").read_text()
    assert "Overall average objective function for 'output' is" in log
    assert "Overall average objective function for 'output-xent' is" in log
    for name in ("final.mdl", "den.fst", "normalization.fst", "phone_lm.fst", "tree", "phones.txt"):
        assert Path("exp", name).is_file(), name
    assert len(Path("exp/accuracy.report").read_text().splitlines()) == 1 + 6 + 1  # iterations
    assert Path("exp/frame_subsampling_factor").read_text() == "3"
    assert Path("exp/num_iters").read_text() == "6\n"
    assert "--frame-shift=1" in header("train.0.1")
    assert "--frame-shift=2" in header("train.1.1")
    assert first_model_again(data) == Path("exp/1.mdl").read_bytes()
    before = Path("exp/final.mdl").stat()
    Path("exp/model.conf").write_text("--acoustic-scale=1.2\n")
    data("nnet3-train-chain", *OPTIONS, *options)
    assert Path("exp/final.mdl").stat().st_mtime_ns == before.st_mtime_ns  # nothing is done twice
    assert Path("exp/model.conf").read_text() == "--acoustic-scale=1.2\n"
    Path("exp/model.conf").write_text("--acoustic-scale=1.0\n")
    check_decoding(data, Path("exp"))


def make_graphs(shell: Shell) -> int:
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
    shell("nnet3-prepare-lang", *prepare, "dict", "<UNK>", "lang")
    shell("nnet3-text-to-phones", "lang", "data/text", "phones.txt")
    shell("chain-est-phone-lm", "ark:phones.txt", "tree/phone_lm.fst")
    shell("gmm-init-mono", "lang/topo", 10, "tree/final.mdl", "tree/tree")
    shell("copy-transition-model", "tree/final.mdl", "tree/0.trans_mdl")
    shell(
        "compile-train-graphs", "--read-disambig-syms=lang/phones/disambig.int",
        "--word-symbol-table=lang/words.txt", "tree/tree", "tree/final.mdl", "lang/L.fst",
        "ark:data/text", "ark,scp:tree/fst.1.ark,tree/fst.1.scp",
    )  # fmt: skip
    Path("tree/num_jobs").write_text("1\n")
    return ContextDependency.load("tree/tree").num_pdfs


def test_trained_from_transcripts(data: Shell) -> None:
    make_dir(make_graphs(data))
    opts = "--egs.opts=--num-utts-subset 4 --nj 2"
    data("nnet3-train-chain-e2e", *OPTIONS, "--trainer.frames-per-iter=300", opts, "--dir=exp")
    assert Path("exp/egs/info/frames_per_eg").read_text() == "30\n"
    assert Path("exp/final.mdl").is_file()
    assert first_model_again(data) == Path("exp/1.mdl").read_bytes()


def test_what_users_get_wrong(data: Shell) -> None:
    make_alignments()
    make_dir(dim=4)

    def error(*options: str) -> str:
        return data.error("nnet3-train-chain", *OPTIONS, "--dir=exp", *options)

    assert "option --tree-dir is required" in error("--tree-dir=")
    assert "there is no file 'final.mdl' in it" in error("--tree-dir=data")
    assert "expected positive integers" in error("--egs.chunk-width=x")
    assert "--chain-opts=--x='y: No closing quotation" in error("--chain-opts=--x='y")
    assert "18 utterances are too few for subsets of 300" in error()
    Path("tree/num_jobs").write_text("2\n")
    assert "there is no file 'tree/ali.2.gz'" in error("--egs.opts=--num-utts-subset 4")
    assert not Path("exp/0.mdl").exists()

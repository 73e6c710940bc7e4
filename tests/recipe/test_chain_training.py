"""nnet3-train-chain(-e2e): the models equal those of the command lines in the logs."""

import os
import subprocess
from pathlib import Path

import pytest

from support.plain_sound import with_sound_features
from support.shell import Shell
from support.tiny_chain_training import OPTIONS, make_alignments, make_dir, make_graphs
from support.tiny_recognizer import write_graph, write_wave
from support.tiny_training import make_data

BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Shell:
    make_data(tmp_path)
    return shell


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


def test_trained_from_transcripts(data: Shell) -> None:
    make_dir(make_graphs())
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

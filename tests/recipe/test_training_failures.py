"""Failures in a training: jobs that fail, die or hang, full disks, and mistakes of users."""

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.submitted import CommandRunner
from support.shell import Shell
from support.tiny_training import CONFIG, OPTIONS, contents, make_data, make_dir, start

PROGRAM = "nnet3-train-raw-dnn"


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Shell:
    make_data(tmp_path)
    return shell


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def worker_of(process: subprocess.Popen[bytes], log: Path) -> int:
    """The process number of the worker that runs a job, as soon as its log exists."""
    end = time.monotonic() + 120
    while not log.exists():
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
    return children(process.pid)[0]


# -- jobs


def test_a_job_that_fails_twice_is_named_with_the_end_of_its_log(
    data: Shell, tmp_path: Path
) -> None:
    make_dir(tmp_path / "exp")
    words = (*OPTIONS, "--dir=exp", "--trainer.add-option=--nonsense=1")
    error = data.error(PROGRAM, *words)
    assert "job train.0.1 failed twice: it ended with status 255" in error
    assert "exp/log/train.0.1.log" in error
    assert "Invalid option --nonsense=1" in data.log
    assert "trying it once more" in data.log
    assert not list(tmp_path.glob("exp/cache.*"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_hangs_is_replaced(
    data: Shell, tmp_path: Path, number: signal.Signals, undisturbed: dict[str, bytes]
) -> None:
    folder = make_dir(tmp_path / "exp")
    process = start("exp", "--hang-timeout=5", "--num-jobs=1")
    os.kill(worker_of(process, folder / "log" / "train.1.1.log"), number)
    assert process.wait(300) == 0
    assert contents(folder) == undisturbed


def test_workers_end_with_a_driver_that_is_killed(data: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp")
    process = start("exp", "--num-jobs=1")
    worker = worker_of(process, folder / "log" / "train.0.1.log")
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists():
        state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        assert time.monotonic() < end or state == "Z"
        if state == "Z":
            break
        time.sleep(0.05)


def test_two_drivers_do_not_work_in_one_directory(data: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp")
    process = start("exp")
    try:
        worker_of(process, folder / "egs" / "log" / "get_egs.1.log")
        assert "another training program works in this directory" in data.error(
            PROGRAM, *OPTIONS, "--dir=exp"
        )
    finally:
        process.kill()
        process.wait()


def test_a_full_disk_ends_it_in_a_line_and_loses_nothing(
    data: Shell, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    folder = make_dir(tmp_path / "exp")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8000, before[1]))
    try:
        error = data.error(PROGRAM, *OPTIONS, "--dir=exp", "--num-jobs=1")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "failed twice" in error
    assert "File too large" in data.log
    data(PROGRAM, *OPTIONS, "--dir=exp", "--num-jobs=1")
    assert contents(folder) == undisturbed


# -- what users get wrong


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--trainer.dropout-schedule=0,x,0", "found 'x' at column 3 of --trainer.dropout-schedule"),
        ("--trainer.dropout-schedule=0.5", "expected ',', found the end at column 4"),
        ("--trainer.dropout-schedule=0,0.2@0.7,0.1@0.3,0", "rising fractions of the data"),
        ("--trainer.dropout-schedule=a=b=0,1", "expected a number from 0 to 1, found 'b'"),
        ("--trainer.optimization.minibatch-size=0", "minibatch-size: expected a positive integer"),
        ("--trainer.optimization.num-jobs-final=0", "num-jobs-final=0: expected at least 1"),
        ("--trainer.optimization.num-jobs-final=9", "is more than the 2 archives in exp/egs"),
        ("--trainer.optimization.initial-effective-lrate=0", "expected a positive number"),
        ("--trainer.optimization.proportional-shrink=99", "proportional-shrink=99 is too large"),
        ("--trainer.num-epochs=0.1", "makes no iteration of 2 archives"),
        ("--trainer.num-epochs=1e9", "iterations of 2 archives: expected 1 to 100000"),
        ("--trainer.num-epochs=8", "iterations of 100000000 archives: expected 1 to 100000"),
        ("--egs.opts=--no-such 3", "--egs.opts=--no-such 3: Invalid option --no-such"),
        ("--egs.opts=--nj '3", "--egs.opts=--nj '3: No closing quotation"),
        ("--egs.opts=--num-utts-subset 9", "18 utterances are too few for subsets of 9"),
        ("--egs.opts=--num-utts-subset 4 --nj 7", "more than the 3 speakers"),
        ("--egs.dir=none", "none holds no examples"),
        ("--feat-dir=none", "there is no file 'none/"),
        ("--targets-scp=none.scp", "none.scp"),
        ("--executor=moon", "--executor=moon: expected local, cmd or slurm"),
        ("--cmd='", "--cmd=': No closing quotation"),
        ("--cmd=no-such-run.pl", "there is no command 'no-such-run.pl'"),
        ("--num-jobs=-1", "--num-jobs=-1"),
        ("--trainer.input-model=none.raw", "none.raw: there is no such file"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(
    data: Shell, tmp_path: Path, words: str, message: str
) -> None:
    make_dir(tmp_path / "exp")
    egs = tmp_path / "exp" / "egs" / "info"
    if "archives" in message or "proportional" in words or "iteration" in message:
        egs.mkdir(parents=True)
        info = {"feat_dim": 4, "left_context": 1, "right_context": 1, "frames_per_eg": 2}
        num_archives = 10**8 if f"{10**8}" in message else 2
        for name, value in {**info, "num_archives": num_archives}.items():
            (egs / name).write_text(f"{value}\n")
        make_egs_look_whole(egs.parent)
    assert message in data.error(PROGRAM, *OPTIONS, "--num-jobs=1", words, "--dir=exp")


def make_egs_look_whole(egs: Path) -> None:
    for name in ("combine.egs", "valid_diagnostic.egs", "train_diagnostic.egs", "egs.1.ark"):
        (egs / name).write_text("something")


def test_a_directory_without_configs_is_refused(data: Shell, tmp_path: Path) -> None:
    assert "--dir=exp: there is no such directory" in data.error(PROGRAM, *OPTIONS, "--dir=exp")
    (tmp_path / "exp").mkdir()
    assert "there is no 'exp/configs/final.config'" in data.error(PROGRAM, *OPTIONS, "--dir=exp")
    assert "option --dir is required" in data.error(PROGRAM, *OPTIONS)


def test_examples_that_do_not_fit_are_refused(data: Shell, tmp_path: Path) -> None:
    make_dir(tmp_path / "exp")
    data(PROGRAM, *OPTIONS, "--dir=exp", "--exit-stage=0", "--num-jobs=1")
    other = make_dir(tmp_path / "other")
    words = (*OPTIONS, "--dir=other", "--num-jobs=1")
    (other / "configs" / "vars").write_text("model_left_context=5\nmodel_right_context=1\n")
    error = data.error(PROGRAM, *words, "--egs.dir=exp/egs")
    assert "exp/egs: its left context is 1: the network needs at least 5" in error
    (other / "configs" / "vars").write_text(
        "model_left_context=1\nmodel_right_context=x\nnum_targets=3\n"
    )
    assert "expected model_right_context=<number>" in data.error(PROGRAM, *words)
    (other / "configs" / "vars").write_text(
        "model_left_context=1\nmodel_right_context=1\nnum_targets=3\n"
    )
    error = data.error(PROGRAM, *words, "--egs.dir=exp/egs", "--egs.frames-per-eg=3")
    assert "its examples have 2 labels: --egs.frames-per-eg is 3" in error
    (tmp_path / "exp/egs/egs.1.ark").unlink()
    (tmp_path / "exp/egs/egs.2.ark").unlink()
    error = data.error(PROGRAM, *words, "--egs.dir=exp/egs")
    assert "exp/egs holds no archives of examples for iteration 0" in error


def test_targets_that_do_not_fit_the_network_are_refused(data: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp")
    config = CONFIG.replace("output-dim=3", "output-dim=5").replace("dim=3", "dim=5")
    (folder / "configs" / "ref.config").write_text(config)
    data("nnet3-init", "exp/configs/ref.config", "exp/configs/ref.raw")
    error = data.error(PROGRAM, *OPTIONS, "--dir=exp")
    assert "output has dimension 5, but exp/configs/vars has 3 targets" in error


RUN_PL = r"""log=$1; shift
for word in "$@"; do [[ $word =~ [[:space:]] ]] && word="\"$word\""; line+="$word "; done
echo "# $line" > "$log"; bash -c "( $line ) >> '$log' 2>&1; echo '# Ended (code '\$?')' >> '$log'"
"""


def test_run_pl_gets_special_characters_quoted(tmp_path: Path) -> None:
    (tmp_path / "run.pl").write_text(RUN_PL)
    words = ("printf", "%s,", "--unk=<unk>", "a b", "#0", "it's", "$x;")
    job = Job(f"{tmp_path}/job.log", ((words, ("cat",)),))
    runner = CommandRunner(f"bash {tmp_path}/run.pl")
    runner.submit(job)
    assert [outcome.status for outcome in runner.wait(30.0)] == [0]
    assert "\n--unk=<unk>,a b,#0,it's,$x;,# Ended" in (tmp_path / "job.log").read_text()

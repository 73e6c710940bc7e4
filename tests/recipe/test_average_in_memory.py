"""Training with the jobs of an iteration as ranks, which average their models in memory."""

import os
import signal
import time
from pathlib import Path

import pytest

from nnet3tools.errors import OptionError
from nnet3tools.recipe import local
from support.shell import Shell
from support.tiny_training import OPTIONS, contents, make_data, make_dir, start

PROGRAM = "nnet3-train-raw-dnn"
JOBS = (
    "--trainer.samples-per-iter=60",
    "--trainer.optimization.num-jobs-initial=3",
    "--trainer.optimization.num-jobs-final=3",
    "--trainer.optimization.momentum=0.5",
    "--trainer.optimization.minibatch-size=16",
    "--num-jobs=4",
    "--cleanup=false",
)
IN_MEMORY = "--average-in-memory=yes"


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Shell:
    make_data(tmp_path)
    return shell


def models(folder: Path) -> dict[str, bytes]:
    """The averages of all iterations, and the final model."""
    found = contents(folder)
    return {name: value for name, value in found.items() if name.endswith(".raw")}


def test_models_are_those_of_separate_jobs_also_after_a_death(data: Shell, tmp_path: Path) -> None:
    """A worker is killed in the second iteration: all its jobs are done once more."""
    apart, together = make_dir(tmp_path / "apart"), make_dir(tmp_path / "together")
    data(PROGRAM, *OPTIONS, *JOBS, "--dir=apart")
    process = start("together", *JOBS, IN_MEMORY)
    log, until = together / "log" / "train.1.2.log", time.monotonic() + 120
    while not log.exists():
        assert time.monotonic() < until
        time.sleep(0.002)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(workers[1]), signal.SIGKILL)
    assert process.wait(120) == 0
    expected, found = models(apart), models(together)
    assert {"2.raw", "3.raw", "final.raw"} <= set(found) <= set(expected)
    assert all(found[name] == expected[name] for name in found)
    text = (together / "log" / "train.2.1.log").read_text()
    assert "--num-workers=3 --rank=0 --rendezvous=together/ranks.2 --average-interval=0" in text
    assert not list(together.glob("ranks.*"))


@pytest.mark.slow
def test_an_average_every_few_minibatches_gives_another_model(data: Shell, tmp_path: Path) -> None:
    """And the same one again."""
    words = (*JOBS, IN_MEMORY, "--trainer.optimization.average-interval=1")
    results = []
    for name, more in (("one", words), ("two", words), ("three", (*JOBS, IN_MEMORY))):
        make_dir(tmp_path / name)
        data(PROGRAM, *OPTIONS, *more, f"--dir={name}")
        results.append((tmp_path / name / "final.raw").read_bytes())
    assert results[0] == results[1] != results[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((IN_MEMORY, "--num-jobs=2"), "3 jobs must run at once on this machine, which runs 2"),
        ((IN_MEMORY, "--executor=cmd", "--cmd=true"), "which runs 0"),
        ((IN_MEMORY, "--use-gpu=optional"), "expected --use-gpu=yes, wait or no"),
        (("--average-in-memory=maybe",), "expected yes, no, auto; found 'maybe'"),
        (
            ("--trainer.optimization.average-interval=2",),
            "--trainer.optimization.average-interval=2: expected --average-in-memory=yes",
        ),
        (("--num-gpus=2",), "--num-gpus=2: jobs can use 0 GPUs of this machine"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    data: Shell, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    make_dir(tmp_path / "exp")
    assert message in data.error(PROGRAM, *OPTIONS, *JOBS, *words, "--dir=exp")


def test_gpus_are_limited_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    machine = local.this_machine(0, 8, wants_gpu=True, num_gpus=2)
    assert (machine.gpus, machine.num_training) == (("4", "5"), 2)
    with pytest.raises(OptionError, match=r"--num-gpus=4: jobs can use 3 GPUs"):
        local.this_machine(0, 8, wants_gpu=True, num_gpus=4)

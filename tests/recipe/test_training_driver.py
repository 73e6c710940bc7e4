"""The training driver: its results, and that killing it does not change them."""

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from nnet3tools.errors import OptionError
from nnet3tools.recipe import local
from support.shell import Shell
from support.tiny_training import OPTIONS, contents, make_data, make_dir, start

PROGRAM = "nnet3-train-raw-dnn"


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Shell:
    make_data(tmp_path)
    return shell


def header(folder: Path, log: str) -> str:
    return (folder / "log" / f"{log}.log").read_text().splitlines()[0].removeprefix("# ")


def test_a_directory_as_kaldis_scripts_leave_it(data: Shell, tmp_path: Path) -> None:
    folder = make_dir(tmp_path / "exp")
    data(PROGRAM, *OPTIONS, "--dir", "exp", "--cleanup=false", "--num-jobs=1")
    names = {path.name for path in folder.iterdir()}
    assert {"0.raw", "1.raw", "2.raw", "final.raw", "cmvn_opts", "srand"} <= names
    assert not [name for name in names if name.startswith("cache.") or name.endswith(".1.raw")]
    egs = folder / "egs"
    assert {path.name for path in egs.iterdir()} == {
        "cmvn_opts", "combine.egs", "info", "log", "train_diagnostic.egs", "train_subset_uttlist",
        "valid_diagnostic.egs", "valid_uttlist",
        *(f"egs.{n}.ark" for n in range(1, 1 + int((egs / "info/num_archives").read_text()))),
    }  # fmt: skip
    log = (folder / "log" / "train.1.1.log").read_text()
    assert "Overall average objective function for 'output' is" in log
    assert log.splitlines()[-1].startswith("# Ended (code 0) at ")
    table = (folder / "accuracy.output.report").read_text().splitlines()
    assert [line.split("\t")[0] for line in table[1:-1]] == ["0", "1", "2", "3"]
    assert (folder / "report.html").exists()
    for name in ("compute_prob_valid.final", "progress.1", "average.1", "select.0", "combine"):
        assert (folder / "log" / f"{name}.log").exists(), name


@pytest.mark.slow
def test_workers_make_what_the_command_lines_in_the_logs_make(data: Shell, tmp_path: Path) -> None:
    make_dir(tmp_path / "exp")
    data(PROGRAM, *OPTIONS, "--dir=exp", "--cleanup=false", "--num-jobs=1")
    path = f"{Path(__file__).parents[2] / 'bin'}:{os.environ['PATH']}"

    def again(log: str) -> None:
        """Run the command line of a log in a shell, with other files for caches and the model."""
        line = header(tmp_path / "exp", log).replace("=exp/cache.", "=cache.again.")
        line = " ".join([*line.split()[:-1], "again.raw"])
        environment = {**os.environ, "PATH": path}
        subprocess.run(["bash", "-c", line], env=environment, check=True, capture_output=True)

    again("train.0.1")
    data("nnet3-copy", "again.raw", "copied.raw")
    assert Path("copied.raw").read_bytes() == Path("exp/1.raw").read_bytes()
    again("train.1.1")
    data("nnet3-average", "again.raw", "averaged.raw")
    assert Path("averaged.raw").read_bytes() == Path("exp/2.raw").read_bytes()
    again("combine")
    assert Path("again.raw").read_bytes() == Path("exp/final.raw").read_bytes()


def killed_after(
    folder: Path, seconds: float, *options: str, how: signal.Signals = signal.SIGKILL
) -> bool:
    """Start the driver, send it a signal after a time; whether it was still running."""
    process = start(folder.name, *options)
    with contextlib.suppress(subprocess.TimeoutExpired):
        assert process.wait(seconds) == 0
        return False
    process.send_signal(how)
    return process.wait(120) != 0  # the driver may end just before the signal


def test_killed_and_started_again_it_ends_with_the_same_files(
    data: Shell, tmp_path: Path, undisturbed: dict[str, bytes]
) -> None:
    folder = make_dir(tmp_path / "exp")
    for seconds in (1.2, 2.0):
        killed_after(folder, seconds)
    data(PROGRAM, *OPTIONS, "--dir=exp")
    assert contents(folder) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("num_jobs", ["1", "2"])
def test_ended_at_thirty_random_moments_it_ends_with_the_same_files(
    data: Shell, tmp_path: Path, num_jobs: str
) -> None:
    """Every second signal is SIGKILL, the others can be handled."""
    signals = [signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT]
    signals += [signal.SIGKILL, signal.SIGHUP]
    options = (
        f"--trainer.optimization.num-jobs-initial={num_jobs}",
        f"--trainer.optimization.num-jobs-final={num_jobs}",
        "--trainer.num-epochs=4",
    )
    whole = make_dir(tmp_path / "whole")
    began = time.monotonic()
    data(PROGRAM, *OPTIONS, *options, "--dir=whole")
    took = time.monotonic() - began
    generator = random.Random(int(num_jobs))
    kills = repeats = 0
    while kills < 30:
        folder = make_dir(tmp_path / f"exp{repeats}")
        repeats += 1
        assert repeats < 40
        while kills < 30:
            seconds, how = generator.uniform(0.2 * took, 0.6 * took), signals[kills % len(signals)]
            if not killed_after(folder, seconds, *options, how=how):
                break
            kills += 1
        data(PROGRAM, *OPTIONS, *options, f"--dir={folder.name}")
        assert contents(folder) == contents(whole)


def test_what_is_done_is_not_done_again(data: Shell, tmp_path: Path) -> None:
    make_dir(tmp_path / "exp")
    data(PROGRAM, *OPTIONS, "--dir=exp", "--exit-stage=2")
    before = (tmp_path / "exp/log/train.1.1.log").read_bytes()
    assert not (tmp_path / "exp/log/train.2.1.log").exists()
    data(PROGRAM, *OPTIONS, "--dir=exp")
    assert (tmp_path / "exp/log/train.1.1.log").read_bytes() == before
    after = contents(tmp_path / "exp")
    assert "final.raw" in after
    assert "Iter: " not in data(PROGRAM, *OPTIONS, "--dir=exp")
    assert contents(tmp_path / "exp") == after


def test_another_experiments_directory_is_refused(data: Shell, tmp_path: Path) -> None:
    make_dir(tmp_path / "exp")
    data(PROGRAM, *OPTIONS, "--dir=exp", "--exit-stage=1")
    words = [word for word in OPTIONS if "num-epochs" not in word]
    error = data.error(PROGRAM, *words, "--trainer.num-epochs=2", "--dir=exp")
    assert "exp/experiment.json: --trainer.num-epochs was '1.0', is now '2.0'" in error
    config = (tmp_path / "exp/configs/final.config").read_text()
    (tmp_path / "exp/configs/final.config").write_text(config.replace("dim=6", "dim=7"))
    assert "is not the one of this experiment" in data.error(PROGRAM, *OPTIONS, "--dir=exp")


# -- jobs as ranks, which average their models in memory


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

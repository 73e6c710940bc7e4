"""A training whose jobs run under real Slurm daemons (start.sh); skipped if there are none."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.shell import Shell
from support.tiny_training import OPTIONS, make_data, make_dir

START = Path(__file__).with_name("start.sh")
BIN = Path(__file__).parents[2] / "bin"
PROGRAM = "nnet3-train-raw-dnn"

pytestmark = pytest.mark.slow


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "slurm"
    started = subprocess.run([START, folder], capture_output=True, text=True, check=False)
    if started.returncode == 77:
        pytest.skip(started.stderr.strip())
    assert started.returncode == 0, started.stderr
    monkeypatch.setenv("SLURM_CONF", started.stdout.strip())
    monkeypatch.setenv("PATH", f"{tmp_path / 'slow'}:{BIN}:{os.environ['PATH']}")
    yield
    subprocess.run([START, "--stop", folder], check=False)


def slow_average(folder: Path) -> None:
    """Write an nnet3-average that takes a while, so that a test can interrupt it."""
    (folder / "slow").mkdir()
    script = folder / "slow" / "nnet3-average"
    script.write_text(f'#!/bin/sh\nsleep 6\nexec {BIN}/nnet3-average "$@"\n')
    script.chmod(0o755)


def running(name: str) -> tuple[str, str]:
    """The number and node of the job with this name, as soon as it runs."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        words = ["squeue", "--noheader", f"--name={name}", "--states=RUNNING", "--format=%A %N"]
        found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
        if found:
            return found[0], found[1]
        time.sleep(0.2)
    raise AssertionError(f"no job {name} came to run")


def test_jobs_run_under_slurm_and_survive_a_cancelled_one_and_a_node_set_down(
    shell: Shell, tmp_path: Path, slurm: None
) -> None:
    make_data(tmp_path)
    make_dir(tmp_path / "local")
    shell(PROGRAM, *OPTIONS, "--dir=local", "--exit-stage=3")
    make_dir(tmp_path / "exp")
    slow_average(tmp_path)
    words = [PROGRAM, *OPTIONS, "--dir=exp", "--exit-stage=3", "--executor=slurm"]
    with open("driver.log", "w") as log:
        driver = subprocess.Popen([sys.executable, "-m", "nnet3tools.cli", *words], stderr=log)
    try:
        number, _ = running("average.1")
        subprocess.run(["scancel", number], check=True)
        again, _ = running("average.1")
        assert again != number
        _, node = running("average.2")
        update = ["scontrol", "update", f"nodename={node}", "state=down", "reason=test"]
        subprocess.run(update, check=True)
        assert driver.wait(300) == 0, Path("driver.log").read_text()
    finally:
        driver.kill()
    said = Path("driver.log").read_text()
    assert "job average.1 failed: Slurm ended its job" in said
    assert "job average.2 failed: Slurm ended its job" in said
    assert Path("exp/3.raw").read_bytes() == Path("local/3.raw").read_bytes()
    logs = sorted(Path("exp").rglob("*.log"))
    assert len(logs) > 10
    for path in logs:
        assert "Slurm job " in path.read_text(), path


def test_without_slurm_it_says_what_is_missing(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(tmp_path)
    make_dir(tmp_path / "exp")
    monkeypatch.setenv("PATH", str(tmp_path))
    error = shell.error(PROGRAM, *OPTIONS, "--dir=exp", "--executor=slurm")
    assert "--executor=slurm: there is no program sbatch on PATH" in error

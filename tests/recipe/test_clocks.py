"""Clocks that are set while a job runs, and machines whose clocks differ, change no result."""

import ast
import itertools
import os
import re
import subprocess
import time
from pathlib import Path

import pytest

import nnet3tools
from nnet3tools.recipe import slurm
from nnet3tools.recipe.inside import Shell
from nnet3tools.recipe.jobs import Job
from nnet3tools.recipe.slurm import SlurmRunner, batch_script
from nnet3tools.recipe.worker import run_job

LONG_AGO = (1.0, 1.0)
ENDED = "# Ended (code 0) at Sat Nov 28 08:00:00 UTC 2026, elapsed time 0 seconds\n"


def test_no_duration_is_a_difference_of_dates() -> None:
    """time.time() steps back or ahead when a clock is set; time.monotonic() does not."""
    root = Path(nnet3tools.__file__).parent
    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "time.time_ns")
    }
    assert found == {"tensor/cpu/compiler.py"}  # an hour that may be wrong costs 10 s, no result


def test_a_clock_set_back_during_a_job_leaves_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(time, "time", itertools.count(1e9, -3600.0).__next__)
    assert run_job(Shell(), Job("job.log", ((("true",),),))) == 0
    seconds = re.findall(r"seconds=(\S+)", Path("job.log").read_text())
    assert 0 <= float(seconds[0]) < 60


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmRunner:
    """A runner whose Slurm knows no job any more, on a machine that slept 100 s a look."""
    monkeypatch.chdir(tmp_path)
    for name in ("sbatch", "squeue", "scancel"):
        Path(name).write_text(f"#!/bin/sh\n[ {name} != sbatch ] || echo 7\n")
        Path(name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return SlurmRunner()


def test_a_log_of_a_machine_whose_clock_is_behind_is_waited_for(
    runner: SlurmRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of the log comes late, with a date of years ago, as from another machine."""
    texts = ["# a job\n", "# a job\nsome\n", f"# a job\nsome\n{ENDED}"]

    def sleep(seconds: float) -> None:
        Path("job.log").write_text(texts.pop(0))
        os.utime("job.log", LONG_AGO)

    runner.submit(Job("job.log", ()))
    monkeypatch.setattr(slurm.time, "sleep", sleep)
    assert [outcome.status for outcome in runner.wait(60)] == [0]


def test_a_job_that_slurm_ended_is_given_up_although_its_log_is_of_tomorrow(
    runner: SlurmRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.submit(Job("job.log", ()))
    Path("job.log").write_text("# a job\n")
    tomorrow = time.time() + 86400
    os.utime("job.log", (tomorrow, tomorrow))
    clock = itertools.count()
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(slurm.time, "monotonic", lambda: float(next(clock)))
    (outcome,) = runner.wait(60)
    assert outcome.status == 1
    assert "Slurm ended its job 7" in outcome.why
    assert next(clock) < 12  # a quarter of the time for a log that does not come at all


def test_the_script_for_slurm_measures_without_a_clock_that_is_set(tmp_path: Path) -> None:
    (tmp_path / "date").write_text("#!/bin/sh\necho never\n")
    (tmp_path / "date").chmod(0o755)
    log = tmp_path / "job.log"
    script = batch_script(Job(str(log), ((("true",),),)))
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], env={"PATH": path}, check=True)
    assert "# Accounting: time=0 threads=1\n# Ended (code 0)" in log.read_text()

"""benchmarks/gpu/first_run.sh without a GPU: it does what it can, and one report says all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.emulated_cuda import REAL

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu/first_run.sh"

pytestmark = pytest.mark.skipif(REAL, reason="is run by that script itself")


@pytest.fixture
def environment():
    """No GPU, wherever this runs: CuPy cannot be found."""
    return {**os.environ, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}


def results(report: Path) -> dict[str, str]:
    """Step -> result."""
    rows = [line.split("|") for line in report.read_text().splitlines() if line.startswith("| ")]
    return {row[1].strip(): row[2].strip() for row in rows[1:]}


@pytest.mark.slow  # 35 s
def test_without_a_gpu_it_does_what_it_can_and_reports_what_it_could_not(tmp_path, environment):
    report = tmp_path / "report.md"
    words = ["bash", str(SCRIPT), "--try-out", str(report)]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True)
    found, text = results(report), report.read_text()
    assert done.returncode == 2, text
    assert list(tmp_path.iterdir()) == [report]
    assert str(report) in done.stderr
    for step in (
        "the machine",
        "tests on the emulated device",
        "speed on the CPU (which tries the program out)",
        "memory on the CPU",
        "the cost model",
    ):
        assert found[step] == "done", text
        assert f"## {step}\n" in text
    assert found["a GPU"].startswith("none: --use-gpu=yes: no usable GPU (")
    for step in ("tests on the device", "memcheck", "speed and memory on the device"):
        assert found[step] == "could not be done: there is no usable GPU"
    assert "passed" in text
    assert "lstm: no growth" in text
    assert "frames/s" in text


def test_an_interrupt_leaves_a_report_of_what_was_done(tmp_path, environment):
    report = tmp_path / "report.md"
    words = ["bash", str(SCRIPT), "--try-out", str(report)]
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("== tests"):
            break
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 1
    found = results(report)
    assert found["the machine"] == "done"
    assert "(interrupted here)" in found


def test_a_report_that_cannot_be_written_is_told_at_once(tmp_path, environment):
    words = ["bash", str(SCRIPT), "--try-out", str(tmp_path / "none/report.md")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "cannot write" in done.stderr


def test_measuring_without_a_gpu_is_one_line_in_the_log(tmp_path, environment):
    script = SCRIPT.parent / "measure.sh"
    cache = tmp_path / "kernels.tar.xz"
    words = ["bash", str(script), "--cache", str(cache), "2", str(tmp_path / "out")]
    home = {**environment, "CUPY_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(words, env=home, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    log = (tmp_path / "out/log.txt").read_text().splitlines()
    assert [line.partition(":")[0] for line in log] == ["machine", "device"]
    assert "no usable GPU" in log[1]
    assert cache.exists()
    for wrong in (["4", "out"], ["1"], ["--cache"]):
        done = subprocess.run(["bash", str(script), *wrong], capture_output=True, text=True)
        assert (done.returncode, done.stderr.split(" ")[0]) == (1, "usage:")


STEPS = {
    "1": ["machine", "ceilings", "tests", "products", "products-apart", "changes"],
    "2": [
        "machine", "speed-fp32", "speed-large-fp32", "speed-tf32", "speed-large-tf32",
        "equal-bytes", "speed-compiled",
    ],
    "3": ["machine", "without", "decoding", "memory"],
}  # fmt: skip
"""Of the steps kernels, nccl and memcheck see test_cuda_benchmark.py and test_first_run.py."""


@pytest.mark.slow  # 60 s
@pytest.mark.parametrize("run", sorted(STEPS))
def test_each_step_of_the_measurements_can_be_tried_out_without_a_gpu(tmp_path, environment, run):
    words = ["bash", str(SCRIPT.parent / "measure.sh"), "--try-out", run, str(tmp_path / "out")]
    home = {**environment, "CUPY_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run(words, env=home, capture_output=True, text=True)
    texts = {path.stem: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert done.returncode == 0, texts
    log = texts.pop("log").splitlines()
    assert [line.partition(":")[0] for line in log] == STEPS[run]
    assert all(": status 0, " in line for line in log)
    assert sorted(texts) == sorted(STEPS[run])
    if run == "1":
        assert "| lstm | all, times in ms | " in texts["products"]
    elif run == "2":
        assert "equal bytes" in texts["equal-bytes"]
    else:
        assert "| nnet3-latgen-faster-batch | lstm | " in texts["decoding"]

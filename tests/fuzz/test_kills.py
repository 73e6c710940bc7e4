"""Programs killed at random moments: results are whole or as before, and nobody is hindered later.

The slow test kills 200 times; the quick one shows that it would notice.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.io.holders import GENERAL_MATRIX, MATRIX
from support.configs import in_a_row
from support.programs import run, write_table

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = (ROOT / ".venv/.nnet3tools-env-blocks-signals").exists()
"""Whether Ctrl-C waits while Python itself starts, which else ends with status 1."""

CONFIG = in_a_row("""input dim=40
a NaturalGradientAffineComponent input-dim=40 output-dim=400
b RectifiedLinearComponent dim=400
c NaturalGradientAffineComponent input-dim=400 output-dim=400
d LinearComponent input-dim=400 output-dim=20
output objective=quadratic""")
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
COMMANDS = {
    "nnet3-train": (
        *("nnet3-train", "--use-gpu=no", "--write-cache=out.cache", "0.raw"),
        *("ark:nnet3-merge-egs --minibatch-size=16 ark:egs ark:- |", "out"),
    ),
    "nnet3-copy": ("nnet3-copy", "--binary=false", "cat 0.raw |", "out"),
    "nnet3-copy to a pipe": ("nnet3-copy", "0.raw", "| cat > /dev/null"),
    "nnet3-merge-egs": ("nnet3-merge-egs", "--minibatch-size=16", "ark:egs", "ark,scp:out,out.scp"),
}
INPUTS = {"0.raw", "egs", "net.config"}
OUTPUTS = {"out", "out.cache", "out.scp"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{ROOT / 'bin'}{os.pathsep}{os.environ['PATH']}")
    Path("net.config").write_text(CONFIG)
    assert run("nnet3-init", "net.config", "0.raw") == 0
    rng = np.random.default_rng(2)
    feats = {f"u{i}": rng.normal(size=(32, 40)).astype(np.float32) for i in range(200)}
    write_table("ark:feats", feats, MATRIX)
    write_table("ark:targets", {u: m[:, :20] for u, m in feats.items()}, GENERAL_MATRIX)
    words = ("nnet3-get-egs-simple", "input=ark:feats", "output=ark:targets", "ark:egs")
    assert run(*words) == 0
    os.unlink("feats")
    os.unlink("targets")
    return tmp_path


def started(words: tuple[str, ...]) -> subprocess.Popen[bytes]:
    def listen() -> None:
        for number in SIGNALS[1:]:
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        [ROOT / "bin" / words[0], *words[1:]],
        stderr=subprocess.DEVNULL,
        preexec_fn=listen,
        start_new_session=True,
    )


def results() -> dict[str, bytes]:
    return {name: Path(name).read_bytes() for name in OUTPUTS if os.path.exists(name)}


def session(leader: int) -> list[int]:
    """The processes of a session that run still."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] not in "ZX":
            found.append(int(name))
    return found


def nobody_is_left(leader: int) -> bool:
    until = time.monotonic() + 60
    while session(leader):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def clear() -> None:
    for name in OUTPUTS:
        Path(name).unlink(missing_ok=True)


def whole_results(words: tuple[str, ...]) -> tuple[dict[str, bytes], float]:
    clear()
    began = time.monotonic()
    assert started(words).wait() == 0
    return results(), time.monotonic() - began


def judge(whole: dict[str, bytes], before: dict[str, bytes], number: int, status: int) -> str:
    """What is wrong with what a killed program left; "" if nothing is."""
    for name, data in results().items():
        if data not in (whole.get(name), before.get(name)):
            return f"{name} is half written"
    if missing := before.keys() - results().keys():
        return f"{missing} vanished"
    left = set(os.listdir()) - INPUTS - OUTPUTS
    if left and number != signal.SIGKILL:
        return f"{left} left behind"
    if status not in (0, -number, 128 + number) and (BLOCKS or number != signal.SIGINT):
        return f"status {status}"
    return ""


def kill_often(folder: Path, kills: int, report: Callable[[str], None]) -> Counter[str]:
    rng = np.random.default_rng(18)
    known = {name: whole_results(words) for name, words in COMMANDS.items()}
    outcomes: Counter[str] = Counter()
    for turn in range(kills):
        name = list(COMMANDS)[turn % len(COMMANDS)]
        number = SIGNALS[turn // len(COMMANDS) % len(SIGNALS)]
        whole, seconds = known[name]
        clear()
        before = {}
        if turn % 3 == 0:  # something is there already
            before = {name: b"old" for name in whole}
            for other in before:
                Path(other).write_bytes(b"old")
        program = started(COMMANDS[name])
        time.sleep(rng.uniform(0, 1.05 * seconds))
        program.send_signal(number)
        status = program.wait(120)
        assert nobody_is_left(program.pid), (name, number)
        assert not (problem := judge(whole, before, number, status)), (turn, name, number, problem)
        outcomes[f"{name}, {number.name}: {'done' if status == 0 else 'ended'}"] += 1
        outcomes["temporaries of SIGKILL"] += len(set(os.listdir()) - INPUTS - OUTPUTS)
        if turn % 20 == 19:
            assert whole_results(COMMANDS[name])[0] == whole, "a later run is hindered"
            assert set(os.listdir()) <= INPUTS | OUTPUTS
    report(str(dict(sorted(outcomes.items()))))
    return outcomes


def test_a_dozen_kills(folder: Path) -> None:
    kill_often(folder, 12, print)


@pytest.mark.slow
def test_two_hundred_kills(folder: Path) -> None:
    assert sum(kill_often(folder, 200, print).values()) >= 200

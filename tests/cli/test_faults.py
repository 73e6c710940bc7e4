"""Closed or broken standard streams, and signals: programs finish their work or end at once."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.running import run_program
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.recipe.plan import copy_file

CONFIG = """input-node name=input dim=4
component name=a type=AffineComponent input-dim=4 output-dim=3
component-node name=a component=a input=input
output-node name=output input=a
"""


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.config").write_text(CONFIG)
    assert subprocess.run(command("nnet3-init", "net.config", "0.raw")).returncode == 0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "nnet3tools.cli", *words]


def start_program(words: list[str], blocked: bool = False) -> subprocess.Popen[bytes]:
    """Start a program that receives signals as if started from a terminal.

    A background shell would pass SIGINT on as ignored. `blocked`: SIGINT waits, as in bin/_run,
    until the program's first line runs.
    """

    def listen() -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        if blocked:
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])

    return subprocess.Popen(
        words, stderr=subprocess.PIPE, preexec_fn=listen, start_new_session=True
    )


def closing(*descriptors: int) -> Callable[[], None]:
    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    return close


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_change_nothing(closed: tuple[int, ...]) -> None:
    for words in (("nnet3-copy", "0.raw", "1.raw"), ("nnet3-copy", "cat 0.raw |", "| cat > 1.raw")):
        done = subprocess.run(command(*words), preexec_fn=closing(*closed))
        assert done.returncode == 0
        assert Path("1.raw").read_bytes() == Path("0.raw").read_bytes()
        Path("1.raw").unlink()
    assert sorted(os.listdir()) == ["0.raw", "net.config"]


@pytest.mark.parametrize(
    ("words", "closed"),
    [
        (("nnet3-copy", "0.raw", "-"), 1),
        (("nnet3-info", "0.raw"), 1),
        (("nnet3-copy", "-", "1.raw"), 0),
    ],
)
def test_closed_streams_that_are_needed(words: tuple[str, ...], closed: int) -> None:
    done = subprocess.run(command(*words), preexec_fn=closing(closed), stderr=subprocess.PIPE)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 255
    assert [line.startswith("ERROR") for line in lines] == [False, True]
    assert "Bad file descriptor" in lines[1]
    assert not Path("1.raw").exists()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_under_the_log_or_the_result() -> None:
    with open("/dev/full", "wb") as full:
        assert subprocess.run(command("nnet3-copy", "0.raw", "1.raw"), stderr=full).returncode == 0
        assert Path("1.raw").exists()
        bad = subprocess.run(command("nnet3-copy", "none", "2.raw"), stderr=full)
        assert bad.returncode == 255
        lost = subprocess.run(command("nnet3-info", "0.raw"), stdout=full, stderr=subprocess.PIPE)
    assert lost.returncode == 255
    assert lost.stderr.decode().count("\n") == 2
    assert "No space left on device" in lost.stderr.decode()


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (("nnet3-copy", "0.raw", "/dev/full"), "'/dev/full'"),
        (("nnet3-copy", "0.raw", "-"), "'standard output'"),
        (("nnet3-info", "0.raw"), "'standard output'"),
        (("copy-matrix", "ark:table", "ark,scp:table2,/dev/full"), "'/dev/full'"),
        (("copy-matrix", "ark:table", "ark,t,f:/dev/stdout"), "'/dev/stdout'"),
    ],
)
def test_the_output_that_has_no_room_is_named(words: tuple[str, ...], output: str) -> None:
    Path("table").write_text("u  [\n 1 2 ]\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command(*words), stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 255
    error = done.stderr.decode().splitlines()[-1]
    assert error.endswith(f"cannot write {output}: No space left on device")


def test_a_copy_without_room_is_no_unreadable_source() -> None:
    with pytest.raises(DataError, match="cannot write '/dev/full': No space left on device"):
        copy_file(Path("0.raw"), Path("/dev/full")).do()
    with pytest.raises(FileNotFoundError, match="'none'"):
        copy_file(Path("none"), Path("1.raw")).do()


@pytest.mark.parametrize(
    "words",
    [
        ("paste-feats", "ark:-", "ark:-", "ark,t:-"),
        ("transform-feats", "-", "ark:-", "ark,t:-"),
        ("nnet3-init", "-", "-", "1.raw"),
    ],
)
def test_standard_input_is_given_once(words: tuple[str, ...]) -> None:
    first = {"ark:-": b"u  [\n 1 2 ]\n", "-": b" [ 1 2\n 3 4 ]\n"}[words[1]]
    given = Path("0.raw").read_bytes() if words[0] == "nnet3-init" else first
    done = subprocess.run(command(*words), input=given, capture_output=True)
    assert done.returncode == 255
    assert done.stderr.count(b"ERROR") == 1
    assert b"standard input ('-') was given for more than one input" in done.stderr


def test_warnings_of_libraries_reach_no_user(capfd: pytest.CaptureFixture[str]) -> None:
    def body(words: list[str]) -> None:
        log.set_verbose(int(words[0]))
        warnings.warn("rather", stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run_program("x", ["0"], body) == 0
        assert capfd.readouterr().err == ""
        assert run_program("x", ["2"], body) == 0
    log.set_verbose(0)
    assert "UserWarning: rather" in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-copy", "echo $$ > pid; sleep 60; true |", "1.raw"),
        ("nnet3-copy", "0.raw", "| echo $$ > pid; sleep 60; true"),
        ("nnet3-merge-egs", "ark:echo $$ > pid; sleep 60; true |", "ark:1.egs"),
    ],
)
def test_signals_end_a_program_and_its_commands(words: tuple[str, ...], number: int) -> None:
    program = start_program(command(*words))
    shell = _number_in("pid")
    time.sleep(0.2)
    began = time.monotonic()
    program.send_signal(number)
    _, log = program.communicate()
    assert program.returncode == 128 + number
    assert time.monotonic() - began < 30  # half the time that its command sleeps
    assert log.decode().count("\n") == 1  # the command line
    assert _process_ends(shell)
    assert not [name for name in os.listdir() if name.startswith((".", "1."))]


IGNORING = "trap '' TERM INT HUP; echo $$ > pid; sleep 60; sleep 60; true"
CHILD = f'sh -c "{IGNORING.replace("$", chr(92) + "$")}"; true'


@pytest.mark.parametrize("number", [signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [
        ("nnet3-copy", f"{IGNORING} |", "1.raw"),
        ("nnet3-copy", "0.raw", f"| {IGNORING}"),
        ("nnet3-copy", f"{CHILD} |", "1.raw"),
        ("nnet3-copy-egs", f"ark,bg:{CHILD} |", "ark:1.egs"),
    ],
)
def test_commands_that_ignore_signals_are_killed(words: tuple[str, ...], number: int) -> None:
    program = start_program(command(*words))
    shell = _number_in("pid")
    began = time.monotonic()
    program.send_signal(number)
    _, log = program.communicate()
    assert program.returncode == 128 + number
    assert time.monotonic() - began < 30  # half the time that its command sleeps
    assert log.decode().count("\n") == 1
    assert _process_ends(shell)
    assert sorted(os.listdir()) == ["0.raw", "net.config", "pid"]


def test_an_interrupt_during_the_start_is_quiet() -> None:
    for delay in (0.05, 0.1, 0.15, 0.2):
        words = command("nnet3-copy", "sleep 60 |", "1.raw")
        program = start_program(words, blocked=True)
        time.sleep(delay)
        program.send_signal(signal.SIGINT)
        _, log = program.communicate()
        assert program.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in log.decode()


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(
    not (ROOT / ".venv/.nnet3tools-env-blocks-signals").exists(),
    reason="bin/setup-env found no env that blocks signals",
)
def test_an_interrupt_while_python_itself_starts_is_quiet() -> None:
    for delay in np.linspace(0.01, 0.12, 12):
        program = start_program([str(ROOT / "bin/nnet3-copy"), "sleep 60 |", "1.raw"])
        time.sleep(delay)
        # To the whole group, as a terminal does: bash ignores SIGINT if its command survived it.
        os.killpg(program.pid, signal.SIGINT)
        _, log = program.communicate()
        assert program.returncode in (130, -signal.SIGINT)
        assert "Traceback" not in log.decode()


_INTERRUPTED_IN_A_CALLBACK = """
import os, signal, time, weakref
from nnet3tools.cli.running import _termination_raises
class Thing: pass
thing = Thing()
with _termination_raises():
    ref = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    time.sleep(60)
"""


def test_an_interrupt_that_python_drops_ends_the_program_all_the_same() -> None:
    # Each import deletes a lock; an exception raised in that callback is only printed.
    began = time.monotonic()
    program = start_program([sys.executable, "-c", _INTERRUPTED_IN_A_CALLBACK])
    _, log = program.communicate()
    assert (program.returncode, log) == (130, b"")
    assert time.monotonic() - began < 30


def _number_in(name: str) -> int:
    for _ in range(1000):
        if os.path.exists(name) and (text := Path(name).read_text()).endswith("\n"):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("the command did not start")


def _process_ends(process: int) -> bool:
    """Whether a process that is not our child ends within 30 s."""
    for _ in range(300):
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("locale", ["C.UTF-8", "en_US.UTF-8", "POSIX"])
def test_keys_are_printed_with_the_bytes_they_have(locale: str) -> None:
    Path("table").write_bytes(b"\xc3\xa9\xff  [\n 1 2 ]\n")
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    words = command("matrix-dim", "ark:table")
    done = subprocess.run(
        words, env=environment | {"PYTHONIOENCODING": ":strict"}, capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, b"\xc3\xa9\xff\t1\t2\n"), done.stderr

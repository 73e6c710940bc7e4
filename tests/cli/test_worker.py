"""nnet3-worker: programs in a worker's forks do as programs that start in the ordinary way."""

import os
import re
import resource
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nnet3tools.cli import resident
from nnet3tools.cli.programs import PROGRAMS, entry_point_of, main_of
from nnet3tools.io.holders import MATRIX
from nnet3tools.nnet.model_file import write_nnet
from nnet3tools.tensor.cpu.compiler import num_processors
from nnet3tools.training.example import EXAMPLE
from support.programs import write_table
from support.training_helpers import minibatch, network

ROOT = Path(__file__).parents[2]
BIN = ROOT / "bin"
ORDINARY = {
    **os.environ,
    "NNET3TOOLS_PYTHON": sys.executable,
    "PATH": f"{BIN}:{os.environ['PATH']}",
}
for unset in ("NNET3TOOLS_WORKER", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    ORDINARY.pop(unset, None)

Environment = dict[str, str]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def pid_of(environment: Environment) -> int:
    """The process id of the worker that serves programs with this environment; 0 for none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        try:
            client.connect(f"{environment['NNET3TOOLS_WORKER']}/socket")
        except OSError:
            return 0
        return struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def started(*options: str, program: object = BIN / "nnet3-worker", **variables: str) -> Environment:
    """Start a worker as a shell does; the environment with which programs find it."""
    environment = {**ORDINARY, **variables}
    script = f'eval "$({shlex.quote(str(program))} {shlex.join(options)})"; env -0'
    shown = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, check=True)
    found = dict(x.split("=", 1) for x in os.fsdecode(shown.stdout).split("\0") if x)
    until(lambda: pid_of(found))
    return found


@pytest.fixture(scope="module")
def worker() -> Iterator[Environment]:
    environment = started()
    yield environment
    os.kill(pid_of(environment), signal.SIGTERM)
    until(lambda: not Path(environment["NNET3TOOLS_WORKER"]).exists())


@pytest.fixture(autouse=True)
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_table("ark,t:feats", {"a": np.ones((2, 3), np.float32)}, MATRIX)
    # Prints the parent of the parent of the program whose input it makes.
    look = "awk '/^PPid/ {print $2}' /proc"
    Path("parent").write_text(f'echo "a [ $({look}/$({look}/$PPID/status)/status) ]"\n')
    Path("wait").write_text("echo $PPID >pid.new; mv pid.new pid; exec sleep 100\n")


def run(environment: Environment, *words: str, **options) -> subprocess.CompletedProcess[bytes]:
    null = subprocess.DEVNULL
    return subprocess.run(words, env=environment, stdin=null, capture_output=True, **options)


PARENT = ("copy-vector", "ark:exec sh parent |", "ark,t:-")


def is_taken(environment: Environment, **options) -> bool:
    """Whether the worker runs a program."""
    done = run(environment, *PARENT, **options)
    assert done.returncode == 0, done.stderr
    return int(float(done.stdout.split()[2])) == pid_of(environment)


def waiting(environment: Environment, **options) -> tuple[subprocess.Popen[bytes], int]:
    """A client, and the process id of its program, which reads a pipe that gives nothing."""
    command = ["copy-feats", "ark:exec sh wait |", "ark:out"]
    client = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, **options)
    until(Path("pid").exists)
    return client, int(Path("pid").read_text())


def state(pid: int) -> str:
    """The state of a process, as ps shows it; "" if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.mark.parametrize(
    "script",
    [
        "copy-feats ark:feats ark:-",
        "copy-feats ark:missing ark:-",
        "copy-feats --bogus=1 a b",
        "copy-feats '' ' ' $'\\n'",
        "nnet3-info feats",
        "copy-feats --version; copy-feats; echo $?",
        "cat feats | copy-feats ark:- ark:- | copy-feats ark:- ark,t:- | cat",
        "copy-feats ark:<(cat feats) ark:- 9<feats; copy-feats ark:/dev/fd/9 ark,t:- 9<feats",
        "copy-feats ark:feats ark:- >&-; echo $?; copy-feats ark:feats ark:- <&- 2>&-",
        "copy-feats ark:'yes a [ 1 2 ] |' ark:- | head -c1; echo ${PIPESTATUS[@]}",
        "umask 027; mkdir -p d; cd d; copy-feats ark:../feats ark:out; stat -c %A out; rm -r ../d",
        "mkdir -p d; cd d; rmdir ../d; copy-feats ark:../feats ark:-; copy-feats ark:/dev/null -",
        "export x=$(printf %100000s); copy-feats 'ark:printenv x | wc -c >&2; cat feats |' ark:-",
        "copy-feats 'ark:kill -9 $PPID; cat feats |' ark:-; echo $?",
        "trap '' INT; copy-feats 'ark:kill -INT $PPID; cat feats |' ark:-; echo $?",
        "copy-feats 'ark:kill -TERM $PPID; sleep 1; cat feats |' ark:-; echo $?",
    ],
)
def test_programs_do_the_same(worker: Environment, script: str) -> None:
    ordinary, forked = (run(e, "bash", "-c", script) for e in (ORDINARY, worker))
    # Programs of a pipe write in any order, and bash names the process that was killed.
    lines, expected = (
        sorted(re.sub(rb"\d+ Kill", b"", x.stderr).split(b"\n")) for x in (forked, ordinary)
    )
    assert lines == expected
    assert (forked.stdout, forked.returncode) == (ordinary.stdout, ordinary.returncode)


@pytest.mark.slow
def test_every_help_is_the_same(worker: Environment) -> None:
    for name in sorted(set(PROGRAMS) - {"nnet3-worker"}):
        words = (f"{worker['NNET3TOOLS_WORKER']}/client", "--help")
        done = run(worker, "bash", "-c", 'exec -a "$0" "$@"', name, *words)
        assert done.returncode == 0
        assert done.stderr.decode() == main_of(name).command_line.help() + "\n", name


@pytest.mark.parametrize("threads", ["1", "2"])
def test_trainings_are_the_same(threads: str) -> None:
    write_nnet(network(), "0.raw")
    write_table("ark:egs", {f"m{i}": minibatch(seed=i) for i in range(8)}, EXAMPLE)
    environment = started(OMP_NUM_THREADS=threads, NNET3TOOLS_CPU_KERNELS="native")
    ordinary = {**environment, "NNET3TOOLS_WORKER": ""}
    pid = pid_of(environment)
    assert is_taken(environment)
    for name, variables in (("1.raw", ordinary), ("2.raw", environment), ("3.raw", environment)):
        assert run(variables, "nnet3-train", "--srand=1", "0.raw", "ark:egs", name).returncode == 0
    assert Path("1.raw").read_bytes() == Path("2.raw").read_bytes() == Path("3.raw").read_bytes()
    assert len(os.listdir(f"/proc/{pid}/task")) == 1
    os.kill(pid, signal.SIGTERM)


def test_clients_run_at_the_same_time(worker: Environment) -> None:
    clients = [
        subprocess.Popen(PARENT, env=worker, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(20)
    ]
    parents = {client.communicate()[0] for client in clients}
    assert parents == {f"a  [ {pid_of(worker)} ]\n".encode()}
    descriptors = os.listdir(f"/proc/{pid_of(worker)}/fd")
    assert len(descriptors) <= 3 + 3  # listener, selector, leader


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_to_the_client_reaches_the_program(worker: Environment, number: int) -> None:
    statuses = []
    for environment in (ORDINARY, worker):
        client, pid = waiting(environment, preexec_fn=lambda: signal.signal(number, signal.SIG_DFL))
        client.send_signal(number)
        statuses.append(client.wait(30))
        until(lambda pid=pid: state(pid) in ("", "Z"))
        assert not Path("out").exists()
        Path("pid").unlink()
    assert statuses[0] == statuses[1] != 0


def test_the_program_ends_with_a_killed_client(worker: Environment) -> None:
    client, pid = waiting(worker)
    assert state(pid) == "S"
    client.kill()
    until(lambda: state(pid) == "")
    assert is_taken(worker)


def test_a_stopped_client_stops_and_continues_its_program(worker: Environment) -> None:
    client, pid = waiting(worker)
    client.send_signal(signal.SIGTSTP)
    until(lambda: state(client.pid) == state(pid) == "T")
    client.send_signal(signal.SIGCONT)
    until(lambda: state(client.pid) == state(pid) == "S")
    client.terminate()
    assert client.wait() == 143


@pytest.mark.parametrize(
    "variable",
    ["OMP_NUM_THREADS", "NNET3_NUM_THREADS", "PYTHONHASHSEED", "LC_ALL", "NNET3TOOLS_CACHE"],
)
def test_a_variable_that_is_read_at_the_start_has_its_effect(worker, variable: str) -> None:
    assert is_taken({**worker, "x": "1"})
    assert not is_taken({**worker, variable: "1"})


@pytest.mark.parametrize(
    "change",
    [
        lambda: os.nice(1),
        pytest.param(
            lambda: os.sched_setaffinity(0, {0}),
            marks=pytest.mark.skipif(num_processors() < 2, reason="needs two processors"),
        ),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30)),
        lambda: [os.dup2(1, number) for number in range(100, 360)],
    ],
)
def test_a_client_with_other_limits_starts_the_program_itself(worker, change) -> None:
    assert is_taken(worker, close_fds=False)
    assert not is_taken(worker, preexec_fn=change, close_fds=False)


def test_other_users_cannot_reach_it(worker: Environment) -> None:
    folder = Path(worker["NNET3TOOLS_WORKER"])
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "client").resolve().parent.stat().st_mode & 0o777 == 0o700


def test_programs_start_where_the_worker_is_gone() -> None:
    environment = started()
    folder, pid = Path(environment["NNET3TOOLS_WORKER"]), pid_of(environment)
    client, program = waiting(environment)
    os.kill(pid, signal.SIGKILL)
    assert client.wait() == 255
    until(lambda: state(program) == "")
    assert folder.exists()  # with a socket that nobody hears
    done = run(environment, "copy-feats", "ark:feats", "ark,t:-")
    assert done.returncode == 0
    assert done.stdout == Path("feats").read_bytes()


def test_a_worker_that_is_told_to_stop_lets_programs_end() -> None:
    environment = started()
    client, program = waiting(environment)
    assert run(environment, "nnet3-worker", "--stop").returncode == 0
    assert not is_taken(environment)
    assert state(program) == "S"
    client.terminate()
    assert client.wait() == 143
    until(lambda: not Path(environment["NNET3TOOLS_WORKER"]).exists())
    done = run(environment, "nnet3-worker", "--stop")
    assert done.returncode == 0
    assert b"no worker listens there" in done.stderr


def test_an_idle_worker_ends() -> None:
    environment = started("--idle-minutes=0.005")
    until(lambda: not Path(environment["NNET3TOOLS_WORKER"]).exists())


def test_it_ends_with_the_shell_that_started_it() -> None:
    script = 'eval "$(nnet3-worker)"; echo $NNET3TOOLS_WORKER; read'
    with subprocess.Popen(
        ["bash", "-c", script], env=ORDINARY, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as shell:  # fmt: skip
        assert shell.stdout is not None
        folder = Path(os.fsdecode(shell.stdout.readline().strip()))
        until((folder / "socket").exists)
    until(lambda: not folder.exists())


def test_a_changed_file_of_the_package_ends_it(monkeypatch, tmp_path: Path) -> None:
    module = ModuleType("nnet3tools.changed")
    module.__file__ = str(tmp_path / "feats")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = resident._sources()
    assert resident._sources() == before
    os.utime("feats", (1, 1))
    assert resident._sources() != before


def test_an_installation_puts_clients_on_path(tmp_path: Path) -> None:
    scripts = tmp_path / "installed $'\"\\ é"
    scripts.mkdir()
    for name in (*PARENT[:1], "nnet3-worker"):
        module, function = entry_point_of(name)
        lines = f"#!{sys.executable}", "import sys", f"from {module} import {function}"
        (scripts / name).write_text("\n".join([*lines, f"sys.exit({function}())\n"]))
        (scripts / name).chmod(0o755)
    path = f"{scripts}:{os.environ['PATH']}"
    source = f"{ROOT}/src"
    environment = started(program=scripts / "nnet3-worker", PATH=path, PYTHONPATH=source)
    assert is_taken(environment)
    assert run(environment, "nnet3-worker", "--stop").returncode == 0
    assert not is_taken(environment)

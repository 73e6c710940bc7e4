"""The resident worker: a process that has imported this package, and whose forks become programs.

nnet3-worker starts it. `worker_client.c` runs in the place of each program. The fork takes over the
client's words, directory, environment, umask, signals and descriptors. A client that differs in
anything else that counts is refused, and starts its program in the ordinary way.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import os
import pkgutil
import re
import select
import shutil
import signal
import socket
import struct
import sys
import threading
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import nnet3tools
from nnet3tools.cli.programs import PROGRAMS, main_of
from nnet3tools.cli.started_processes import die_with_parent
from nnet3tools.number_text import parse_double

_AT_START = re.compile(
    rb"PYTHON|LD_|GLIBC_|MALLOC_|LC_|LANG|LOCPATH|TZ|HOME$|TMPDIR$|XDG_|OPENSSL_|OPENBLAS_|GOTO|"
    rb"OMP_|MKL_|BLIS_|NVPL_|NUMPY_|NPY_|NNET3(?!TOOLS_WORKER$)|CUDA|CUPY|NVIDIA"
)
"""Beginnings of the names of variables that the interpreter, libraries or we read only once."""
_STATUS = "Uid Gid Groups CapEff CapBnd NoNewPrivs Seccomp Cpus_allowed Mems_allowed".split()
_FROM_PYTHON = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}
"""Signals that have the same effect in every Python process."""


class Client:
    """What /proc says about the process whose place a program takes; OSError if it has ended."""

    def __init__(self, pid: int | str) -> None:
        self._pid = pid
        variables = self._read("environ").split(b"\0")
        self.environment = dict(x.split(b"=", 1) for x in variables if b"=" in x)
        self._words = [os.fsdecode(word) for word in self._read("cmdline").split(b"\0")[:-1]]
        self._status = dict(re.findall(r"(\w+):[ \t]*(.*)", self._read("status").decode()))
        self.program = os.path.basename(self._words[0])

    def _read(self, name: str) -> bytes:
        with open(f"/proc/{self._pid}/{name}", "rb") as file:
            return file.read()

    def fixed(self) -> list[object]:
        """What a fork of another process cannot take over."""
        spaces = [f"ns/{name}" for name in sorted(os.listdir(f"/proc/{self._pid}/ns"))]
        return [
            {name: value for name, value in self.environment.items() if _AT_START.match(name)},
            [self._status.get(name) for name in _STATUS],
            [self._read(name) for name in ("limits", "cgroup", "oom_score_adj")],
            [os.readlink(f"/proc/{self._pid}/{name}") for name in ("root", *spaces)],
            # nice value and scheduling policy
            [self._read("stat").rpartition(b")")[2].split()[i] for i in (16, 38)],
        ]

    def _signals(self, field: str) -> set[int]:
        mask = int(self._status[field], 16)
        return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}

    def become(self, numbers: Sequence[int], descriptors: Sequence[int]) -> NoReturn:
        """Run the client's program in this process, with `descriptors` under their `numbers`."""
        os.setsid()
        die_with_parent()
        os.chdir(f"/proc/{self._pid}/cwd")
        os.umask(int(self._status["Umask"], 8))
        os.environb.clear()
        os.environb.update(self.environment)
        importlib.reload(sys.modules["nnet3tools.cli"])  # sets a variable
        free = 1 + max(*map(int, os.listdir("/proc/self/fd")), *numbers, 2)
        held = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, free) for one in descriptors]
        os.closerange(0, free)
        for one, number in zip(held, numbers, strict=True):
            os.dup2(one, number)
        os.closerange(free, free + len(held))
        sys.stdin = open(0, closefd=False) if 0 in numbers else None
        ignored = self._signals("SigIgn")
        for one in signal.valid_signals() - _FROM_PYTHON:
            signal.signal(one, signal.SIG_IGN if one in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._signals("SigBlk") - {signal.SIGINT})
        sys.argv[1:] = self._words[1:]
        _run(self.program)


def _run(program: str) -> NoReturn:
    """Run a program and end as the interpreter does, but without destroying the modules."""
    status: object = 1
    try:
        status = main_of(program)(sys.argv[1:])
    except SystemExit as end:
        status = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(status & 255 if isinstance(status, int) else 1)


def _serve(client: socket.socket, fixed: list[object], sources: list[float]) -> None:
    """Start the program of a connected client in a fork, pass signals on, report its status.

    A client that is not as the worker (`fixed`, `sources`) is refused: the connection closes.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    message, descriptors, _, _ = socket.recv_fds(client, 4096, 250)
    peer = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, user, _ = struct.unpack("3i", peer)
    if not message or user != os.geteuid():
        return
    if (taken := Client(pid)).fixed() != fixed or taken.program not in PROGRAMS:
        return
    if sources != _sources():
        os.kill(os.getppid(), signal.SIGTERM)
        return
    die_with_parent()
    if (program := os.fork()) == 0:
        taken.become(array("i", message)[1:], descriptors)
    for one in descriptors:
        os.close(one)
    ended = os.pidfd_open(program)
    client.send(b"+")
    while ended not in select.select([client.fileno(), ended], [], [])[0]:
        byte = client.recv(1) or bytes([signal.SIGKILL | 128])  # a client that was killed
        (os.killpg if byte[0] & 128 else os.kill)(program, byte[0] & 127)
    client.send(struct.pack("i", os.waitpid(program, 0)[1]))


def _has_programs() -> bool:
    """Whether programs are running; reaps those that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _listen(listener: socket.socket, leaders: list[int], seconds: float) -> None:
    """Serve clients until a process in `leaders` (pidfds) ends, or for `seconds` no client came."""
    fixed, sources = Client("self").fixed(), _sources()
    while True:
        ready = select.select([listener.fileno(), *leaders], [], [], seconds)[0]
        if {*ready} & {*leaders} or not (_has_programs() or ready):
            return
        if ready:
            # Python would lose an exception that is raised in what it calls after a fork.
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            with listener.accept()[0] as client:
                if os.fork() == 0:
                    try:
                        listener.close()
                        _serve(client, fixed, sources)
                    finally:
                        os._exit(1)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def _sources() -> list[float]:
    """When the imported files of the package were changed; another answer ends the worker."""
    modules = [module for name, module in sys.modules.items() if name.startswith("nnet3tools.")]
    return [os.stat(module.__file__).st_mtime for module in modules if module.__file__]


def main() -> None:
    """Serve on a socket in a folder, which is removed at the end; see nnet3_worker.py."""
    folder, seconds, *leaders = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        gc.disable()
        for module in pkgutil.walk_packages(nnet3tools.__path__, "nnet3tools."):
            if not re.search(r"\.cuda\.|__main__$", module.name):
                importlib.import_module(module.name)
        gc.freeze()
        listener.bind(f"{folder}/socket")
        listener.listen(128)
        _listen(listener, [*map(int, leaders)], parse_double(seconds) or 0.0)
    finally:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(ChildProcessError):
            while os.wait():
                pass


if __name__ == "__main__":
    main()

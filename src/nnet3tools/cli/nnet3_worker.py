"""nnet3-worker: lets the programs of a shell script start faster, as forks of one process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import UserError
from nnet3tools.io import log

USAGE = """Start a process that has loaded this package, and print shell commands after which
programs run as forks of it, with the same results. It ends with the script or shell, or when idle.
Where it cannot take a program's place, the program starts in the ordinary way (docs/worker.md).

Usage:  eval "$(nnet3-worker [options])"

e.g.:
 eval "$(nnet3-worker)"
 nnet3-worker --stop
"""


class Options(OptionGroup):
    idle_minutes: float = option(10.0, "Minutes without programs after which the worker ends")
    stop: bool = option(False, "End the running worker as soon as its programs have ended")


@program("nnet3-worker", USAGE, Options, num_args=0)
def main(options: Options, args: list[str]) -> None:
    """Print the commands that set NNET3TOOLS_WORKER and, in an installation, PATH."""
    import shlex
    import subprocess
    import tempfile

    from nnet3tools.cli.resident import Client

    if options.stop:
        return _stop(os.environ.get("NNET3TOOLS_WORKER", ""))
    called, source = Path(sys.argv[0]).absolute(), Path(__file__).parents[2].resolve()
    is_installed = called.name == "nnet3-worker"
    clients = _clients(called.parent if is_installed else source.parent / "bin")
    folder = tempfile.mkdtemp(prefix="nnet3-worker-")
    os.symlink(clients / "client", f"{folder}/client")
    os.symlink(source, f"{folder}/src")
    null = subprocess.DEVNULL
    leaders = []
    with suppress(OSError):  # it has ended already, such as the first program of a pipe
        leaders.append(os.pidfd_open(os.getpgrp()))
    words = map(str, [folder, 60 * options.idle_minutes, *leaders])
    subprocess.Popen(
        [sys.executable, "-m", "nnet3tools.cli.resident", *words], pass_fds=leaders, stdin=null,
        stdout=null, stderr=null, start_new_session=True, cwd="/", env=Client("self").environment,
    )  # fmt: skip
    print(f"export NNET3TOOLS_WORKER={shlex.quote(folder)}")
    if is_installed:
        print(f"PATH={shlex.quote(str(clients))}:$PATH")


def _clients(ordinary: Path) -> Path:
    """A folder of the cache: worker_client.c compiled, and a link to it for each program.

    `ordinary` has the programs that start in the ordinary way. The links stay when the worker ends
    because shells remember where they found a program.
    """
    import hashlib
    import json
    import subprocess

    from nnet3tools.cli.programs import PROGRAMS
    from nnet3tools.tensor.cpu.cache import cache_folder
    from nnet3tools.tensor.cpu.compiler import find_compiler

    compiler, cache = find_compiler(), cache_folder()
    if not (ordinary / "nnet3-worker").exists() or compiler is None or cache is None:
        raise UserError("expected a C compiler, a cache folder, and to be called by name")
    source = Path(__file__).with_name("worker_client.c")
    place = f"-DORDINARY={json.dumps(str(ordinary), ensure_ascii=False)}"
    facts = source.read_bytes() + os.fsencode(f"{place} {compiler.identity} {PROGRAMS}")
    folder = Path(cache) / f"{hashlib.sha256(facts).hexdigest()[:40]}.clients"
    if not (folder / "client").exists():
        folder.mkdir(mode=0o700, exist_ok=True)
        made = str(folder / f"{os.getpid()}")
        command = [*compiler.command, "-O1", place, "-o", made, str(source)]
        if subprocess.call(command, stdin=subprocess.DEVNULL, stdout=2) != 0:
            raise UserError(f"{compiler.command[0]} cannot compile {source}")
        for name in {*PROGRAMS} - {"nnet3-worker"}:
            with suppress(FileExistsError):
                os.symlink("client", folder / name)
        os.replace(made, folder / "client")
    return folder


def _stop(folder: str) -> None:
    import signal
    import socket
    import struct
    import time

    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as worker:
        try:
            worker.connect(f"{folder}/socket")
        except OSError:
            return log.warning(f"NNET3TOOLS_WORKER={folder}: no worker listens there")
        peer = worker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        os.kill(struct.unpack("3i", peer)[0], signal.SIGTERM)
    while os.path.exists(folder):
        time.sleep(0.01)

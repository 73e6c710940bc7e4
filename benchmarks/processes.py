"""Run a program in its own process; its time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Timing:
    """Seconds and MB of one run."""

    user: float
    elapsed: float
    megabytes: float


def ours(program: str, *words: str) -> list[str]:
    """The command for a program of this checkout."""
    return [sys.executable, "-m", "nnet3tools.cli", program, *words]


def environment_of(threads: int) -> dict[str, str]:
    """The environment of a measured program: number of threads; BLAS chooses its kernels.

    Programs that an earlier round compiled are not used, unless the caller's environment says so.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    kept.setdefault("NNET3TOOLS_NO_PROGRAM_CACHE", "1")
    return {**kept, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def timed(
    command: Sequence[str],
    folder: Path,
    threads: int = 1,
    checkout: Path = ROOT,
    **variables: str,
) -> Timing:
    """Run a command in a folder, with the programs of `checkout`.

    Raises SystemExit with the last lines of the command's log if it fails.
    """
    environment = {**environment_of(threads), **variables}
    environment["PATH"] = f"{checkout / 'bin'}{os.pathsep}{environment['PATH']}"
    environment["PYTHONPATH"] = str(checkout / "src")
    # A process inherits the memory of the one that started it as its peak: a small one in between.
    starter = [sys.executable, "-S", "-I", __file__, *command]
    log = folder / "log"
    with open(log, "w") as stderr:
        done = subprocess.run(
            starter, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=stderr, check=False
        )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nfailed:\n{log.read_text()[-2000:]}")
    return Timing(*map(float, done.stdout.split()))


def _start_and_report(command: Sequence[str]) -> int:
    began = time.perf_counter()
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - began
    print(usage.ru_utime, elapsed, usage.ru_maxrss / 1024)
    return os.waitstatus_to_exitcode(status) != 0


if __name__ == "__main__":
    sys.exit(_start_and_report(sys.argv[1:]))

"""The machine's C compiler: found on PATH, asked for a library, given up if it takes long."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from nnet3tools.io import log

__all__ = ["TIMEOUT", "Compiler", "cpu_features", "find_compiler", "num_processors"]

_NAMES = ("cc", "gcc", "clang")

TIMEOUT = 60.0
"""Seconds that a compiler may take for a file (which takes it half a second)."""

_FLAGS = (
    "-shared", "-fPIC", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-fwrapv", "-fno-strict-aliasing", "-fopenmp-simd", "-std=gnu11", "-w",
)  # fmt: skip
"""No flag that lets NaN, infinity or signed zeros go, nor one that reorders sums: where they may be
is said in the source. Products and sums are fused only where the source asks for it, so that what
has no functions and sums gives NumPy's numbers bit for bit."""

_GCC_FLAGS = ("-O1", "-ftree-loop-vectorize", "-fvect-cost-model=unlimited",
              "--param=vect-epilogues-nomask=0", "-fira-region=one", "-fno-ivopts")  # fmt: skip
"""As fast as what -O3 makes of these loops, in a quarter of the time (16 ms a kernel for 55).
-fira-region=one halves the time of large kernels (an LSTM's derivatives and sums: 0.33 s for 0.63),
-fno-ivopts takes a sixth off that of all."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler, known by the file that it is."""

    path: str
    identity: str
    """What changes when another version is installed: the real file, its size and time."""

    @property
    def flags(self) -> tuple[str, ...]:
        """All options but the files."""
        machine = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
        is_gcc = "gcc" in os.path.basename(os.path.realpath(self.path))
        return (*_FLAGS, *(_GCC_FLAGS if is_gcc else ("-O2",)), machine)

    def build(self, source: Path, library: Path) -> bool:
        """Make a shared library; False, and one verbose line, if that fails or takes too long."""
        command = [self.path, *self.flags, "-o", str(library), str(source), "-lm"]
        try:
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, env=_environment(),
            ) as process:  # fmt: skip
                try:
                    _, said = process.communicate(timeout=TIMEOUT)
                except BaseException as error:
                    _kill_all(process)
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
                    return _failed(self.path, f"took more than {TIMEOUT:g} s")
        except OSError as error:
            return _failed(self.path, str(error))
        if process.returncode != 0 or not library.exists():
            lines = said.decode(errors="replace").strip().splitlines()
            return _failed(self.path, lines[0][:200] if lines else f"status {process.returncode}")
        return True


def _environment() -> dict[str, str]:
    """The process's, without what would have a compiler look elsewhere; it speaks English."""
    unwanted = ("GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "LC_ALL": "C"}


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """The compiler and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    process.wait()


@functools.cache
def _failed(path: str, reason: str) -> bool:
    log.warning(f"no compiled kernels: {path}: {reason}; NumPy does the work, which takes longer")
    return False


@functools.cache
def find_compiler() -> Compiler | None:
    """The first C compiler on PATH; None, and one line that says so, if there is none."""
    if os.name != "posix":
        return None
    for name in _NAMES:
        if (path := shutil.which(name)) is not None:
            real = os.path.realpath(path)
            try:
                found = os.stat(real)
            except OSError:
                continue
            return Compiler(path, f"{path} {real} {found.st_size} {found.st_mtime_ns}")
    looked = f"none of {', '.join(_NAMES)} on PATH" if os.environ.get("PATH") else "PATH is empty"
    log.log(f"no compiled kernels: {looked}; NumPy does the work, which takes longer")
    return None


def num_processors() -> int:
    """How many processors this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.cache
def cpu_features() -> str:
    """What `native` code depends on, as text: the machine's kind and its processor's features."""
    facts = [sys.platform, platform.machine(), sys.byteorder]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).split("\n\n")[0].splitlines()
        wanted = ("flags", "features", "model", "cpu family", "vendor_id", "stepping", "cpu part")
        facts += [line for line in lines if line.split("\t")[0].strip().lower() in wanted]
    except OSError:
        facts += [platform.processor(), platform.version()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()

"""The C compiler: on PATH, or that of the Python package ziglang; given up if it takes long."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import platform
import signal
import sys
import time
from typing import TYPE_CHECKING

from nnet3tools.digests import sha256
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.tensor.cpu.cache import cache_folder

if TYPE_CHECKING:
    import subprocess

_NAMES = ("cc", "gcc", "clang")

_KEEP_SOURCE = "NNET3TOOLS_KEEP_SOURCE"

TIMEOUT = 10.0
"""Seconds that a compiler may take for a small file where cores are free (0.5 s is usual)."""

_SECONDS_A_BYTE = 1e-4
"""Additional seconds for a byte of source, ten times what gcc takes."""

_REMEMBERED = 3600.0
"""Seconds for which other processes do not try a compiler that hung."""

_FLAGS = (
    "-shared", "-fPIC", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
    "-fwrapv", "-fno-strict-aliasing", "-fopenmp-simd", "-std=gnu11", "-w",
)  # fmt: skip
"""NaN, infinity and signed zeros are kept, and sums are reordered only where the source says so.
Products and sums are fused only where the source asks for it. So a formula without functions and
sums gives NumPy's numbers bit for bit."""

_GCC_FLAGS = ("-O1", "-ftree-loop-vectorize", "-fvect-cost-model=unlimited",
              "--param=vect-epilogues-nomask=0", "-fira-region=one", "-fno-ivopts")  # fmt: skip
"""The code is as fast as with -O3 and takes a quarter of the time to compile (16 ms a kernel
instead of 55). -fira-region=one halves the time that large kernels take (an LSTM's derivatives and
sums: 0.33 s instead of 0.63); -fno-ivopts takes a sixth off the time of all kernels."""

_CLANG_FLAGS = ("-O2",)
_ZIG_FLAGS = (*_CLANG_FLAGS, "-fno-sanitize=undefined")  # zig cc checks by default


def keeps_source() -> bool:
    """Whether the user wants the source of compiled kernels to be kept, for a debugger."""
    return os.environ.get(_KEEP_SOURCE, "0") not in ("", "0")


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the command that runs it, and the identity of its version for digests."""

    command: tuple[str, ...]
    """The program and its first arguments."""
    identity: str
    """Changes when another version is installed: the real file, its size and time."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler's command-line options, without file names."""
        machine = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
        debug = ("-g",) if keeps_source() else ()
        return (*_FLAGS, *self._own_flags(), machine, *debug)

    def _own_flags(self) -> tuple[str, ...]:
        if len(self.command) > 1:
            return _ZIG_FLAGS
        is_gcc = "gcc" in os.path.basename(os.path.realpath(self.command[0]))
        return _GCC_FLAGS if is_gcc else _CLANG_FLAGS

    def build(self, source: str, library: str) -> bool:
        """Compile the C file `source` to a shared library; False, with a warning, on failure."""
        import subprocess  # 5 ms of a start that compiles nothing

        name = " ".join(self.command)
        if self._has_hung():
            return failed(f"{name}: took more than {TIMEOUT:g} s before, and is not tried again")
        command = [*self.command, *self.flags, "-o", library, source, "-lm"]
        limit = (TIMEOUT + _SECONDS_A_BYTE * os.path.getsize(source)) * _processes_a_core()
        try:
            with subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, start_new_session=True, env=_environment(),
            ) as process:  # fmt: skip
                try:
                    _, said = process.communicate(timeout=limit)
                except BaseException as error:
                    _kill_all(process)
                    if not isinstance(error, subprocess.TimeoutExpired):
                        raise
                    _hung.add(self.identity)
                    with contextlib.suppress(OSError):
                        if (note := self._note()) is not None:
                            with open(note, "w"):
                                pass
                    return failed(f"{name}: took more than {limit:.0f} s")
        except OSError as error:
            return failed(f"{name}: {error}")
        if process.returncode != 0 or not os.path.exists(library):
            lines = said.decode(errors="replace").strip().splitlines()
            reason = lines[0][:200] if lines else f"status {process.returncode}"
            return failed(f"{name}: {reason}")
        return True

    def _note(self) -> str | None:
        """The file that tells other processes that this compiler hung; None without a cache."""
        digest = sha256(self.identity.encode("utf-8", "surrogateescape")).hexdigest()[:40]
        return None if (folder := cache_folder()) is None else f"{folder}/{digest}.hung"

    def _has_hung(self) -> bool:
        """Whether this compiler hung in this process, or in another one during the last hour."""
        with contextlib.suppress(OSError):
            if self.identity not in _hung and (note := self._note()) is not None:
                return abs(time.time() - os.path.getmtime(note)) < _REMEMBERED
        return self.identity in _hung


def _processes_a_core() -> float:
    """How many processes share a core, at least 1: a compiler on a busy machine gets more time."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


_hung: set[str] = set()
"""The identities of compilers that hung in this process."""


def _environment() -> dict[str, str]:
    """This process's environment for the compiler: English messages, no added search paths."""
    unwanted = ("GCC_EXEC_PREFIX", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**kept, "LC_ALL": "C"}


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    """Kill a compiler process and all processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (OSError, AttributeError):
        process.kill()
    process.wait()


_failures = itertools.count()  # next() is atomic: threads compile at the same time


def failed(reason: str) -> bool:
    """Log why there are no compiled kernels, as a warning the first time; returns False."""
    text = f"no compiled kernels: {reason}; NumPy does the work, which takes longer"
    log.warning(text) if next(_failures) == 0 else log.vlog(1, text)
    return False


@functools.cache
def find_compiler() -> Compiler | None:
    """The first C compiler on PATH, else ziglang's; None, with a log line, if there is neither."""
    if os.name != "posix":
        return None
    for name in _NAMES:
        if (path := _on_path(name)) and (identity := _identity(path)):
            return Compiler((path,), identity)
    package = importlib.util.find_spec("ziglang")
    if package is not None and (folders := package.submodule_search_locations):
        if identity := _identity(os.path.join(folders[0], "zig")):
            return Compiler((sys.executable, "-m", "ziglang", "cc"), identity)
    looked = f"none of {', '.join(_NAMES)} on PATH" if os.environ.get("PATH") else "PATH is empty"
    log.log(
        f"no compiled kernels: {looked}, no Python package ziglang (extra `compiler`); NumPy does "
        "the work, which takes longer"
    )
    return None


def _on_path(name: str) -> str | None:
    """The first program `name` in a folder of PATH; shutil.which takes 4 ms to import."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    files = [os.path.join(folder, name) for folder in folders if folder]
    return next((f for f in files if os.path.isfile(f) and os.access(f, os.X_OK)), None)


def _identity(path: str) -> str:
    """Text that identifies a program file: real path, size and time; empty if there is no file."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError:
        return ""
    return f"{path} {real} {found.st_size} {found.st_mtime_ns}"


def num_processors() -> int:
    """The number of processors that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@functools.cache
def cpu_features() -> str:
    """A digest of the machine's and processor's features on which compiled code depends."""
    facts = [sys.platform, platform.machine(), sys.byteorder]
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 16).split("\n\n")[0].splitlines()
        wanted = ("flags", "features", "model", "cpu family", "vendor_id", "stepping", "cpu part")
        facts += [line for line in lines if line.split("\t")[0].strip().lower() in wanted]
    except OSError:
        facts += [platform.processor(), platform.version()]
    return sha256("\n".join(facts).encode()).hexdigest()

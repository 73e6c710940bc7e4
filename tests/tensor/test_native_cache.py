"""Compiled kernels on disk: who is trusted, what happens where compilers fail, many processes."""

import functools
import importlib.util
import itertools
import os
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nnet3tools import tensor
from nnet3tools.errors import OptionError
from nnet3tools.io import log
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu import cache, choice, compiler, library
from nnet3tools.tensor.cpu.calls import compiled_steps, jobs_of
from nnet3tools.tensor.cpu.jobs import CompiledJobs
from support.native_kernels import needs_compiler


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A process that has compiled nothing yet, with a cache of its own; its log lines."""
    monkeypatch.setenv("NNET3TOOLS_CACHE", str(tmp_path / "cache"))
    new = library.Library()
    for module in ("library", "jobs"):
        monkeypatch.setattr(f"nnet3tools.tensor.cpu.{module}.library", new)
    compiler.find_compiler.cache_clear()
    monkeypatch.setattr(compiler, "_failures", itertools.count())
    monkeypatch.setattr(compiler, "_hung", set())
    lines: list[str] = []
    monkeypatch.setattr(log, "vlog", lambda level, text: lines.append(text))
    for kind in ("log", "warning"):
        monkeypatch.setattr(log, kind, lambda text, kind=kind: lines.append(f"{kind}: {text}"))
    yield lines
    compiler.find_compiler.cache_clear()


def fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    (folder / "bin").mkdir()
    path = folder / "bin" / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/bin:/usr/bin")


def doubled(by_numpy: bool = False) -> np.ndarray:
    """2 x by a kernel, or by NumPy where there is none (and then only)."""
    x, out = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    formula = tensor.element("_1 = _2 * 2")
    jobs = jobs_of(Call.of(formula, out, x))
    used: list[bool] = []

    def numpy_does_it() -> None:
        used.append(True)
        formula(out, x)

    CompiledJobs(jobs, lambda: numpy_does_it)()
    assert bool(used) == by_numpy
    assert np.array_equal(out, 2 * x)
    return out


def replaced(path: Path, data: bytes) -> None:
    """Another file of that name: this process has the old one in memory."""
    path.unlink()
    path.write_bytes(data)
    path.chmod(0o600)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "kernels").glob("*"))


@needs_compiler
def test_a_library_is_kept_and_found_again(fresh, tmp_path, monkeypatch):
    doubled()
    (kept,) = files(tmp_path)
    assert kept.suffix == ".so"
    assert stat.S_IMODE(kept.stat().st_mode) & 0o077 == 0
    assert stat.S_IMODE(kept.parent.stat().st_mode) & 0o077 == 0
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    monkeypatch.setattr(compiler.Compiler, "build", lambda *_: pytest.fail("compiled again"))
    doubled()


def multiples() -> int:
    """x times 2 to 6 by a kernel each; how often NumPy was asked, as there was none.

    Of different lengths, or one kernel would do all.
    """
    x, outs = np.arange(6, dtype=np.float32), [np.zeros(k, np.float32) for k in range(2, 7)]
    formulas = [tensor.element(f"_1 = _2 * {k}") for k in range(2, 7)]
    asked: list[bool] = []

    def by_numpy(formula, out):
        asked.append(True)
        formula(out, x[: out.size])

    calls = [
        Call("", (out, x[: out.size]), {}, f, bound=functools.partial(by_numpy, f, out))
        for f, out in zip(formulas, outs, strict=True)
    ]
    for _, run in compiled_steps(enumerate(calls)):
        run()
    for k, out in enumerate(outs, 2):
        np.testing.assert_array_equal(out, k * x[:k])
    return len(asked)


@needs_compiler
@pytest.mark.parametrize("processors", [1, 2])
def test_many_kernels_are_made_by_two_compilers_at_once(fresh, tmp_path, monkeypatch, processors):
    monkeypatch.setattr(library, "_LARGE", 0)
    monkeypatch.setattr(library, "num_processors", lambda: processors)
    assert multiples() == 0
    assert len(files(tmp_path)) == processors


@needs_compiler
def test_all_is_left_to_numpy_if_one_of_two_compilers_fails(fresh, tmp_path, monkeypatch):
    monkeypatch.setattr(library, "_LARGE", 0)
    monkeypatch.setattr(library, "num_processors", lambda: 2)
    build, built = compiler.Compiler.build, []

    def build_one(self, source, made):
        built.append(source)
        return len(built) > 1 and build(self, source, made)

    monkeypatch.setattr(compiler.Compiler, "build", build_one)
    assert multiples() == 5
    assert len(built) == 2


@needs_compiler
def test_other_sources_compilers_and_processors_have_other_libraries(fresh, tmp_path, monkeypatch):
    doubled()
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    monkeypatch.setattr(library, "cpu_features", lambda: "another processor")
    doubled()
    assert len(files(tmp_path)) == 2
    other = compiler.Compiler(compiler.find_compiler().command, "another version")
    monkeypatch.setattr(library, "find_compiler", lambda: other)
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    doubled()
    assert len(files(tmp_path)) == 3


@needs_compiler
@pytest.mark.parametrize("what", ["folder", "file", "parent"])
def test_what_others_can_write_is_not_loaded(fresh, tmp_path, monkeypatch, what):
    doubled()
    (kept,) = files(tmp_path)
    victim = {"folder": kept.parent, "file": kept, "parent": tmp_path / "cache"}[what]
    replaced(kept, b"not what was compiled")
    victim.chmod(victim.stat().st_mode | stat.S_IWOTH)
    opened = []
    real = library._open
    monkeypatch.setattr(
        library, "_open", lambda name, path: opened.append(path) or real(name, path)
    )
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    doubled()
    if what == "file":  # replaced by a new one of ours
        assert not files(tmp_path)[0].stat().st_mode & stat.S_IWOTH
    else:
        assert kept not in opened
        assert any("another user can write" in line for line in fresh)


@needs_compiler
def test_what_is_checked_is_what_is_loaded(fresh, tmp_path, monkeypatch):
    """Another file that takes the path's place after the check is not loaded."""
    doubled()
    (kept,) = files(tmp_path)
    other = tmp_path / "other.so"
    other.write_bytes(kept.read_bytes())
    real = library.open_kept

    def swapped(path):
        found = real(path)
        replaced(Path(path), b"another library")
        return found

    monkeypatch.setattr(library, "open_kept", swapped)
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    monkeypatch.setattr(compiler.Compiler, "build", lambda *_: pytest.fail("compiled again"))
    doubled()
    monkeypatch.setattr(library, "open_kept", real)
    kept.unlink()
    kept.symlink_to(other)
    assert cache.open_kept(kept) is None
    assert cache.open_kept(other) is not None


@needs_compiler
def test_two_libraries_by_one_descriptor_are_two(fresh, tmp_path):
    """dlopen returns an earlier library of the same name, /proc/self/fd/5."""
    made = [library.load_library(f"int f(void) {{ return {k}; }}", "f") for k in (1, 2, 1, 2)]
    assert [one.f() for one in made] == [1, 2, 1, 2]


def test_a_full_temporary_folder_leaves_it_to_numpy_in_one_line(fresh, tmp_path, monkeypatch):
    def full(name, *_, **__):
        raise OSError(28, "No space left on device", name)

    monkeypatch.setattr(library, "_LARGE", 0)
    monkeypatch.setattr(library, "num_processors", lambda: 2)
    monkeypatch.setattr(threading, "excepthook", lambda args: pytest.fail("a thread's traceback"))
    with monkeypatch.context() as patch:
        patch.setattr(library, "open", full, raising=False)
        assert multiples() == 5
    (line,) = [line for line in fresh if line.startswith("warning")]
    assert "No space left on device" in line
    assert "NumPy does the work" in line


def test_without_a_temporary_folder_numpy_does_the_work(fresh, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    doubled(by_numpy=True)
    (line,) = [line for line in fresh if line.startswith("warning")]
    assert "/no/such/folder" in line


def test_a_working_directory_that_is_gone(fresh, tmp_path, monkeypatch):
    monkeypatch.setenv("NNET3TOOLS_CACHE", "cache")
    monkeypatch.setattr(library, "_LARGE", 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: pytest.fail("a thread's traceback"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    try:
        multiples()
    finally:
        os.chdir(tmp_path)


@needs_compiler
def test_a_compiler_whose_library_lacks_the_functions_leaves_it_to_numpy(
    fresh, tmp_path, monkeypatch
):
    real = compiler.find_compiler().command[0]
    compiler.find_compiler.cache_clear()
    script = f'while [ "$1" != -o ]; do shift; done; echo "int x;" | {real} -shared -xc - -o "$2"'
    fake_compiler(tmp_path, monkeypatch, script)
    doubled(by_numpy=True)
    doubled(by_numpy=True)
    (line,) = [line for line in fresh if line.startswith("warning")]
    assert "nn_made_from" in line


def test_what_another_user_owns_is_not_trusted(tmp_path, monkeypatch):
    path = tmp_path / "x.so"
    path.write_bytes(b"")
    path.chmod(0o600)
    assert cache.is_trusted(path)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if path.stat().st_uid != 0:
        assert not cache.is_trusted(path)
    else:  # what is root's is root's doing
        os.chown(path, 12345, 12345)
        assert not cache.is_trusted(path)


def test_links_are_not_trusted(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert cache.is_trusted(tmp_path / "real")
    assert not cache.is_trusted(tmp_path / "link")
    assert not cache.is_trusted(tmp_path / "nothing")


@needs_compiler
def test_a_damaged_library_is_made_again(fresh, tmp_path, monkeypatch):
    doubled()
    (kept,) = files(tmp_path)
    replaced(kept, kept.read_bytes()[:-100])
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    doubled()


@needs_compiler
def test_without_a_place_to_keep_them_kernels_are_made_all_the_same(fresh, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file where the folder should be")
    doubled()
    assert any("not kept" in line for line in fresh)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'kernels.c:1: error: no such thing' >&2; exit 1", "no such thing"),
        ("exit 0", "status 0"),
        ("kill -9 $$", "status -9"),
        ("for i; do out=$last; last=$i; done; echo junk > kernels; exit 3", "status 3"),
    ],
)
def test_a_compiler_that_fails_leaves_it_to_numpy(fresh, tmp_path, monkeypatch, script, said):
    monkeypatch.chdir(tmp_path)
    fake_compiler(tmp_path, monkeypatch, script)
    doubled(by_numpy=True)
    doubled(by_numpy=True)
    (line,) = [line for line in fresh if "no compiled kernels" in line]
    assert line.startswith("warning")
    assert said in line
    assert not files(tmp_path)


def test_a_compiler_that_hangs_is_ended(fresh, tmp_path, monkeypatch):
    fake_compiler(tmp_path, monkeypatch, f"sleep 60 & echo $! > '{tmp_path}/child'; wait")
    monkeypatch.setattr(compiler, "TIMEOUT", 2.0)
    monkeypatch.setattr(compiler, "_SECONDS_A_BYTE", 0.0)
    monkeypatch.setattr("os.getloadavg", lambda: (0.1, 0.1, 0.1))
    began = time.monotonic()
    doubled(by_numpy=True)
    assert time.monotonic() - began < 50
    assert any("took more than 2 s" in line for line in fresh)
    child = int((tmp_path / "child").read_text())
    began = time.monotonic()
    doubled(by_numpy=True)
    assert library.load_library("int f(void) { return 1; }", "f") is None
    monkeypatch.setattr(compiler, "_hung", set())  # another process
    monkeypatch.setattr("nnet3tools.tensor.cpu.jobs.library", library.Library())
    doubled(by_numpy=True)
    assert time.monotonic() - began < 1.9
    assert len([line for line in fresh if line.startswith("warning")]) == 1
    for _ in range(600):
        if not Path(f"/proc/{child}").exists() or _is_zombie(child):
            break
        time.sleep(0.05)
    else:
        pytest.fail("what the compiler had started still runs")


def test_a_compiler_on_a_busy_machine_is_not_taken_for_one_that_hangs(fresh, monkeypatch):
    """The note that it hung would switch compiled kernels off for all processes for an hour."""
    monkeypatch.setattr(compiler, "TIMEOUT", 0.001)
    monkeypatch.setattr(compiler, "_SECONDS_A_BYTE", 0.0)
    monkeypatch.setattr("os.getloadavg", lambda: (1e5 * (os.cpu_count() or 1), 0.0, 0.0))
    doubled(by_numpy=False)
    assert not any("took more than" in line for line in fresh)


def _is_zombie(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"


@pytest.mark.parametrize(
    ("path", "said"), [("nothing", "none of cc, gcc, clang on PATH"), ("", "PATH is empty")]
)
def test_without_a_compiler_numpy_does_the_work_and_the_user_knows(fresh, monkeypatch, path, said):
    monkeypatch.setenv("PATH", path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    doubled(by_numpy=True)
    doubled(by_numpy=True)
    (line,) = fresh
    assert line.startswith(f"log: no compiled kernels: {said}")


@needs_compiler
def test_a_file_that_is_no_library_leaves_it_to_numpy(fresh, tmp_path, monkeypatch):
    script = 'while [ "$1" != -o ]; do shift; done; echo junk > "$2"'
    fake_compiler(tmp_path, monkeypatch, script)
    doubled(by_numpy=True)


_PROCESS = """
import sys
import numpy as np
from nnet3tools import tensor
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.jobs import CompiledJobs
x, out = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
CompiledJobs(jobs_of(Call.of(tensor.element("_1 = exp(_2)"), out, x)), lambda: sys.exit)()
assert np.allclose(out, np.exp(x))
"""


@needs_compiler
def test_many_processes_may_make_the_same_library_at_once(tmp_path):
    environment = {**os.environ, "NNET3TOOLS_CACHE": str(tmp_path / "cache")}
    running = [
        subprocess.Popen([sys.executable, "-c", _PROCESS], env=environment) for _ in range(4)
    ]
    assert [process.wait() for process in running] == [0] * 4
    assert [path.suffix for path in files(tmp_path)] == [".so"]


def test_the_kind_is_one_of_two(monkeypatch):
    monkeypatch.setattr(choice, "_chosen", None)
    monkeypatch.setenv("NNET3TOOLS_CPU_KERNELS", "numpy")
    assert not choice.are_native()
    choice.choose("native")
    assert choice.are_native()
    with pytest.raises(OptionError, match=r"expected native\|numpy"):
        choice.choose("fast")


def test_sources_hold_nothing_but_formulas():
    """Names of operands, which may come from a model's config, are not in a kernel."""
    x = np.zeros((3, 4), np.float32)
    formula = tensor.element("pwned_out = exp(pwned_in) * 2", "pwned_out pwned_in")
    (job,) = jobs_of(Call.of(formula, x, x.copy()))
    assert "pwned" not in job.kernel.text

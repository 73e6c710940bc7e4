"""Compiled kernels under other compilers and in tools: ziglang, debuggers, sanitizers. All slow."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnet3tools.tensor.cpu import compiler

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
KERNELS = (
    "tensor/test_integer_affine.py",
    "tensor/test_packed_affine.py",
    "tensor/test_native_chain.py",
    "tensor/test_native_decompress.py",
    "tensor/test_native_fusion.py",
    "tensor/test_native_kernels.py",
    "tensor/test_second_thread.py",
    "tensor/test_tensor_random.py",
)
"""Tests of emitted kernels and of those in tensor/operators."""
SEARCHES = (
    "chain/test_native_supervisor.py",
    "decoding/test_native_determinization.py",
    "decoding/test_native_search.py",
    "graph/test_spot_checks.py",
)
"""Tests of the C code in chain/native, decoding/native and graph/native."""

COPY = """
import numpy as np
from nnet3tools import tensor
from nnet3tools.tensor.call import Call
from nnet3tools.tensor.cpu.calls import jobs_of
from nnet3tools.tensor.cpu.jobs import CompiledJobs
out, src = np.zeros((2, 6), np.float32), np.ones((4, 6), np.float32)
rows = np.array([1, -1], np.int32)
call = Call("copy_rows", (out, src, rows), {}, tensor.copy_rows)
CompiledJobs(jobs_of(call), exit)()
assert out.sum() == 6
"""


ALONE = """
import os, sys, pytest
# The shell and the compiler crash under libtsan; processes that load kernels preload it again.
os.environ["SANITIZER"] = os.environ.pop("LD_PRELOAD", "")
os.environ["NNET3TOOLS_CPU_KERNELS"] = "numpy"  # as tests/conftest.py
from nnet3tools.tensor.cpu import compiler
compiler.TIMEOUT = 300.0  # sanitizers make compiling slow
sys.exit(pytest.main(sys.argv[1:]))
"""


def run_pytest(files: tuple[str, ...], environment: dict[str, str]) -> None:
    """AssertionError with the output's end unless all tests pass."""
    command = [sys.executable, "-c", ALONE, "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(TESTS / file) for file in files)],
        cwd=TESTS.parent, env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    assert " passed" in done.stdout
    assert "no C compiler" not in done.stdout, done.stdout[-6000:]


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
def test_ziglang_compiles_all_kernels_where_there_is_no_other_compiler(tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    found = {"PATH": str(tmp_path), "NNET3TOOLS_CACHE": str(tmp_path / "cache")}
    run_pytest((*KERNELS, *SEARCHES), found)
    assert list((tmp_path / "cache" / "kernels").glob("*.so"))


@pytest.mark.skipif(compiler.find_compiler() is None, reason="there is no C compiler")
def test_a_debugger_shows_the_line_of_the_kept_source(tmp_path):
    settings = {"NNET3TOOLS_KEEP_SOURCE": "1", "NNET3TOOLS_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", COPY]
    for _ in range(2):  # compiled, then loaded from the cache
        done = subprocess.run(
            command, env={**os.environ, **settings}, check=True, capture_output=True, text=True
        )
        (source,) = (tmp_path / "kernels").glob("*.c")
        assert f"source of 1 kernels: {source}" in done.stderr
    lines = source.read_text().splitlines()
    first = 1 + next(i for i, line in enumerate(lines) if "TYPED(copy_rows)(" in line)
    library = str(source.with_suffix(".so"))
    if gdb := shutil.which("gdb"):
        said = subprocess.run(
            [gdb, "-batch", "-ex", "info line copy_rows_f32", library],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert said.startswith(f'Line {first} of "{source}"')
    elif objdump := shutil.which("objdump"):
        said = subprocess.run(
            [objdump, "--dwarf=decodedline", library], check=True, capture_output=True, text=True
        ).stdout
        assert re.search(rf"{source.name}\s+{first}\s", said)
    else:
        pytest.skip("there is neither gdb nor objdump")


def sanitizer(name: str) -> str | None:
    """The path of a sanitizer's library of gcc, such as libasan.so; None if there is none."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    said = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True)
    path = said.stdout.strip()
    return path if os.path.isabs(path) else None


def run_sanitized(folder: Path, files: tuple[str, ...], library: str, kinds: str, sed: str) -> None:
    """Run tests with a compiler `cc` first on PATH that edits C code and adds sanitizers."""
    wrapper = folder / "cc"
    added = f"-g -fsanitize={kinds} -fno-sanitize-recover=all"
    edit = f"for word; do case $word in *.c) sed -i '{sed}' \"$word\";; esac; done"
    wrapper.write_text(f'#!/bin/sh\n{edit}\nexec {shutil.which("gcc")} "$@" {added}\n')
    wrapper.chmod(0o755)
    environment = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "NNET3TOOLS_CACHE": str(folder / "cache"),
        "LD_PRELOAD": sanitizer(library) or "",
        "ASAN_OPTIONS": "detect_leaks=0",  # those of the interpreter
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0",  # a forked process starts a thread
        "NNET3_NUM_THREADS": "3",
    }
    run_pytest(files, environment)
    libraries = list((folder / "cache" / "kernels").glob("*.so"))
    assert all(re.search(b"__[at]san", library.read_bytes()) for library in libraries)
    assert libraries


@pytest.mark.skipif(sanitizer("libasan.so") is None, reason="there is no gcc with libasan")
@pytest.mark.parametrize("files", [KERNELS, SEARCHES], ids=["kernels", "searches"])
def test_c_code_runs_under_address_and_undefined_behaviour_sanitizers(tmp_path, files):
    run_sanitized(tmp_path, files, "libasan.so", "address,undefined", "")


@pytest.mark.skipif(sanitizer("libtsan.so") is None, reason="there is no gcc with libtsan")
@pytest.mark.parametrize("files", [KERNELS, SEARCHES], ids=["kernels", "searches"])
def test_threads_of_c_code_do_not_race(tmp_path, files):
    """All threads take parts of small jobs, too."""
    run_sanitized(
        tmp_path, files, "libtsan.so", "thread", "s/^#define NN_PART .*/#define NN_PART 1/"
    )

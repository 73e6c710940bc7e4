"""Compiled kernels of this process: loaded from disk, or made of all that were asked for so far.

Kernels are asked for while calls are bound, and made when the first of them is to run: all of a
program at once, in one file. The file's name is a digest of its source, the compiler and the
processor; whoever needs the same kernels finds it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from nnet3tools import __version__
from nnet3tools.io import log
from nnet3tools.tensor.native.cache import (
    cache_folder,
    is_trusted,
    is_whole,
    private_folder,
    publish,
)
from nnet3tools.tensor.native.compiler import Compiler, cpu_features, find_compiler
from nnet3tools.tensor.native.kernels import Kernel

__all__ = ["Library", "library", "load_files", "load_library"]


class Library:
    """The kernels of this process."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._wanted: dict[str, Kernel] = {}
        self._lock = threading.Lock()
        self._failed = False
        self.runner: Callable[[int, int, int], None] | None = None
        """nn_run of the first library."""
        self._loaded: list[ctypes.CDLL] = []

    def want(self, kernels: Iterable[Kernel]) -> None:
        """Have kernels among those of the next file, unless they are there."""
        with self._lock:
            for kernel in kernels:
                if kernel.name not in self._addresses:
                    self._wanted[kernel.name] = kernel

    def addresses(self, names: Sequence[str]) -> list[int] | None:
        """Where these kernels are in memory, made now if need be; None if that cannot be."""
        with self._lock:
            if self._wanted and any(name in self._wanted for name in names):
                self._make(list(self._wanted.values()))
                self._wanted.clear()
            found = [self._addresses.get(name) for name in names]
        return None if None in found else [a for a in found if a is not None]

    def _make(self, kernels: Sequence[Kernel]) -> None:
        if self._failed:
            return
        loaded = load_library(_source(kernels), f"{len(kernels)} kernels")
        if loaded is None:
            self._failed = True
            return
        self._loaded.append(loaded)
        for kernel in kernels:
            function = getattr(loaded, kernel.name)
            self._addresses[kernel.name] = int(ctypes.cast(function, ctypes.c_void_p).value or 0)
        if self.runner is None:
            run: Any = loaded.nn_run
            run.restype, run.argtypes = None, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
            self.runner = run


library = Library()
"""The one of this process."""


@functools.cache
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _source(kernels: Sequence[Kernel]) -> str:
    parts = [_text("prelude.h"), _text("runtime.h"), *(kernel.text for kernel in kernels)]
    return "\n".join(parts)


def load_library(source: str, what: str) -> ctypes.CDLL | None:
    """The library of a C source: the one that is kept, or a new one; None if there can be none.

    `what` it holds is told by `--verbose=2`.
    """
    compiler = find_compiler()
    return None if compiler is None else _load(compiler, source, what)


def load_files(folder: Path, names: Iterable[str], what: str) -> ctypes.CDLL | None:
    """The library of C files of a folder, with `growing.h` before them, as `load_library`."""
    files = [_text("growing.h"), *((folder / name).read_text(encoding="utf-8") for name in names)]
    return load_library("\n".join(files), what)


def _load(compiler: Compiler, source: str, what: str) -> ctypes.CDLL | None:
    facts = (source, compiler.identity, " ".join(compiler.flags), cpu_features(), __version__)
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:40] + ".so"
    folder, began = cache_folder(), time.thread_time()
    if folder is not None and (kept := folder / name).is_file():
        if is_trusted(kept) and is_whole(kept) and (loaded := _open(kept)) is not None:
            log.vlog(2, f"loaded {what} in {time.thread_time() - began:.4f} s")
            return loaded
    with private_folder() as work:
        (work / "kernels.c").write_text(source, encoding="utf-8")
        spent = os.times().children_user
        if not compiler.build(work / "kernels.c", work / name):
            return None
        log.vlog(2, f"compiled {what} in {os.times().children_user - spent:.3f} s")
        if folder is not None and (kept_now := publish(work / name, folder, name)) is not None:
            if (loaded := _open(kept_now)) is not None:
                return loaded
        return _open(work / name)


def _open(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        log.warning(f"no compiled kernels: {path}: {error}")
        return None

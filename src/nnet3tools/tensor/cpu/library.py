"""The compiled kernels of this process: loaded from the cache, or compiled together.

Binding a call asks for its kernels. When the first of them is to run, all kernels that were asked
for are compiled, in one file or two. The name of the library is a digest of its source, the
compiler and the processor, so other processes find it in the cache.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nnet3tools import __version__
from nnet3tools.digests import sha256
from nnet3tools.io import log
from nnet3tools.tensor.cpu.cache import cache_folder, open_kept, private_folder, publish
from nnet3tools.tensor.cpu.compiler import (
    cpu_features,
    failed,
    find_compiler,
    keeps_source,
    num_processors,
)
from nnet3tools.tensor.cpu.kernels import Kernel, read_source


class Library:
    """The compiled kernels of this process, and the kernels that are yet to be compiled."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}
        self._wanted: dict[str, Kernel] = {}
        self._lock = threading.Lock()
        self._failed = False
        self.runner: Callable[[int, int, int], None] | None = None
        """nn_run of the first library."""
        self._loaded: list[ctypes.CDLL] = []

    def want(self, kernels: Iterable[Kernel]) -> None:
        """Ask for kernels: unless they are loaded, the next compilation includes them."""
        with self._lock:
            for kernel in kernels:
                if kernel.name not in self._addresses:
                    self._wanted[kernel.name] = kernel

    def addresses(self, names: Sequence[str]) -> dict[str, int] | None:
        """The addresses of kernels by name, compiled now if necessary; None if that fails."""
        with self._lock:
            if self._wanted and any(name in self._wanted for name in names):
                self._make(list(self._wanted.values()))
                self._wanted.clear()
            found = {name: self._addresses[name] for name in names if name in self._addresses}
        return found if len(found) == len({*names}) else None

    def made(self, name: str) -> int | None:
        """The address of the compiled kernel `name`; None if it has not been compiled or loaded."""
        return self._addresses.get(name)

    def _make(self, kernels: Sequence[Kernel]) -> None:
        if self._failed:
            return
        parts = _parts(kernels)
        made = _load_at_once(parts)
        if any(loaded is None for loaded in made):
            self._failed = True
            return
        for part, loaded in zip(parts, made, strict=True):
            assert loaded is not None
            self._store_addresses(part, loaded)

    def _store_addresses(self, kernels: Sequence[Kernel], loaded: ctypes.CDLL) -> None:
        """Store the addresses of `kernels`, which the newly loaded library `loaded` contains."""
        self._loaded.append(loaded)
        for kernel in kernels:
            function = getattr(loaded, kernel.name)
            self._addresses[kernel.name] = int(ctypes.cast(function, ctypes.c_void_p).value or 0)
        if self.runner is None:
            run: Any = loaded.nn_run
            run.restype, run.argtypes = None, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
            self.runner = run


library = Library()
"""The library of this process."""


@functools.cache
def _text(name: str) -> str:
    return read_source(os.path.dirname(__file__), name)


def _source(kernels: Sequence[Kernel]) -> str:
    texts = dict.fromkeys(kernel.text for kernel in kernels)  # several may stand in one file
    return "\n".join([_text("prelude.h"), _text("runtime.h"), *texts])


_LARGE = 16_000
"""Characters of source from which two compilers run at the same time (0.2 s of work)."""


def _parts(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Kernels divided among source files: two of similar cost if they are large, else one."""
    if sum(len(kernel.text) for kernel in kernels) < _LARGE or num_processors() < 2:
        return [list(kernels)]
    ordered = sorted(kernels, key=lambda k: (-len(k.text), k.name))
    halves = ordered[::4] + ordered[3::4], ordered[1::4] + ordered[2::4]
    return [half for half in halves if half]


def _load_at_once(parts: Sequence[Sequence[Kernel]]) -> list[ctypes.CDLL | None]:
    """The loaded library of each part, or None on failure; a thread compiles each part."""
    made: list[ctypes.CDLL | None] = [None] * len(parts)

    def load(i: int) -> None:
        made[i] = load_library(_source(parts[i]), f"{len(parts[i])} kernels")

    others = [threading.Thread(target=load, args=(i,)) for i in range(1, len(parts))]
    for other in others:
        other.start()
    try:
        load(0)
    finally:
        for other in others:
            other.join()
    return made


def load_files(
    folder: str, names: Iterable[str], what: str, declarations: str = ""
) -> ctypes.CDLL | None:
    """The library of the C files `names`, from the cache or compiled now; None if that fails.

    The source is that of growing arrays (growing.h), then the C text `declarations`, then the
    files. Log lines call the library `what`.
    """
    files = (read_source(folder, name) for name in names)
    return load_library("\n".join([_text("growing.h"), declarations, *files]), what)


def load_library(source: str, what: str) -> ctypes.CDLL | None:
    """The library of a C source, cached or compiled now (`what` for logs); None if that fails."""
    if (compiler := find_compiler()) is None:
        return None
    facts = (source, _MARK, compiler.identity, *compiler.flags, cpu_features(), __version__)
    name = sha256("\0".join(facts).encode()).hexdigest()[:40]
    folder, began = cache_folder(), time.thread_time()
    kept = None if folder is None else f"{folder}/{name}.so"
    if kept is not None and (loaded := _open_kept(kept)) is not None:
        log.vlog(2, f"loaded {what} in {time.thread_time() - began:.4f} s")
        if keeps_source():
            log.log(f"source of {what}: {kept.removesuffix('so')}c")
        return loaded
    try:
        with private_folder() as temporary:
            path = _kept_source(name, folder) if keeps_source() else f"{temporary}/kernels.c"
            with open(path, "w", encoding="utf-8") as file:
                file.write(f'{source}\nconst char {_MARK}[] = "{name}";\n')
            began = time.perf_counter()
            if not compiler.build(path, made := f"{temporary}/{name}.so"):
                return None
            log.vlog(2, f"compiled {what} in {time.perf_counter() - began:.3f} s")
            if keeps_source():
                log.log(f"source of {what}: {path}")
            if kept is not None:
                with open(made, "rb") as library_file:
                    published = publish(library_file.read(), kept)
                if published and (loaded := _open_kept(kept)) is not None:
                    return loaded
            return _open(made, made)
    except OSError as error:  # such as a full temporary folder
        failed(f"{error.filename or 'the temporary folder'}: {error.strerror or error}")
        return None


def _kept_source(name: str, folder: str | None) -> str:
    """The path for a library's kept source: in `folder`, or in a new folder if that is None."""
    if folder is None:
        import tempfile

        folder = tempfile.mkdtemp(prefix="nnet3-source-")
    return f"{folder}/{name}.c"


def _open_kept(path: str) -> ctypes.CDLL | None:
    """Load the library `path` of the cache after checking its open file; None if it is unfit."""
    if (kept := open_kept(path)) is None:
        return None
    descriptor = kept[0]
    try:
        name = f"/proc/self/fd{'/' * next(_names)}{descriptor}"
        return _open(name if os.path.exists(name) and not keeps_source() else path, path)
    finally:
        os.close(descriptor)


_names = itertools.count(1)
"""Numbers that make each name in /proc another text: dlopen returns an earlier library of a name.
A debugger needs the true name."""

_MARK = "nn_made_from"
"""The C variable with the digest of its source that ends each library."""


def _open(name: str, path: str) -> ctypes.CDLL | None:
    """Load library `path` by an alias `name`; None, with a warning, on errors or another source."""
    try:
        loaded, stem = ctypes.CDLL(name), os.path.splitext(os.path.basename(path))[0]
        mark = (ctypes.c_char * (len(stem) + 1)).in_dll(loaded, _MARK)
        if mark.value.decode("latin-1") == stem:
            return loaded
        reason = "was made from another source"
    except (OSError, ValueError) as error:
        reason = str(error)
    failed(f"{path}: {reason}")
    return None

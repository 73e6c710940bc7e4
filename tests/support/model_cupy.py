"""CuPy as the CUDA backend uses it, on a GPU made of the host.

`install(monkeypatch)` puts the module in CuPy's place. Its arrays are host memory that NumPy's
maths refuses, as it does CuPy's; its kernels are CUDA sources compiled by g++ (emulator.cc), its
cuBLAS is NumPy's product behind cuBLAS's own functions (model_blas.py); streams, captures and pools
are those of model_streams.py and model_memory.py. `load_cuda()` gives the backend's real cuda.py on
top of it.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nnet3tools.tensor import cuda
from nnet3tools.tensor.cuda.device import PRELUDE
from support.model_blas import ModelCublas
from support.model_memory import (
    CUDADriverError,
    CUDARuntimeError,
    MemoryPointer,
    OutOfMemoryError,
    Pool,
    as_array,
    is_memory,
)
from support.model_streams import Event, Launch, Stream, get_machine

HERE = Path(__file__).parent
GXX = shutil.which("g++")
NONSENSE = 0x7F
"""Each byte of undefined memory: a huge float32."""
_MOST_POISONED = 16 << 20
"""Bytes; more, as cuBLAS's workspace has, would take long."""


# -- arrays


class ndarray(np.ndarray):
    """Host memory that passes for a CuPy array."""

    __array_ufunc__ = None  # type: ignore[assignment]

    @property
    def data(self) -> Any:  # type: ignore[override]
        return SimpleNamespace(ptr=self.__array_interface__["data"][0])

    def get(self) -> np.ndarray:
        """A copy on the host, which waits for the current stream."""
        machine = get_machine()
        stream = machine.current_stream()
        if stream.is_capturing():
            raise RuntimeError("the current stream is capturing, so D2H transfers are disallowed")
        machine.downloads += 1
        if not self.flags.c_contiguous:
            with stream:  # CuPy makes a copy without gaps first
                pass
        stream.synchronize()
        return np.array(self.view(np.ndarray))

    def fill(self, value: Any) -> None:
        """In its turn."""
        raw = self.view(np.ndarray)
        get_machine().current_stream().do("fill", lambda: raw.fill(value))

    def copy(self, order: Any = "C") -> ndarray:  # type: ignore[override]
        """In its turn."""
        made, raw = empty(self.shape, self.dtype), self.view(np.ndarray)
        to = made.view(np.ndarray)
        get_machine().current_stream().do("copy", lambda: np.copyto(to, raw))
        return made

    def __setitem__(self, key: Any, value: Any) -> None:
        raw, given = self.view(np.ndarray), np.asarray(value)
        get_machine().current_stream().do("set", lambda: raw.__setitem__(key, given))

    def _number(self) -> Any:
        return self.get().item()

    def item(self, *args: Any) -> Any:
        """A number on the host."""
        return self.get().item(*args)

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __bool__(self) -> bool:
        return bool(self._number())


ndarray.__module__ = "cupy"


def empty(shape: Any, dtype: Any = np.float32) -> ndarray:
    """Memory of the allocator in use; nonsense from the stream's next turn on."""
    dtype = np.dtype(dtype)
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    num_bytes = math.prod(int(n) for n in shape) * dtype.itemsize
    if num_bytes == 0:
        return np.empty(shape, dtype).view(ndarray)
    machine = get_machine()
    flat = as_array(machine.malloc(num_bytes), num_bytes)
    if machine.runs and num_bytes <= _MOST_POISONED:
        # not the array, which would be kept for as long as a graph is
        at = flat.__array_interface__["data"][0]
        machine.current_stream().do("", lambda: _set(at, NONSENSE, num_bytes))
    return flat.view(dtype).reshape(shape).view(ndarray)


def zeros(shape: Any, dtype: Any = np.float32) -> ndarray:
    """Made so by the current stream."""
    made = empty(shape, dtype)
    at, num_bytes = made.data.ptr, made.nbytes
    if num_bytes:
        get_machine().current_stream().do("memset", lambda: _set(at, 0, num_bytes))
    return made


def asarray(host: Any, dtype: Any = None, blocking: bool = False) -> ndarray:
    """A copy through pinned memory, in the current stream's turn."""
    if type(host) is ndarray and dtype in (None, host.dtype):
        return host
    machine = get_machine()
    stream = machine.current_stream()
    if stream.is_capturing():
        raise RuntimeError("the current stream is capturing, so H2D transfers are disallowed")
    pinned = np.array(host, dtype=dtype, order="C")
    made = empty(pinned.shape, pinned.dtype)
    machine.uploads += 1
    at = made.data.ptr
    if pinned.nbytes:
        stream.do("", lambda: _copy_to(at, pinned), is_upload=True)
    if blocking:
        stream.synchronize()
    return made


def _set(at: int, value: int, num_bytes: int) -> None:
    assert is_memory(at, at + num_bytes), "an illegal address"
    ctypes.memset(at, value, num_bytes)


def _copy_to(at: int, host: np.ndarray) -> None:
    assert is_memory(at, at + host.nbytes), "an illegal address"
    ctypes.memmove(at, host.ctypes.data, host.nbytes)


def as_strided(array: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    """A view."""
    return np.lib.stride_tricks.as_strided(array, shape, strides, subok=True)


def memcpy_async(dest: int, source: int, num_bytes: int, kind: int, stream: int) -> None:
    """From pinned memory, which must not be written to before it is done."""
    machine = get_machine()
    assert kind == 1, "only copies to the device are modelled"
    machine.uploads += 1
    begun = ctypes.string_at(source, num_bytes)

    def copy() -> None:
        assert ctypes.string_at(source, num_bytes) == begun, "pinned memory changed before its copy"
        assert is_memory(dest, dest + num_bytes)
        ctypes.memmove(dest, source, num_bytes)

    found = next(s for s in machine.streams if s.ptr == stream)
    found.do("memcpy", copy, is_upload=True)


# -- kernels


def _cache() -> Path:
    folder = Path(tempfile.gettempdir()) / f"nnet3tools-emulated-kernels-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


def compile_shared(source: str, *options: str) -> str:
    """Path of the shared library of a C++ source, compiled unless the cache has it."""
    digest = hashlib.sha1("\0".join([source, *options]).encode()).hexdigest()
    target = _cache() / f"{digest}.so"
    if not target.exists():
        part = target.with_suffix(f".{os.getpid()}")
        command = [str(GXX), "-xc++", "-", "-shared", "-fPIC", "-std=c++17", "-w", *options]
        done = subprocess.run(
            [*command, "-o", str(part)], input=source, text=True, capture_output=True
        )
        if done.returncode != 0:
            raise AssertionError(f"{source}\n{done.stderr}")
        os.replace(part, target)
    return str(target)


@functools.cache
def _runtime() -> ctypes.CDLL:
    path = compile_shared((HERE / "emulator.cc").read_text(), "-O1", "-U_FORTIFY_SOURCE")
    library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    library.nn_launch.restype = ctypes.c_char_p
    return library


_POISON = f"""
extern "C" {{
extern char __start_nnshared[] __attribute__((visibility("hidden")));
extern char __stop_nnshared[] __attribute__((visibility("hidden")));
void nn_poison() {{
  __builtin_memset(__start_nnshared, {NONSENSE}, __stop_nnshared - __start_nnshared);
}}
}}
"""
_DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\[\];")


rewrite: list[Callable[[str], str]] = []
"""What is done to sources before they are compiled, the prelude included: tests of the tests."""


def _compiled(source: str, name: str) -> Any:
    """Library, address of a function that takes an array of pointers to arguments, their types."""
    prelude = PRELUDE
    for change in rewrite:
        prelude, source = change(prelude), change(source)
    return _loaded(prelude, source, name)


@functools.cache
def _loaded(prelude: str, source: str, name: str) -> Any:
    found = re.search(rf"void\s+{name}\((.*?)\)", source, re.S)
    assert found is not None, f"no kernel {name} in\n{source}"
    kinds = [" ".join(p.split()[:-1]).replace("const ", "") for p in found.group(1).split(",")]
    call = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))
    wrapper = f'extern "C" void run_{name}(void** a) {{ {name}({call}); }}\n'
    source = _DYNAMIC.sub(r"\1* \2 = (\1*)nn_dynamic_shared;", source)
    if "__shared__" in source:
        wrapper += _POISON
    text = (HERE / "emulator.h").read_text() + prelude + source + wrapper
    _runtime()
    library = ctypes.CDLL(compile_shared(text, "-O0"))
    return library, ctypes.cast(getattr(library, f"run_{name}"), ctypes.c_void_p), kinds


_BARRIERS = re.compile("__sync|__shfl|nn_warp|nn_block|nn_columns|nn_is_last")
"""Names that occur in kernels whose threads wait for each other."""
_DTYPES = {
    "long long": np.int64, "int": np.int32, "unsigned": np.uint32, "float": np.float32,
    "double": np.float64, "bool": np.bool_, "unsigned long long": np.uint64,
    "short": np.int16,
}  # fmt: skip
_STATIC_SHARED, _MOST_SHARED = 48 << 10, 227 << 10


def spilled(code: str) -> int:
    """Bytes of values that a kernel keeps in memory for want of registers: tests say how many."""
    return 0


class RawKernel:
    """A kernel of a CUDA source."""

    def __init__(self, code: str, name: str, options: tuple[str, ...] = ()) -> None:
        assert code.count(PRELUDE) == 1
        self.name, self._source = name, code.replace(PRELUDE, "")
        self._source = self._source.replace("#include <cuda_fp16.h>\n", "")
        self._is_loaded = False
        self.local_size_bytes = spilled(code)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Of the function, which all kernels of this source share, as they do in CuPy."""
        return get_machine().shared_limits.get((self._source, self.name), _STATIC_SHARED)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value: int) -> None:
        assert value <= _MOST_SHARED
        get_machine().shared_limits[self._source, self.name] = value

    def compile(self, log_stream: Any = None) -> None:
        """Compile and load, which waits for the device."""
        machine = get_machine()
        assert not machine.captures, "a kernel was loaded during a capture"
        machine.take_driver_memory("module", CUDADriverError)
        self._is_loaded = True
        if not machine.runs:
            return
        self._library, self._address, self._kinds = _compiled(self._source, self.name)
        self._fibers = int(_BARRIERS.search(self._source) is not None)
        self._poison = getattr(self._library, "nn_poison", None)

    def __call__(self, grid: Any, block: Any, args: Sequence[Any], *, shared_mem: int = 0) -> None:
        machine = get_machine()
        if not self._is_loaded:
            self.compile()
        assert max(grid[1:]) <= 65535
        assert min(grid) > 0
        assert np.prod(block) <= 1024
        assert shared_mem <= self.max_dynamic_shared_size_bytes, self.name
        machine.take_driver_memory("kernel", CUDADriverError)
        launch = Launch(self.name, tuple(grid), tuple(block), tuple(args))
        if not machine.runs:
            machine.current_stream().do(launch, lambda: None)
            return
        self._check(args)
        holders = [np.array(value) for value in args]
        pointers = (ctypes.c_void_p * len(args))(*[h.ctypes.data for h in holders])
        three = ctypes.c_uint * 3

        def work() -> None:
            problem = _runtime().nn_launch(
                self._address, pointers, three(*grid), three(*block), self._fibers,
                int(machine.schedule), self._poison, ctypes.c_size_t(shared_mem),
            )  # fmt: skip
            holders  # noqa: B018
            assert problem is None, f"{self.name}: {problem.decode()}\n{self._source}"

        machine.current_stream().do(launch, work)

    def _check(self, args: Sequence[Any]) -> None:
        assert len(args) == len(self._kinds), (self.name, self._kinds, args)
        for kind, value in zip(self._kinds, args, strict=True):
            if (words := re.search(r"nn_Words<(\d+)>", kind)) is not None:  # as CuPy takes it
                assert (type(value), value.size) == (np.ndarray, 1), (self.name, kind, value)
                assert value.nbytes == 8 * int(words[1]) <= 4096, (self.name, kind, value.nbytes)
                continue
            wanted = np.uint64 if kind.endswith("*") else _DTYPES[kind]
            assert value.dtype == wanted, (self.name, kind, value.dtype)


# -- the module


class Device:
    """One of several. The end of a `with` block sets the device before it (CuPy's device.pyx)."""

    compute_capability = "90"

    def __init__(self, number: int | None = None) -> None:
        self.id = get_machine().tls.device if number is None else number

    @property
    def attributes(self) -> dict[str, int]:
        return {
            "MultiProcessorCount": get_machine().processors,
            "MaxSharedMemoryPerBlockOptin": _MOST_SHARED,
        }

    def use(self) -> None:
        """By this thread."""
        get_machine().set_device(self.id)

    def __enter__(self) -> Device:
        self._before = get_machine().tls.device
        if self._before != self.id:
            self.use()
        return self

    def __exit__(self, *_: object) -> None:
        get_machine().set_device(self._before)


def _memory_info() -> tuple[int, int]:
    memory = get_machine().memory
    return memory.total - memory.used, memory.total


def _pinned(num_bytes: int) -> np.ndarray:
    return np.full(num_bytes, NONSENSE, np.uint8)


def make_module() -> types.ModuleType:
    """The module `cupy`."""
    module: Any = types.ModuleType("cupy")
    module.ndarray, module.empty, module.zeros, module.asarray = ndarray, empty, zeros, asarray
    module.array = lambda host, dtype=None: asarray(np.array(host, dtype=dtype))
    module.RawKernel = RawKernel
    module.uint8, module.float32, module.float64 = np.uint8, np.float32, np.float64
    module.get_default_memory_pool = lambda: get_machine().default_pool
    module.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=as_strided))
    runtime = SimpleNamespace(
        runtimeGetVersion=lambda: 12090,
        memGetInfo=_memory_info,
        memcpyAsync=memcpy_async,
        memcpyHostToDevice=1,
        CUDARuntimeError=CUDARuntimeError,
        getDeviceProperties=lambda number: {"name": b"model"},
    )
    module.cuda = SimpleNamespace(
        Device=Device,
        Stream=Stream,
        Event=Event,
        MemoryPool=Pool,
        MemoryPointer=MemoryPointer,
        using_allocator=lambda malloc: get_machine().allocator(malloc),
        get_current_stream=lambda: get_machine().current_stream(),
        alloc_pinned_memory=_pinned,
        runtime=runtime,
        driver=SimpleNamespace(CUDADriverError=CUDADriverError),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    )
    return module


_module = make_module()


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `import cupy` find the model."""
    monkeypatch.setitem(sys.modules, "cupy", _module)


@functools.cache
def load_cuda() -> Any:
    """The backend's cuda.py, by a name of its own, on the model and on `load_cublas()`."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(sys.modules, f"{cuda.__name__}.cublas", load_cublas())
        return _load("cuda")


@functools.cache
def load_cublas() -> Any:
    """The backend's cublas.py, the same way."""
    loaded = _load("cublas")
    loaded.load_cublas = ModelCublas
    return loaded


def _load(name: str) -> Any:
    path = Path(cuda.__file__).parent / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_on_the_model", path)
    assert spec is not None
    assert spec.loader is not None
    loaded: Any = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as monkeypatch:
        install(monkeypatch)
        spec.loader.exec_module(loaded)
    return loaded

"""A CUDA device made of the host: kernels are compiled by g++ and their grids run one by one.

`emulated_cupy(monkeypatch)` puts a small module in the place of CuPy whose arrays the CuPy backend
takes for its own, and the device that runs its kernels. NumPy's maths refuses such arrays, as it
does CuPy's.

With NNET3TOOLS_GPU_TESTS=1 the tests run on a real device instead; transfers are not counted then.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnet3tools.tensor.cupy_backend import device as device_module
from nnet3tools.tensor.cupy_backend.device import PRELUDE
from nnet3tools.tensor.precision import are_precise
from nnet3tools.tensor.recording import NotCapturable

HERE = Path(__file__).parent
GXX = shutil.which("g++")
REAL = os.environ.get("NNET3TOOLS_GPU_TESTS", "0") not in ("", "0")
counts_transfers = pytest.mark.skipif(REAL, reason="only the emulated device counts transfers")
"""Whether to test a real device."""
needs_compiler = pytest.mark.skipif(GXX is None, reason="g++ is not installed")


def get_devices() -> list[Any]:
    """The emulated devices in use."""
    return [d for d in device_module._current if isinstance(d, EmulatedDevice)]


class _Pointer:
    def __init__(self, address: int) -> None:
        self.ptr = address


class ndarray(np.ndarray):
    """Host memory that passes for a CuPy array."""

    __array_ufunc__ = None  # type: ignore[assignment]

    @property
    def data(self) -> Any:  # type: ignore[override]
        return _Pointer(self.__array_interface__["data"][0])

    def get(self) -> np.ndarray:
        if get_devices():
            device = get_devices()[-1]
            assert device._recording is None, "the host looks at the device during a capture"
            device.downloads += 1
        return np.array(self.view(np.ndarray))


ndarray.__module__ = "cupy"


def to_device(host: Any, dtype: Any = None) -> Any:
    """A copy of a host array, counted as an upload."""
    if REAL:
        import cupy

        return cupy.array(np.array(host, dtype=dtype))
    for device in get_devices()[-1:]:
        assert device._recording is None, "the host sends to the device during a capture"
        device.uploads += 1
    return np.array(host, dtype=dtype).view(ndarray)


def _module() -> types.ModuleType:
    module: Any = types.ModuleType("cupy")
    module.ndarray = ndarray
    # fresh memory holds nonsense, as a GPU's does
    module.empty = lambda shape, dtype=np.float32: _nonsense(shape, dtype)
    module.zeros = _zeros
    module.asarray = lambda a, dtype=None: (
        a if type(a) is ndarray and dtype in (None, a.dtype) else to_device(a, dtype)
    )
    return module


def _nonsense(shape: Any, dtype: Any) -> Any:
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8)[...] = 0x7F  # a huge float32
    for device in get_devices()[-1:]:
        device.keep_if_recording(made)
    return made.view(ndarray)


def _zeros(shape: Any, dtype: Any = np.float32) -> Any:
    made = _nonsense(shape, dtype)
    for device in get_devices()[-1:]:
        device._do(lambda: made.view(np.ndarray).fill(0))
    return made if get_devices() else np.zeros(shape, dtype).view(ndarray)


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
    source = (HERE / "emulator.cc").read_text()
    path = compile_shared(source, "-O1")
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)


@functools.cache
def _compiled(source: str, name: str) -> Any:
    """Address of a function that takes an array of pointers to arguments."""
    found = re.search(rf"void\s+{name}\((.*?)\)", source, re.S)
    assert found is not None, f"no kernel {name} in\n{source}"
    kinds = [" ".join(p.split()[:-1]).replace("const ", "") for p in found.group(1).split(",")]
    call = ", ".join(f"*({kind}*)a[{i}]" for i, kind in enumerate(kinds))
    wrapper = f'extern "C" void run_{name}(void** a) {{ {name}({call}); }}\n'
    text = (HERE / "emulator.h").read_text() + PRELUDE + source + wrapper
    _runtime()
    library = ctypes.CDLL(compile_shared(text, "-O0"))
    return library, ctypes.cast(getattr(library, f"run_{name}"), ctypes.c_void_p), kinds


_DTYPES = {
    "long long": np.int64, "int": np.int32, "unsigned": np.uint32, "float": np.float32,
    "double": np.float64, "bool": np.bool_, "unsigned long long": np.uint64,
    "short": np.int16,
}  # fmt: skip


class _LateCopy:
    """A copy from pinned memory, which must not be written to before it is done."""

    def __init__(self, dest: Any, source: np.ndarray) -> None:
        self.dest, self.source, self.begun = dest.view(np.ndarray), source, source.copy()
        self.dest[...] = 0x7F  # whoever looks too early shall see it

    def __call__(self) -> None:
        assert (self.source == self.begun).all(), "pinned memory was written to before its copy"
        self.dest[...] = self.source


class _Event:
    def __init__(self, work: Callable[[], None] | None) -> None:
        self._work = work

    @property
    def done(self) -> bool:
        return self._work is None

    def synchronize(self) -> None:
        work, self._work = self._work, None
        if work is not None:
            work()


_BARRIERS = re.compile("__sync|__shfl|nn_warp|nn_block|nn_columns|nn_is_last")
"""Names that occur in kernels whose threads wait for each other."""


class EmulatedDevice:
    """Runs what the backend launches, on the host; counts launches and transfers."""

    num_processors = 2

    def __init__(self) -> None:
        self.launched: list[str] = []
        self.sources: dict[str, str] = {}
        self.downloads = self.uploads = 0
        self.captures = self.kernels_of_graphs = 0
        self.uploads_for_graphs = 0
        """Uploads during captures: tables that the graphs' kernels look at."""
        self._kept: list[np.ndarray] = []
        self.half_products = False
        """Whether factors of products are rounded to half precision, as --gpu-math=fp16 does."""
        self._recording: list[Callable[[], None]] | None = None

    def kernel(self, source: str, name: str) -> Any:
        if self._recording is not None and name not in self.sources:
            raise NotCapturable  # as for loading one
        self.sources[name] = source
        _, address, kinds = _compiled(source, name)
        fibers = int(
            re.search("__sync|__shfl|nn_warp|nn_block|nn_columns|nn_is_last", source) is not None
        )

        def launch(grid: Any, block: Any, args: Sequence[Any]) -> None:
            assert len(args) == len(kinds), (name, kinds, args)
            for kind, value in zip(kinds, args, strict=True):
                wanted = np.uint64 if kind.endswith("*") else _DTYPES[kind]
                assert value.dtype == wanted, (name, kind, value.dtype)
            assert max(grid[1:]) <= 65535
            assert np.prod(block) <= 1024
            holders = [np.array(value) for value in args]
            pointers = (ctypes.c_void_p * len(args))(*[h.ctypes.data for h in holders])
            three = ctypes.c_uint * 3

            def work() -> None:
                self.launched.append(name)
                _runtime().nn_launch(address, pointers, three(*grid), three(*block), fibers)
                holders  # noqa: B018

            self._do(work)

        return launch

    def keep_if_recording(self, array: np.ndarray) -> None:
        """As the pool of a real device does with memory that a captured graph points to."""
        if self._recording is not None:
            self._kept.append(array)

    def _do(self, work: Callable[[], None]) -> None:
        if self._recording is None:
            work()
        else:
            self._recording.append(work)

    def gemm(
        self, dtype, rows, cols, inner, batch, a, lda, trans_a, stride_a, b, ldb, trans_b,
        stride_b, c, ldc, stride_c, alpha, beta,
    ) -> Callable[[], None]:  # fmt: skip
        def view(address: int, shape: tuple[int, int], pitch: int, step: int) -> np.ndarray:
            size = (batch - 1) * step + (shape[0] - 1) * pitch + shape[1]
            kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
            flat = np.ctypeslib.as_array((kind * size).from_address(address))
            item = flat.itemsize
            return np.lib.stride_tricks.as_strided(
                flat, (batch, *shape), (step * item, pitch * item, item)
            )

        assert isinstance(alpha, float) or (alpha.dtype == dtype and alpha.shape == (1,))
        assert lda >= (rows if trans_a else inner)
        assert ldb >= (inner if trans_b else cols)
        assert ldc >= cols
        left = view(a, (inner, rows) if trans_a else (rows, inner), lda, stride_a)
        right = view(b, (cols, inner) if trans_b else (inner, cols), ldb, stride_b)
        out = view(c, (rows, cols), ldc, stride_c)

        rounded = self.half_products and dtype == np.float32 and not are_precise()

        def half(matrix: np.ndarray) -> np.ndarray:
            if not rounded:
                return matrix
            with np.errstate(over="ignore"):
                return matrix.astype(np.float16).astype(np.float32)

        def work() -> None:
            self.launched.append("gemm")
            x, y = half(left), half(right)
            x = x.swapaxes(1, 2) if trans_a else x
            y = y.swapaxes(1, 2) if trans_b else y
            factor = float(alpha.view(np.ndarray)[0]) if isinstance(alpha, ndarray) else alpha
            with np.errstate(all="ignore"):
                value = dtype.type(factor) * (x @ y)
                out[...] = value if beta == 0.0 else value + dtype.type(beta) * out

        return lambda: self._do(work)

    def empty(self, shape: Any, dtype: Any) -> Any:
        return _nonsense(shape, dtype)

    def upload(self, host: np.ndarray) -> Any:
        self.uploads += 1
        self.uploads_for_graphs += self._recording is not None
        made = np.array(host)
        self.keep_if_recording(made)
        return made.view(ndarray)

    def pinned(self, num_bytes: int) -> np.ndarray:
        return np.full(num_bytes, 0x7F, np.uint8)

    def copy_from_pinned(self, dest: Any, source: np.ndarray, after: Any) -> Any:
        """The copy is done as late as it may be: when somebody waits for it."""
        assert dest.dtype == source.dtype == np.uint8
        assert after.done
        self.uploads += 1
        return _Event(_LateCopy(dest, source))

    def record(self) -> Any:
        return _Event(None)

    def wait(self, event: Any) -> None:
        assert self._recording is None
        event.synchronize()

    def strided(self, array: Any, shape: Any, strides: Any) -> Any:
        return np.lib.stride_tricks.as_strided(array, shape, strides, subok=True)

    def memory(self) -> tuple[int, int]:
        return 1 << 20, 1 << 30

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        recorded: list[Callable[[], None]] = []
        self.captures += 1
        self._recording = recorded
        try:
            work()
        finally:
            self._recording = None

        def replay() -> None:
            self.launched.append("graph")
            self.kernels_of_graphs += len(recorded)
            for one in recorded:
                one()

        return replay


class RealDevice:
    """The device of this machine, with a list of what is launched."""

    def __init__(self) -> None:
        from nnet3tools.tensor.cupy_backend.cuda import CudaDevice

        self._device: Any = CudaDevice()
        self.launched: list[str] = []
        self.sources: dict[str, str] = {}
        self.downloads = self.uploads = 0
        self.half_products = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def _noted(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        def noted(*args: Any) -> None:
            self.launched.append(name)
            run(*args)

        return noted

    def kernel(self, source: str, name: str) -> Any:
        self.sources[name] = source
        return self._noted(name, self._device.kernel(source, name))

    def gemm(self, *args: Any) -> Any:
        return self._noted("gemm", self._device.gemm(*args))

    def capture(self, work: Callable[[], None]) -> Any:
        return self._noted("graph", self._device.capture(work))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that the CuPy backend uses for the length of a test."""
    from nnet3tools.tensor.cupy_backend.device import use_device

    if REAL:
        with use_device(RealDevice()) as real:  # type: ignore[arg-type]
            yield real
        return
    monkeypatch.setitem(sys.modules, "cupy", _module())
    made = EmulatedDevice()
    with use_device(made):
        yield made


def mirror(array: Any) -> Any:
    """The same array on the device, strides included; lists and tuples of arrays too."""
    if isinstance(array, (list, tuple)):
        return [mirror(a) for a in array]
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        return array
    whole, base = array, array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    start = base.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    copied = np.array(whole, order="K").reshape(-1, order="A").view(np.uint8)
    flat = copied[start : len(copied)]
    if REAL:
        import cupy

        typed = cupy.array(flat[: len(flat) // array.itemsize * array.itemsize].view(array.dtype))
        return cupy.lib.stride_tricks.as_strided(typed, array.shape, array.strides)
    return np.lib.stride_tricks.as_strided(
        flat[: len(flat) // array.itemsize * array.itemsize].view(array.dtype),
        array.shape, array.strides,
    ).view(ndarray)  # fmt: skip


def fetch(array: Any) -> Any:
    """Back on the host: arrays, lists of them, numbers; not counted as a download."""
    if isinstance(array, (list, tuple)):
        return [fetch(a) for a in array]
    if REAL:
        return array.get() if hasattr(array, "get") else array
    return np.array(array.view(np.ndarray)) if isinstance(array, ndarray) else array

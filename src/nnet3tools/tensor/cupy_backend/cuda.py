"""The real device: CuPy's modules, memory and streams, and cuBLAS.

CuPy keeps compiled kernels on disk (CUPY_CACHE_DIR, default ~/.cupy/kernel_cache), named after a
hash of source, options, compiler and device, each written to a temporary file and renamed: several
processes may share it. cuBLAS is called directly, as CuPy's wrappers refuse to be captured.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np

from nnet3tools.errors import OptionError, ProgramError
from nnet3tools.tensor.aside import begun
from nnet3tools.tensor.cupy_backend.device import PRELUDE, Array, Gemm, Kernel
from nnet3tools.tensor.cupy_backend.indexes import kept_copies
from nnet3tools.tensor.cupy_backend.pools import SharedLimit
from nnet3tools.tensor.cupy_backend.wave_source import in_registers
from nnet3tools.tensor.precision import are_precise
from nnet3tools.tensor.recording import NotCapturable

__all__ = ["CudaDevice", "set_math_mode"]

_BRANCHES = 2
"""Streams besides the main one, for what a graph may do side by side."""
_WORKSPACE_BYTES = 32 << 20
"""What cuBLAS asks for on the newest devices; its own, so that captured products stay valid."""

_COMPUTE_TYPES = {"fp32": 68, "tf32": 77, "fp16": 74, "bf16": 75}
"""--gpu-math -> cublasComputeType_t; storage and accumulation are float32 in all of them."""
_COMPUTE_64F = 70
_CUDA_R = {"float32": 0, "float64": 1}
_FIRST_OF_FAST_MATH = 8
"""Compute capability (major) that tf32 and bf16 products need."""

_COMPILERS = 8
"""Threads that compile kernels."""

_math_mode = "fp32"


def set_math_mode(name: str) -> None:
    """How float32 products are done from here on: fp32, tf32, fp16 or bf16."""
    global _math_mode
    if name not in _COMPUTE_TYPES:
        raise OptionError(f"--gpu-math={name}: expected {'|'.join(_COMPUTE_TYPES)}")
    major = _capability()
    if name in ("tf32", "bf16") and major < _FIRST_OF_FAST_MATH:
        raise OptionError(f"--gpu-math={name}: this device has compute capability {major}.x")
    _math_mode = name


def _compute_type(dtype: np.dtype) -> int:
    if dtype != np.float32:
        return _COMPUTE_64F
    if _math_mode in ("fp16", "bf16") and are_precise():
        return _COMPUTE_TYPES["tf32" if _capability() >= _FIRST_OF_FAST_MATH else "fp32"]
    return _COMPUTE_TYPES[_math_mode]


def _capability() -> int:
    """The major part of the device's compute capability."""
    return int(cupy.cuda.Device().compute_capability[:-1])


def load_cublas() -> Any:
    """CuPy's cuBLAS, from wherever CuPy has it."""
    from cupy_backends.cuda.libs import cublas  # noqa: F401 (loads the shared library)

    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"libcublas.so.{major}")


class _Cublas:
    """A handle of our own: stream and workspace fixed."""

    def __init__(self, stream: int, upload: Callable[[np.ndarray], Array]) -> None:
        self._upload = upload
        self._betas: dict[tuple[np.dtype, float], Array] = {}
        self._library = load_cublas()
        self._handle = ctypes.c_void_p()
        self._check(self._library.cublasCreate_v2(ctypes.byref(self._handle)))
        self._workspaces: dict[int, Array] = {}
        self.use(stream)

    def use(self, stream: int) -> None:
        """Give products to a stream; each has a workspace, as they may run side by side.

        All are of one size, which cuBLAS's choice of a kernel, and so its rounding, depends on.
        """
        if stream not in self._workspaces:
            self._workspaces[stream] = cupy.empty(_WORKSPACE_BYTES, cupy.uint8)
        library, workspace = self._library, self._workspaces[stream]
        self._check(library.cublasSetStream_v2(self._handle, ctypes.c_void_p(stream)))
        # a new stream brings cuBLAS's own workspace back
        self._check(
            library.cublasSetWorkspace_v2(
                self._handle,
                ctypes.c_void_p(workspace.data.ptr),
                ctypes.c_size_t(_WORKSPACE_BYTES),
            )
        )

    @staticmethod
    def _check(status: int) -> None:
        if status != 0:
            raise ProgramError(f"cuBLAS returned status {status}")

    def bind(
        self, dtype: np.dtype, rows: int, cols: int, inner: int, batch: int,
        a: int, lda: int, trans_a: bool, stride_a: int,
        b: int, ldb: int, trans_b: bool, stride_b: int,
        c: int, ldc: int, stride_c: int, alpha: Any, beta: float,
    ) -> Gemm:  # fmt: skip
        """Row-major C = op(A) op(B) is column-major C' = op(B)' op(A)'."""
        on_device = not isinstance(alpha, float)
        factors = self._factors(dtype, alpha, beta)
        kind, integer, pointer = _CUDA_R[dtype.name], ctypes.c_int, ctypes.c_void_p
        long = ctypes.c_longlong
        args: tuple[Any, ...] = (
            self._handle, integer(int(trans_b)), integer(int(trans_a)),
            integer(cols), integer(rows), integer(inner),
            factors[0], pointer(b), integer(kind), integer(ldb), long(stride_b),
            pointer(a), integer(kind), integer(lda), long(stride_a),
            factors[1], pointer(c), integer(kind), integer(ldc), long(stride_c),
            integer(batch),
            integer(_compute_type(dtype)),
            integer(-1),
        )  # fmt: skip
        function = self._library.cublasGemmStridedBatchedEx
        if batch == 1:
            function = self._library.cublasGemmEx
            args = tuple(x for i, x in enumerate(args) if i not in (10, 14, 19, 20))
        check, keep, set_mode = self._check, alpha, self._library.cublasSetPointerMode_v2

        def run() -> None:
            check(function(*args))

        def run_with_device_factors() -> None:
            check(set_mode(self._handle, 1))
            check(function(*args))
            check(set_mode(self._handle, 0))
            keep  # noqa: B018

        return run_with_device_factors if on_device else run

    def _factors(self, dtype: np.dtype, alpha: Any, beta: float) -> tuple[Any, Any]:
        """Both factors on the host, or both on the device, as cuBLAS wants them."""
        if isinstance(alpha, float):
            scalar = ctypes.c_float if dtype == np.float32 else ctypes.c_double
            return ctypes.byref(scalar(alpha)), ctypes.byref(scalar(beta))
        if (key := (dtype, beta)) not in self._betas:
            self._betas[key] = self._upload(np.array([beta], dtype))
        pointer = ctypes.c_void_p
        return pointer(alpha.data.ptr), pointer(self._betas[key].data.ptr)


class CudaDevice:
    """The current CUDA device, with one stream that all work goes to."""

    def __init__(self) -> None:
        device = cupy.cuda.Device()
        self.num_processors = int(device.attributes["MultiProcessorCount"])
        self.most_shared_bytes = int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        # A stream of our own, made current: the default one cannot be captured. Entered for good,
        # as CuPy goes back to what was entered last after each `with` of its own, which fetching an
        # array with gaps has, and `use` does not count there.
        self.stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        self.stream.__enter__()
        self.copy_stream = cupy.cuda.Stream(non_blocking=True)
        self._side_stream = cupy.cuda.Stream(non_blocking=True)
        self._number = device.id
        self._capturing = False
        self._sending: deque[tuple[Any, np.ndarray]] = deque()
        """Copies from pinned memory that may be under way: it must not be used again meanwhile."""
        self._capture_memory = cupy.cuda.MemoryPool()
        self._limit = SharedLimit(cupy.get_default_memory_pool(), self._capture_memory)
        self._cublas = _Cublas(self.stream.ptr, self.upload)
        self._branches = list(self._branches_there_is_room_for())
        self.gemm = self._cublas.bind
        self.kernel = functools.cache(self._kernel)

    def _kernel(self, source: str, name: str, shared_bytes: int = 0) -> Kernel:
        if self._capturing:  # loading may wait for the device, which a capture does not survive
            raise NotCapturable
        options: tuple[str, ...] = ("--std=c++17",)
        if "__half" in source:
            source = "#include <cuda_fp16.h>\n" + source
        found = cupy.RawKernel(PRELUDE + source, name, options=options)
        found.compile()
        if found.local_size_bytes and in_registers(source) != source:
            found = cupy.RawKernel(PRELUDE + in_registers(source), name, options=options)
            found.compile()

        # never less than before: CuPy has one function for all kernels of the same source
        if shared_bytes > found.max_dynamic_shared_size_bytes:
            found.max_dynamic_shared_size_bytes = shared_bytes

        def launch(grid: Any, block: Any, args: Any) -> None:
            found(grid, block, tuple(args), shared_mem=shared_bytes)

        return launch

    def load(self, sources: Sequence[tuple[str, str]]) -> None:
        """In threads: 8 kernels that took NVRTC (CUDA 13.0) 2.2 s by one took 0.5 s by eight."""

        def compiled(source: tuple[str, str]) -> None:
            with cupy.cuda.Device(self._number):  # a new thread would use device 0
                self.kernel(*source)

        found = set(sources)
        if len(found) > 1:
            with ThreadPoolExecutor(min(len(found), _COMPILERS)) as pool:
                list(pool.map(compiled, sorted(found)))

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """From CuPy's memory pool."""
        return cupy.empty(shape, dtype)

    def upload(self, host: np.ndarray) -> Array:
        """Through a pinned buffer that is kept until the copy is done (CuPy's habit).

        During a capture on the other stream, and to the end: the graph shall find it done. Memory
        comes from that stream's part of the pool then, as captured work may write to the other's.
        """
        if not self._capturing:
            return cupy.asarray(host)
        with self.copy_stream:
            made = cupy.asarray(host)
        self.copy_stream.synchronize()
        return made

    def pinned(self, num_bytes: int) -> np.ndarray:
        """From CuPy's pool of pinned memory."""
        with cupy.cuda.Device(self._number):  # a new thread would use device 0
            memory = cupy.cuda.alloc_pinned_memory(num_bytes)
        return np.frombuffer(memory, np.uint8, num_bytes)

    def copy_from_pinned(self, dest: Array, source: np.ndarray, after: Any) -> Any:
        """cudaMemcpyAsync between events."""
        while self._sending and self._sending[0][0].done:
            self._sending.popleft()
        self.copy_stream.wait_event(after)
        cupy.cuda.runtime.memcpyAsync(
            dest.data.ptr,
            source.ctypes.data,
            source.nbytes,
            cupy.cuda.runtime.memcpyHostToDevice,
            self.copy_stream.ptr,
        )
        copied = self.copy_stream.record(cupy.cuda.Event(disable_timing=True))
        self._sending.append((copied, source))
        return copied

    def record(self) -> Any:
        """An event without a time, which is cheaper."""
        return self.stream.record(cupy.cuda.Event(disable_timing=True))

    def wait(self, event: Any) -> None:
        """cudaStreamWaitEvent."""
        self.stream.wait_event(event)

    def strided(self, array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
        """CuPy's as_strided."""
        return cupy.lib.stride_tricks.as_strided(array, shape, strides)

    def memory(self) -> tuple[int, int]:
        """What CuPy's pool keeps unused counts as free; at most what CUPY_GPU_MEMORY_LIMIT says."""
        free, total = cupy.cuda.runtime.memGetInfo()
        free += cupy.get_default_memory_pool().free_bytes()
        if self._limit.limit:
            total = min(total, self._limit.limit)
            free = min(free, self._limit.free_bytes())
        return int(free), int(total)

    def capture(self, work: Callable[[], None], aside: bool = False) -> Callable[[], None]:
        """A CUDA graph of the work, instantiated.

        Memory the work asks for stays the graph's: CuPy's pools would give what is free back to the
        device when they cannot grow, and graphs know addresses only.
        """
        kept: list[Any] = []
        self._limit.share()
        # uploads have memory of graphs that are gone, which may be running yet
        self.copy_stream.wait_event(self.record())
        allocator = cupy.cuda.using_allocator(functools.partial(self._malloc, kept))
        with kept_copies() as copies, allocator:
            self.stream.begin_capture()
            self._capturing = True
            try:
                work()
            except BaseException:
                self._abandon_capture()
                raise
            finally:
                self._capturing = False
                self._limit.share()
            graph = self.stream.end_capture()
        stream = self.stream

        def replay() -> None:
            graph.launch(stream)
            kept, copies  # noqa: B018 (the graph points into their memory)

        def replay_aside() -> None:
            side = self._side_stream
            side.wait_event(self.record())
            graph.launch(side)
            ended = side.record(cupy.cuda.Event(disable_timing=True))

            def join() -> None:
                stream.wait_event(ended)
                # Memory that is freed goes to whoever asks next in the first stream: this holds
                # the graph's until that stream waits.
                graph, kept, copies, work  # noqa: B018

            begun(join)

        return replay_aside if aside else replay

    def _branches_there_is_room_for(self) -> Iterator[Any]:
        """Streams for which products have workspaces now, as a capture could not make any."""
        try:
            for _ in range(_BRANCHES):
                stream = cupy.cuda.Stream(non_blocking=True)
                self._cublas.use(stream.ptr)
                yield stream
        except MemoryError:
            pass
        finally:
            self._cublas.use(self.stream.ptr)

    def side_by_side(self, steps: Sequence[Callable[[], Any]]) -> None:
        """In a capture the first step goes on in the stream, the others take turns in branches."""
        if not self._capturing or len(steps) == 1:
            for step in steps:
                step()
            return
        begun = self.record()
        used = self._branches[: len(steps) - 1]
        for stream in used:
            stream.wait_event(begun)
        try:
            for i, step in enumerate(steps):
                stream = (self.stream, *used)[i % (1 + len(used))]
                self._cublas.use(stream.ptr)
                with stream:
                    step()
        finally:
            self._cublas.use(self.stream.ptr)
            for stream in used:  # also where a step failed: the capture must be ended
                self.stream.wait_event(stream.record(cupy.cuda.Event(disable_timing=True)))

    def _malloc(self, kept: list[Any], num_bytes: int) -> Any:
        """Memory of the graphs' pool, kept; what other memory is unused may be had for it."""
        try:
            found = self._capture_memory.malloc(num_bytes)
        except MemoryError:
            cupy.get_default_memory_pool().free_all_blocks()
            self._limit.share()
            found = self._capture_memory.malloc(num_bytes)
        kept.append(found)
        return found

    def _abandon_capture(self) -> None:
        with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
            self.stream.end_capture()


def describe() -> str:
    """Device name and number, for logs."""
    device = cupy.cuda.Device()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return f"{name}, device {device.id}" + (f" of {visible}" if visible else "")

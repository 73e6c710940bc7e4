"""The real device: CuPy's modules, memory and streams.

CuPy keeps compiled kernels on disk (CUPY_CACHE_DIR, default ~/.cupy/kernel_cache), named after a
hash of source, options, compiler and device, each written to a temporary file and renamed: several
processes may share it.
"""

from __future__ import annotations

import contextlib
import functools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cupy
import numpy as np

from nnet3tools.tensor import side_stream
from nnet3tools.tensor.cuda.cublas import Cublas
from nnet3tools.tensor.cuda.device import PRELUDE, Array, Kernel
from nnet3tools.tensor.cuda.indexes import kept_copies
from nnet3tools.tensor.cuda.level_source import in_registers
from nnet3tools.tensor.cuda.pools import SharedLimit
from nnet3tools.tensor.recording import NotCapturable

_BRANCHES = 2
"""Streams besides the main one, for concurrent work in a graph."""
_COMPILERS = 8
"""Threads that compile kernels."""
_CUDA_ERRORS = cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError
_OUT_OF_MEMORY = 2
"""The status of both errors if the device is out of memory."""


class CudaDevice:
    """The current CUDA device: it compiles kernels, launches them, and moves bytes.

    All work goes to the main stream, in order, except copies from pinned memory, which go to the
    copy stream. `num_processors` are its multiprocessors; a block may have `most_shared_bytes` of
    shared memory. `kernel` compiles a kernel once (see `_kernel`), `gemm` is Cublas.bind.
    """

    def __init__(self) -> None:
        device = cupy.cuda.Device()
        self.num_processors = int(device.attributes["MultiProcessorCount"])
        self.most_shared_bytes = int(device.attributes["MaxSharedMemoryPerBlockOptin"])
        # A new stream, as the default stream cannot be captured. It is entered and never left: CuPy
        # returns to the stream that was entered last after each of its own `with` blocks, and
        # fetching an array with gaps has such a block.
        self.stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        self.stream.__enter__()
        self.copy_stream = cupy.cuda.Stream(non_blocking=True)
        self._side_stream = cupy.cuda.Stream(non_blocking=True)
        self._number = device.id
        self._capturing = False
        self._sending: deque[tuple[Any, np.ndarray]] = deque()
        """Copies from pinned memory that may be unfinished, and so still need that memory."""
        self._capture_memory = cupy.cuda.MemoryPool()
        self._limit = SharedLimit(cupy.get_default_memory_pool(), self._capture_memory)
        self._cublas = Cublas(self.stream.ptr, self.upload)
        self._branches = list(self._make_branches())
        self.gemm = self._cublas.bind
        self.kernel = functools.cache(self._kernel)

    def _kernel(self, source: str, name: str, shared_bytes: int = 0) -> Kernel:
        """The kernel `name` of a CUDA C++ source, which is compiled once and cached on disk.

        Each block gets `shared_bytes` of shared memory in addition to what the source declares.
        """
        if self._capturing:  # loading may wait for the device, which a capture does not survive
            raise NotCapturable
        options: tuple[str, ...] = ("--std=c++17",)
        if "__half" in source:
            source = "#include <cuda_fp16.h>\n" + source
        found = cupy.RawKernel(PRELUDE + source, name, options=options)
        _attempt(found.compile)
        if found.local_size_bytes and in_registers(source) != source:
            found = cupy.RawKernel(PRELUDE + in_registers(source), name, options=options)
            _attempt(found.compile)

        # never less than before: CuPy has one function for all kernels of the same source
        if shared_bytes > found.max_dynamic_shared_size_bytes:
            found.max_dynamic_shared_size_bytes = shared_bytes

        def launch(grid: Any, block: Any, args: Any) -> None:
            _attempt(found, grid, block, tuple(args), shared_mem=shared_bytes)

        return launch

    def load(self, sources: Sequence[tuple[str, str]]) -> None:
        """Compile kernels (source, name) in threads: 8 take 0.5 s, not 2.2 (NVRTC, CUDA 13.0)."""

        def compiled(source: tuple[str, str]) -> None:
            self._enter_thread()
            self.kernel(*source)

        found = set(sources)
        if len(found) > 1:
            with ThreadPoolExecutor(min(len(found), _COMPILERS)) as pool:
                list(pool.map(compiled, sorted(found)))

    def _enter_thread(self) -> None:
        """Let the present thread use this device; a new thread would use device 0.

        A `with` block would return to device 0 at its end, and so create a context on it.
        """
        cupy.cuda.Device(self._number).use()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """A new device array from CuPy's memory pool."""
        return cupy.empty(shape, dtype)

    def upload(self, host: np.ndarray) -> Array:
        """Copy a host array to the device; CuPy keeps the pinned buffer until the copy is done.

        While a CUDA graph is captured, the copy runs on the copy stream, and ends before the method
        returns. Its memory is from the copy stream's part of the pool, because captured work may
        write to memory of the main stream.
        """
        if not self._capturing:
            return cupy.asarray(host)
        with self.copy_stream:
            made = cupy.asarray(host)
        self.copy_stream.synchronize()
        return made

    def pinned(self, num_bytes: int) -> np.ndarray:
        """Page-locked host memory from CuPy's pool, uint8. Any thread may call this."""
        self._enter_thread()
        memory = cupy.cuda.alloc_pinned_memory(num_bytes)
        return np.frombuffer(memory, np.uint8, num_bytes)

    def copy_from_pinned(self, dest: Array, source: np.ndarray, after: Any) -> Any:
        """Start a copy on the copy stream after the event `after`; returns the event of its end.

        The source must not change before that event.
        """
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
        """An event that is reached when all work given to the main stream so far is done."""
        return self.stream.record(cupy.cuda.Event(disable_timing=True))

    def wait(self, event: Any) -> None:
        """Let later work of the main stream begin after an event (cudaStreamWaitEvent)."""
        self.stream.wait_event(event)

    def memory(self) -> tuple[int, int]:
        """(free bytes, total bytes) of the device; unused memory of CuPy's pool counts as free.

        The limit of CuPy's pool bounds both.
        """
        free, total = cupy.cuda.runtime.memGetInfo()
        free += cupy.get_default_memory_pool().free_bytes()
        if self._limit.limit:
            total = min(total, self._limit.limit)
            free = min(free, self._limit.free_bytes())
        return int(free), int(total)

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
        """Record `work` as a CUDA graph, without running it; return a callable that launches it.

        Memory that the work allocates belongs to the graph until the graph is freed: CuPy's
        pools return free memory to the device when they cannot grow, and graphs know
        addresses only. With `on_side_stream` the graph is launched on the side stream.
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
                with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):
                    self.stream.end_capture()
                raise
            finally:
                self._capturing = False
                self._limit.share()
            graph = _attempt(self.stream.end_capture)
        stream = self.stream

        def replay() -> None:
            _attempt(graph.launch, stream)
            kept, copies  # noqa: B018 (the graph points into their memory)

        def replay_on_side_stream() -> None:
            side = self._side_stream
            side.wait_event(self.record())
            _attempt(graph.launch, side)
            ended = side.record(cupy.cuda.Event(disable_timing=True))

            def wait() -> None:
                stream.wait_event(ended)
                # Memory that is freed goes to whoever asks next in the first stream: this holds
                # the graph's until that stream waits.
                graph, kept, copies, work  # noqa: B018

            side_stream.record(wait)

        return replay_on_side_stream if on_side_stream else replay

    def _make_branches(self) -> Iterator[Any]:
        """Yield streams for branches of a graph, each with a cuBLAS workspace.

        A capture could not allocate workspaces. There are fewer streams if memory is lacking.
        """
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
        """Do independent steps; while a CUDA graph is captured, as concurrent branches of it."""
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
        """Memory from the pool of CUDA graphs, appended to `kept`; may free unused memory first."""
        try:
            found = self._capture_memory.malloc(num_bytes)
        except MemoryError:
            cupy.get_default_memory_pool().free_all_blocks()
            self._limit.share()
            found = self._capture_memory.malloc(num_bytes)
        kept.append(found)
        return found


def _attempt(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of `call(...)`; raises MemoryError instead of CUDA's errors for lack of memory."""
    try:
        return call(*args, **options)
    except _CUDA_ERRORS as error:
        if error.status != _OUT_OF_MEMORY:
            raise
        raise MemoryError(str(error)) from None

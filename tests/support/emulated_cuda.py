"""The device that the CUDA backend's tests run on: a model of CuPy on the host, or a GPU.

The `device` fixture gives one and lets operators use it. On the host it is the backend's real
cuda.py on support/model_cupy.py; environment variables choose what of a GPU's freedom it takes:

    NN_ORDER=0    threads, warps and blocks forwards, work as late as it may be done
    NN_ORDER=1    backwards, as early as it may be
    NN_ORDER=2    by chance
    NN_PROCS=132  how many processors it has; grids depend on them

With NNET3TOOLS_GPU_TESTS=1 the tests run on a real device instead; transfers are not counted then.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nnet3tools.tensor import arrays
from nnet3tools.tensor.cuda import device as device_module
from nnet3tools.tensor.cuda import indexes
from support import model_cupy
from support.model_cupy import GXX, ndarray
from support.model_streams import Machine, Schedule, get_machine, set_machine

REAL = os.environ.get("NNET3TOOLS_GPU_TESTS", "0") not in ("", "0")
"""Whether to test a real device."""
ORDER = Schedule(int(os.environ.get("NN_ORDER", "0")))
PROCESSORS = int(os.environ.get("NN_PROCS", "2"))
counts_transfers = pytest.mark.skipif(REAL, reason="only the emulated device counts transfers")
rounds_as_the_model = pytest.mark.skipif(
    REAL, reason="cuBLAS decides whether it rounds a product's factors to half precision"
)
limits_memory = pytest.mark.skipif(REAL, reason="sets how much memory the model has")
needs_compiler = pytest.mark.skipif(not REAL and GXX is None, reason="g++ is not installed")


def get_devices() -> list[Any]:
    """The devices in use."""
    return [d for d in device_module._current if isinstance(d, EmulatedDevice | RealDevice)]


def to_device(host: Any, dtype: Any = None) -> Any:
    """A copy of a host array, counted as an upload."""
    import cupy

    return cupy.array(np.array(host, dtype=dtype))


_made: list[EmulatedDevice] = []
"""Kept, as memos of operators know devices by their id."""


class EmulatedDevice:
    """cuda.py's device on a Machine, whose counts it shows."""

    def __init__(
        self, schedule: Schedule = ORDER, processors: int = PROCESSORS, **options: Any
    ) -> None:
        self.machine = Machine(schedule, processors, **options)
        set_machine(self.machine)
        _made.append(self)
        model_cupy.load_cublas()._math_mode = "fp32"
        self._device: Any = model_cupy.load_cuda().CudaDevice()
        self.machine.flush()
        self.launched = self.machine.launched
        self.launched.clear()
        self.machine.log.clear()
        self.machine.uploads = 0
        self.sources: dict[str, str] = {}
        self.captures = 0
        self.uploads_for_graphs = 0
        """Uploads during captures: tables that the graphs' kernels look at."""
        self.kernels_of_graphs = 0

    def close(self) -> None:
        """Run the waiting work, then free the memory that no memo holds."""
        self.machine.flush()
        indexes.forget()
        self.machine.memory.unguard()
        del self.machine, self._device, self.launched

    def __getattr__(self, name: str) -> Any:
        if name == "_device":
            raise AttributeError("the device is closed")
        return getattr(self._device, name)

    @property
    def num_processors(self) -> int:
        return self.machine.processors

    @property
    def uploads(self) -> int:
        return self.machine.uploads

    @property
    def downloads(self) -> int:
        return self.machine.downloads

    @property
    def kernels_of_graphs(self) -> int:
        """The number of nodes of all graphs launched since this property was set."""
        return self.machine.graph_nodes - self._nodes_before

    @kernels_of_graphs.setter
    def kernels_of_graphs(self, value: int) -> None:
        self._nodes_before = self.machine.graph_nodes - value

    @property
    def half_products(self) -> bool:
        """Whether factors of products are rounded to half precision, as with --gpu-math=fp16."""
        return bool(model_cupy.load_cublas()._math_mode == "fp16")

    @half_products.setter
    def half_products(self, value: bool) -> None:
        model_cupy.load_cublas()._math_mode = "fp16" if value else "fp32"

    def record(self) -> Any:
        return self._device.record()

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of a device whose memory is mostly in use."""
        return 1 << 20, 1 << 30

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Any:
        found = self._device.kernel(source, name, shared_bytes)
        self.sources[name] = source
        return found

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
        """Record a capture; no other work may run until it ends."""
        self.captures += 1
        before = self.uploads
        launch = self._device.capture(work, on_side_stream)
        self.uploads_for_graphs += self.uploads - before
        stray, self.machine.stray = self.machine.stray, []
        assert not stray, f"run at once during a capture: {stray}"
        return launch


class RealDevice:
    """The device of this machine, with a list of what is launched."""

    def __init__(self) -> None:
        from nnet3tools.tensor.cuda import cublas, cuda

        self._cublas: Any = cublas
        self._device: Any = cuda.CudaDevice()
        self.begin()

    def begin(self) -> None:
        """Reset all counts for a new test."""
        self.launched: list[str] = []
        self.sources: dict[str, str] = {}
        self.downloads = self.uploads = self.uploads_for_graphs = 0
        self.captures = self.kernels_of_graphs = 0
        self.half_products = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    @property
    def half_products(self) -> bool:
        """Whether factors of products are rounded to half precision, as with --gpu-math=fp16."""
        return bool(self._cublas._math_mode == "fp16")

    @half_products.setter
    def half_products(self, value: bool) -> None:
        self._cublas._math_mode = "fp16" if value else "fp32"

    def _noted(self, name: str, run: Callable[..., None]) -> Callable[..., None]:
        def noted(*args: Any) -> None:
            self.launched.append(name)
            run(*args)

        return noted

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Any:
        self.sources[name] = source
        return self._noted(name, self._device.kernel(source, name, shared_bytes))

    def gemm(self, *args: Any) -> Any:
        return self._noted("gemm", self._device.gemm(*args))

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Any:
        """Launches of a capture are listed at each launch of the graph, as the model lists them."""
        self.captures += 1
        before = len(self.launched)
        try:
            launch = self._device.capture(work, on_side_stream)
        finally:
            nodes = self.launched[before:]
            del self.launched[before:]

        def replay() -> None:
            self.launched += ["graph", *nodes]
            self.kernels_of_graphs += len(nodes)
            launch()

        return replay


@functools.cache
def get_real_device() -> RealDevice:
    """The device of this process. Bound operators keep its streams and handles, so there is one."""
    return RealDevice()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device that the CuPy backend uses for the length of a test."""
    from nnet3tools.tensor.cuda.device import use_device

    if REAL:
        with use_device(get_real_device()) as real:  # type: ignore[arg-type]
            real.begin()  # type: ignore[attr-defined]
            yield real
        return
    model_cupy.install(monkeypatch)
    monkeypatch.setattr(arrays, "_captured_pool", arrays._Pool())  # a machine's memory goes with it
    made = EmulatedDevice()
    with use_device(made):
        yield made
    made.close()


def assert_same(got: Any, expected: Any) -> None:
    """Host arrays are equal; on a real device all but the last digits.

    cuBLAS computes products that are done together otherwise than one by one.
    """
    if REAL:
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max())
    else:
        np.testing.assert_array_equal(got, expected)


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
    import cupy

    flat = cupy.array(copied)[start:]
    typed = flat[: len(flat) // array.itemsize * array.itemsize].view(array.dtype)
    return cupy.lib.stride_tricks.as_strided(typed, array.shape, array.strides)


def fetch(array: Any) -> Any:
    """Copy arrays, lists of arrays or numbers to the host, without counting a download."""
    if isinstance(array, (list, tuple)):
        return [fetch(a) for a in array]
    if REAL:
        return array.get() if hasattr(array, "get") else array
    if not isinstance(array, ndarray):
        return array
    get_machine().flush()
    return np.array(array.view(np.ndarray))

"""A machine's GPUs as `cupy.cuda` and NVML show them, which remembers where contexts were made."""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

EXCLUSIVE = 3
"""cudaComputeModeExclusiveProcess."""
TOTAL = 80 << 30


def insufficient_driver() -> None:
    """Raises what CuPy does where there is no driver, or one that is too old."""
    raise RuntimeError(
        "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    )


class FakeGpus:
    """Devices with these parts of their memory free, some taken for their first few tries."""

    def __init__(
        self,
        free: Sequence[float],
        taken: dict[int, int] | None = None,
        mode: int = 0,
        driver: int = 12080,
        made_for: int = 12090,
    ) -> None:
        self.free, self.in_use, self.mode = list(free), dict(taken or {}), mode
        self.used, self.contexts = -1, set[int]()
        self.Device = self._device_class()
        self.runtime = types.SimpleNamespace(
            driverGetVersion=lambda: driver,
            runtimeGetVersion=lambda: made_for,
            getDeviceCount=lambda: len(free),
            deviceGetPCIBusId=lambda number: f"0000:{number:02X}:00.0",
            getDeviceProperties=lambda number: {
                "name": f"Fake {number}".encode(), "computeMode": mode, "major": 9, "minor": 0,
            },
            memGetInfo=lambda: (int(self.free[self.used] * TOTAL), TOTAL),
        )  # fmt: skip
        self.nvrtc = types.SimpleNamespace(getVersion=lambda: (12, 9))

    def _device_class(self) -> type:
        outer = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def use(self) -> None:
                if outer.in_use.get(self.number, 0) > 0:
                    outer.in_use[self.number] -= 1
                    raise RuntimeError("all CUDA-capable devices are busy or unavailable")
                outer.used = self.number
                outer.contexts.add(self.number)

        return Device

    def install(self, monkeypatch: Any, with_nvml: bool = True) -> FakeGpus:
        """Stand in for `cupy.cuda`, and for NVML if `with_nvml`, until the test ends."""
        cupy: Any = types.ModuleType("cupy")
        cupy.cuda, cupy.float32 = self, np.float32
        cupy.empty = lambda n, dtype: f"on device {self.used}"
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setitem(sys.modules, "pynvml", self._pynvml() if with_nvml else None)
        return self

    def _pynvml(self) -> Any:
        module: Any = types.ModuleType("pynvml")

        class NVMLError(Exception):
            pass

        def memory(handle: int) -> Any:
            return types.SimpleNamespace(free=int(self.free[handle] * TOTAL), total=TOTAL)

        module.NVMLError = NVMLError
        module.nvmlInit = module.nvmlShutdown = lambda: None
        module.nvmlDeviceGetHandleByPciBusId = lambda bus: int(bus.decode().split(":")[1], 16)
        module.nvmlDeviceGetMemoryInfo = memory
        module.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
        module.nvmlDeviceGetName = lambda handle: f"Fake {handle}"
        return module

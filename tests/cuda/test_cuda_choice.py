"""--use-gpu, --gpu-math and lack of memory, with a made-up CuPy."""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any

import numpy as np
import pytest

from nnet3tools.cli import gpu
from nnet3tools.errors import OptionError, UserError


class _Devices:
    """So many devices, some of them taken for the first few tries."""

    def __init__(self, free: list[float], taken: dict[int, int] | None = None) -> None:
        self.free, self.taken, self.used = free, dict(taken or {}), -1
        outer = self

        class Device:
            def __init__(self, number: int) -> None:
                self.number = number

            def use(self) -> None:
                if outer.taken.get(self.number, 0) > 0:
                    outer.taken[self.number] -= 1
                    raise RuntimeError("all CUDA-capable devices are busy or unavailable")
                outer.used = self.number

            def __enter__(self) -> None:
                outer.used = self.number

            def __exit__(self, *args: object) -> None:
                pass

        self.Device = Device
        self.runtime = types.SimpleNamespace(
            getDeviceCount=lambda: len(free), memGetInfo=lambda: (outer.free[outer.used], 1.0)
        )


@pytest.fixture
def install(monkeypatch):
    def put(devices: _Devices) -> _Devices:
        module: Any = types.ModuleType("cupy")
        module.cuda, module.float32 = devices, np.float32
        module.empty = lambda n, dtype: "on the device"
        monkeypatch.setitem(sys.modules, "cupy", module)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        return devices

    monkeypatch.setattr(gpu.time, "sleep", lambda seconds: None)
    return put


def test_the_device_with_most_free_memory_is_taken(install):
    devices = install(_Devices([0.2, 0.9, 0.5]))
    assert gpu.choose_device("yes") == "on the device"
    assert devices.used == 1


def test_a_taken_device_is_passed_over(install):
    devices = install(_Devices([0.9, 0.5], taken={0: 1}))
    assert gpu.choose_device("yes") == "on the device"
    assert devices.used == 1


def test_wait_waits_and_yes_does_not(install):
    install(_Devices([0.9], taken={0: 3}))
    with pytest.raises(UserError, match="busy"):
        gpu.choose_device("yes")
    assert gpu.choose_device("wait") == "on the device"


def test_wait_does_not_wait_where_there_is_no_gpu(install):
    install(_Devices([]))
    with pytest.raises(UserError, match="no device"):
        gpu.choose_device("wait")
    assert gpu.choose_device("optional").size == 0


def test_gpu_math_is_checked_without_a_gpu():
    with pytest.raises(OptionError, match="gpu-math"):
        gpu.choose_device("no", "fp8")


def test_lack_of_memory_names_the_plan_and_what_helps(monkeypatch):
    sys.path.insert(0, __file__.rsplit("/", 2)[0] + "/training")
    from training_helpers import minibatch, network

    from nnet3tools.executor import program
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

    take = program.Arena.take

    def full(self, num_bytes):
        if num_bytes:
            raise MemoryError
        return take(self, num_bytes)

    monkeypatch.setattr(program.Arena, "take", full)
    with pytest.raises(UserError, match=r"MB at their peak.*m\d+ \(.*memory-compression-level"):
        NnetTrainer(NnetTrainerOptions(), network()).train(minibatch())

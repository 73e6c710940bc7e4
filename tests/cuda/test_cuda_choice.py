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
from support.emulated_cuda import needs_compiler


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
    monkeypatch.setattr(gpu, "_load_libraries", lambda: None)
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


def test_a_missing_library_is_one_line_and_no_traceback(install, monkeypatch, capsys):
    install(_Devices([0.9]))

    def missing() -> None:
        raise ImportError("libcublas.so.12: cannot open shared object file")

    monkeypatch.setattr(gpu, "_load_libraries", missing)
    with pytest.raises(UserError, match=r"no usable GPU \(libcublas"):
        gpu.choose_device("yes")
    assert gpu.choose_device("optional").size == 0
    assert "libcublas" in capsys.readouterr().err


def test_wait_does_not_wait_where_there_is_no_gpu(install):
    install(_Devices([]))
    with pytest.raises(UserError, match="no device"):
        gpu.choose_device("wait")
    assert gpu.choose_device("optional").size == 0


def test_gpu_math_is_checked_without_a_gpu():
    with pytest.raises(OptionError, match="gpu-math"):
        gpu.choose_device("no", "fp8")


def test_lack_of_memory_names_the_plan_and_what_helps(monkeypatch):
    from nnet3tools.executor import bound_program as program
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
    from support.training_helpers import minibatch, network

    take = program.Arena.take

    def full(self, num_bytes):
        if num_bytes:
            raise MemoryError
        return take(self, num_bytes)

    monkeypatch.setattr(program.Arena, "take", full)
    with pytest.raises(UserError, match=r"MB at their peak.*m\d+ \(.*memory-compression-level"):
        NnetTrainer(NnetTrainerOptions(), network()).train(minibatch())


@needs_compiler
@pytest.mark.parametrize("where", ["arena", "later"])
def test_lack_of_a_gpus_memory_names_all_that_takes_it(device, monkeypatch, where):
    from nnet3tools.executor import bound_program as program
    from nnet3tools.training import trainer
    from support.emulated_cuda import to_device
    from support.training_helpers import minibatch, network

    def full(*_: object) -> None:
        raise MemoryError("cudaErrorMemoryAllocation: out of memory")

    take = program.Arena.take
    if where == "arena":
        monkeypatch.setattr(program.Arena, "take", lambda a, n: full() if n else take(a, n))
    else:
        monkeypatch.setattr(trainer, "apply_l2_regularization", full)
    made = trainer.NnetTrainer(
        trainer.NnetTrainerOptions(), network(), to_device(np.zeros(0, np.float32))
    )
    with pytest.raises(UserError) as caught:
        made.train(minibatch())
    text = str(caught.value)
    assert "out of memory on the GPU" in text
    assert "1024.0 MB 1.0 are free" in text
    for part in ("arena", "model", "parameter change", "example buffers", "compression-level"):
        assert part in text


def test_memory_that_is_told_beforehand_is_what_training_takes():
    """Model, change, arena and natural gradient against a trainer's own; buffers by formula."""
    from nnet3tools.executor.memory_need import memory_need
    from nnet3tools.nnet.config import parse_config_lines
    from nnet3tools.nnet.nnet import Nnet
    from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions
    from support.training_helpers import minibatch

    config = """
input-node name=input dim=3
component name=a type=NaturalGradientAffineComponent input-dim=9 output-dim=50 rank-in=3 rank-out=7
component-node name=a component=a input=Append(Offset(input, -1), input, Offset(input, 1))
component name=t type=TdnnComponent input-dim=50 output-dim=5 time-offsets=0
component-node name=t component=t input=a
component name=ls type=LogSoftmaxComponent dim=5
component-node name=ls component=ls input=t
output-node name=output input=ls
"""
    nnet = Nnet.from_config(parse_config_lines(config))
    trainer = NnetTrainer(NnetTrainerOptions(store_component_stats=False), nnet)
    example = minibatch(size=30)
    trainer.train(example)
    (computer,) = trainer._runner._computers.values()
    need = memory_need(computer.computation, nnet, computer.program.plan)
    parameters = [p for _, c in nnet.updatable_components() for p in c.parameters().values()]
    statistics = need["model"] - sum(p.nbytes for p in parameters)
    assert need["parameter change"] == need["model"]
    assert 0 <= statistics <= 5 * 8  # the sums of LogSoftmax
    assert need["arena of the matrices"] == computer.peak_bytes
    estimates = [e for c in trainer._delta.components for e, _ in c.preconditioners()]
    assert need["natural gradient"] == sum(e.w.nbytes for e in estimates)
    features, targets = example.io
    assert need["example buffers"] == 2 * (features.features.nbytes + 12 * len(targets.indexes))

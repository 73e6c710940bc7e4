"""A GPU on paper: takes down what would be launched, runs nothing, and so is quick at full size.

    with paper_device(132) as device:
        ...                       # train; device.log holds what happened
    device.log[0].name, .grid, .block, .args; .graph: None, or which graph launch it was part of

It is the backend's real cuda.py on the model of CuPy (support/model_cupy.py). Memory is nobody's:
whatever the host decides by looking at results, it decides wrongly.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nnet3tools.tensor.cuda.device import use_device
from support import model_cupy
from support.emulated_cuda import EmulatedDevice
from support.model_streams import Launch

__all__ = ["BENCHMARKS", "Launch", "PaperDevice", "benchmark_modules", "paper_device"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


class PaperDevice(EmulatedDevice):
    """Notes launches in `log`; those of a graph each time that the graph is launched."""

    def __init__(self, num_processors: int) -> None:
        super().__init__(processors=num_processors, memory=1 << 40, runs=False)

    @property
    def log(self) -> list[Launch]:
        return self.machine.log

    def _note(self, launch: Launch) -> None:
        """Let a mark stand in the log, or in the graph that is being captured."""
        self.machine.current_stream().do(launch, lambda: None)

    def _do(self, work: Callable[[], None]) -> None:
        work()


@contextmanager
def paper_device(num_processors: int, device: PaperDevice | None = None) -> Iterator[PaperDevice]:
    """Let the CuPy backend use one in the `with` block."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        model_cupy.install(monkeypatch)
        device = device or PaperDevice(num_processors)
        with use_device(device):
            yield device
        device.close()


@contextmanager
def benchmark_modules() -> Iterator[Any]:
    """The modules of benchmarks/gpu: a function that imports one by name."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as monkeypatch:
        for folder in (BENCHMARKS, BENCHMARKS / "gpu"):
            monkeypatch.syspath_prepend(str(folder))
        yield __import__
    for name in ("ours", "networks", "memory_growth", "torch_networks", "train"):
        if name not in before:
            sys.modules.pop(name, None)

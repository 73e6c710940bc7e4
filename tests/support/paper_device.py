"""A GPU on paper: takes down what would be launched, runs nothing, and so is quick at full size.

    with paper_device(132) as device:
        ...                       # train; device.log holds what happened
    device.log[0].name, .grid, .block, .products; .graph: None, or which graph launch it was part of

Arrays hold nonsense: whatever the host decides by looking at results, it decides wrongly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnet3tools.tensor.cupy_backend.device import use_device
from nnet3tools.tensor.recording import NotCapturable
from support import emulated_cuda

__all__ = ["BENCHMARKS", "Launch", "PaperDevice", "benchmark_modules", "paper_device"]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@dataclass(frozen=True)
class Launch:
    """A kernel, product or copy as the device gets it: a node of a graph, or by itself."""

    name: str
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    args: tuple[Any, ...] = field(default=(), repr=False)
    """Of a kernel; of a product: dtype, rows, cols, inner, batch and the rest as `gemm` has it."""
    graph: int | None = None
    """Which launch of a graph since the start it was part of; None: by itself."""


class PaperDevice(emulated_cuda.EmulatedDevice):
    """Notes launches in `log`; those of a graph each time that the graph is launched."""

    def __init__(self, num_processors: int) -> None:
        super().__init__()
        self.num_processors = num_processors
        self.log: list[Launch] = []
        self.graph_launches = 0
        self._in_graph: int | None = None

    def _note(self, launch: Launch) -> None:
        self.log.append(replace(launch, graph=self._in_graph))

    def kernel(self, source: str, name: str) -> Any:
        if self._recording is not None and name not in self.sources:
            raise NotCapturable
        self.sources[name] = source

        def launch(grid: Any, block: Any, args: Sequence[Any]) -> None:
            launched = Launch(name, tuple(grid), tuple(block), tuple(args))
            self._do(lambda: self._note(launched))

        return launch

    def gemm(self, *args: Any) -> Callable[[], None]:
        launched = Launch("gemm", args=args)
        return lambda: self._do(lambda: self._note(launched))

    def copy_from_pinned(self, dest: Any, source: np.ndarray, after: Any) -> Any:
        self._note(Launch("copy"))
        return super().copy_from_pinned(dest, source, after)

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        launch = super().capture(work)

        def replay() -> None:
            self.graph_launches += 1
            self._in_graph = self.graph_launches
            try:
                launch()
            finally:
                self._in_graph = None

        return replay


@contextmanager
def paper_device(num_processors: int, device: PaperDevice | None = None) -> Iterator[PaperDevice]:
    """Let the CuPy backend use one in the `with` block."""
    device = device or PaperDevice(num_processors)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(sys.modules, "cupy", emulated_cuda._module())
        with use_device(device):
            yield device


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

"""Our trainer as nnet3-train runs it, on minibatches of one shape; its products by themselves."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from networks import BenchNetwork
from nnet3tools import tensor
from nnet3tools.cli.gpu import choose_device
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.io.read_ahead import read_ahead
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.nnet.config import parse_config_lines
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.training.example import NnetExample, frames_io
from nnet3tools.training.merging import merge_examples
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions

_WARM_UP = 4
"""Minibatches before the clock starts: compiling, binding."""
H100 = 132
"""Its multiprocessors."""


@contextlib.contextmanager
def gpu_or_paper(on_paper: bool) -> Iterator[Any]:
    """An empty array on the GPU, or on a device that runs nothing and records what it would run.

    The second needs the folder tests on the path.
    """
    if not on_paper:
        yield choose_device("yes")
        return
    from support import emulated_cuda
    from support.paper_device import paper_device

    with paper_device(H100):
        yield emulated_cuda.to_device(np.zeros(0, np.float32))


def set_math(name: str, on_paper: bool) -> None:
    """Set the arithmetic of later products to a value of --gpu-math."""
    from nnet3tools.tensor.cuda import cublas

    module: Any = cublas
    if on_paper:
        from support.model_cupy import load_cublas

        module = load_cublas()
    module.set_math_mode(name)


def minibatch(network: BenchNetwork, seed: int = 0) -> NnetExample:
    """Random frames, compressed as in archives of examples, and random classes."""
    rng, parts = np.random.default_rng(seed), []
    for _ in range(network.minibatch):
        rows = network.left + network.frames + network.right
        count = len(range(0, network.frames, network.subsampling))
        targets = SparseMatrix(
            np.arange(count + 1, dtype=np.int32),
            rng.integers(0, network.classes, count).astype(np.int32),
            np.ones(count, np.float32),
            network.classes,
        )
        features = rng.normal(size=(rows, network.dim)).astype(np.float32)
        parts.append(
            NnetExample(
                [
                    frames_io("input", -network.left, features),
                    frames_io("output", 0, targets, network.subsampling),
                ]
            )
        )
    return merge_examples(parts, compress_features=True)


def _without_natural_gradient(config: str) -> str:
    """The same network with plain gradient steps."""
    config = config.replace("NaturalGradientAffineComponent", "AffineComponent")
    return re.sub(r"(type=(?:Tdnn|Linear)Component)", r"\1 use-natural-gradient=false", config)


class Ours:
    """One variant of our trainer, warmed up."""

    def __init__(
        self,
        network: BenchNetwork,
        device: Any,
        replay: bool,
        natural_gradient: bool,
        loss_scaling: bool = False,
        warm_up: int = _WARM_UP,
    ) -> None:
        tensor.random.seed(0)
        config = network.config if natural_gradient else _without_natural_gradient(network.config)
        nnet = Nnet.from_config(parse_config_lines(config))
        options = NnetTrainerOptions(computation=ComputeOptions(cuda_graph=replay))
        self.trainer = NnetTrainer(options, nnet, device, loss_scaling)
        self._examples = [minibatch(network, seed) for seed in range(2)]
        self.run(warm_up)

    def run(self, count: int) -> None:
        """Train on minibatches; a thread prepares them where nnet3-train has one."""
        for example in self._minibatches(count):
            self.trainer.train(example)

    def _minibatches(self, count: int) -> Iterator[NnetExample]:
        given = itertools.islice(itertools.cycle(self._examples), count)
        ahead = self.trainer.ahead
        if ahead is None:
            yield from given
        else:
            yield from read_ahead((ahead.prepare(example) for example in given), ready=ahead.send)


def synchronizer(device: Any) -> Callable[[], None]:
    """A function that waits for all work on the device."""
    if isinstance(device, np.ndarray) and type(device).__module__ == "numpy":
        return lambda: None
    from nnet3tools.tensor.cuda.device import get_device

    return lambda: get_device().record().synchronize()


def seconds(run: Callable[[int], None], count: int, wait: Callable[[], None]) -> float:
    """Mean time of a step over `count` steps."""
    wait()
    start = time.perf_counter()
    run(count)
    wait()
    return (time.perf_counter() - start) / count


def recorded_products(
    network: BenchNetwork, device: Any, minibatches: int = 1, warm_up: int = _WARM_UP
) -> list[tuple[tuple[Any, ...], Callable[[], None]]]:
    """The matrix products of so many minibatches: arguments of `gemm`, and what runs each."""
    from nnet3tools.tensor.cuda.device import get_device

    cuda: Any = get_device()
    bound, found = cuda.gemm, list[tuple[tuple[Any, ...], Callable[[], None]]]()

    def record(*args: Any) -> Any:
        run = bound(*args)

        def noted() -> None:
            found.append((args, run))
            run()

        return noted

    cuda.gemm = record
    try:
        variant = Ours(network, device, False, natural_gradient=True, warm_up=warm_up)
        found.clear()
        variant.run(minibatches)
    finally:
        cuda.gemm = bound
    return found


def products(network: BenchNetwork, device: Any) -> tuple[float, float]:
    """Seconds and operations of one minibatch's matrix products, run by themselves."""
    found = recorded_products(network, device)
    flops = sum(2.0 * rows * cols * inner * batch for (_, rows, cols, inner, batch, *_), _ in found)

    def repeat(count: int) -> None:
        for _ in range(count):
            for _, run in found:
                run()

    return seconds(repeat, 5, synchronizer(device)), flops


def product_rate(device: Any, size: int = 8192) -> float:
    """The device's operations a second in large float32 products."""
    a, b, c = (tensor.empty((size, size), like=device, dtype=np.float32) for _ in range(3))
    for x in (a, b):
        tensor.fill(x, 0.5)
    run = tensor.prod.bind(c, a, b)
    run()

    def repeat(count: int) -> None:
        for _ in range(count):
            run()

    rate = seconds(repeat, 10, synchronizer(device))
    return 2.0 * size**3 / rate

"""Times training on a GPU, beside PyTorch with the same layers where it is installed.

    python benchmarks/gpu [--networks tdnn ...] [--minibatches 100] [--rounds 3] [--device gpu|cpu]

Writes one table (Markdown) to standard output. Each round runs every variant in turn; the best time
of the rounds counts. `--device cpu` is for trying this program out where there is no GPU.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools import tensor  # noqa: E402
from nnet3tools.cli.gpu import choose_device  # noqa: E402
from nnet3tools.executor.options import ComputeOptions  # noqa: E402
from nnet3tools.io import log  # noqa: E402
from nnet3tools.io.sparse import SparseMatrix  # noqa: E402
from nnet3tools.nnet.config import parse_config_lines  # noqa: E402
from nnet3tools.nnet.nnet import Nnet  # noqa: E402
from nnet3tools.training.example import NnetExample, frames_io  # noqa: E402
from nnet3tools.training.merging import merge_examples  # noqa: E402
from nnet3tools.training.trainer import NnetTrainer, NnetTrainerOptions  # noqa: E402


def minibatch(network: BenchNetwork) -> NnetExample:
    """Random frames and classes of the network's shape."""
    rng, parts = np.random.default_rng(0), []
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
    return merge_examples(parts, False)


def without_natural_gradient(config: str) -> str:
    """The same network with plain gradient steps."""
    config = config.replace("NaturalGradientAffineComponent", "AffineComponent")
    return re.sub(r"(type=(?:Tdnn|Linear)Component)", r"\1 use-natural-gradient=false", config)


class Ours:
    """One variant of our trainer, warmed up."""

    def __init__(
        self, network: BenchNetwork, device: Any, replay: bool, natural_gradient: bool
    ) -> None:
        tensor.random.seed(0)
        text = network.config if natural_gradient else without_natural_gradient(network.config)
        nnet = Nnet.from_config(parse_config_lines(text))
        options = NnetTrainerOptions(computation=ComputeOptions(cuda_graph=replay))
        self.trainer = NnetTrainer(options, nnet, device)
        self.example = minibatch(network)
        for _ in range(4):
            self.step()

    def step(self) -> None:
        """Train on one minibatch."""
        self.trainer.train(self.example)


def synchronizer(device: Any) -> Callable[[], None]:
    """What waits for all work on the device."""
    if isinstance(device, np.ndarray):
        return lambda: None
    import cupy

    return lambda: cupy.cuda.get_current_stream().synchronize()


def seconds(step: Callable[[], None], count: int, wait: Callable[[], None]) -> float:
    """Time of one step."""
    wait()
    start = time.perf_counter()
    for _ in range(count):
        step()
    wait()
    return (time.perf_counter() - start) / count


def products(network: BenchNetwork, device: Any, wait: Callable[[], None]) -> tuple[float, float]:
    """Seconds and operations of one minibatch's matrix products, run by themselves."""
    from nnet3tools.tensor.cupy_backend.device import get_device

    cuda: Any = get_device()
    bound, found = cuda.gemm, list[tuple[float, Callable[[], None]]]()

    def record(dtype: Any, rows: int, cols: int, inner: int, batch: int, *rest: Any) -> Any:
        run = bound(dtype, rows, cols, inner, batch, *rest)
        flops = 2.0 * rows * cols * inner * batch

        def noted() -> None:
            found.append((flops, run))
            run()

        return noted

    cuda.gemm = record
    try:
        variant = Ours(network, device, replay=False, natural_gradient=True)
        found.clear()
        variant.step()
    finally:
        cuda.gemm = bound
    runs, flops = [run for _, run in found], sum(f for f, _ in found)
    return seconds(lambda: [run() for run in runs] and None, 5, wait), flops  # type: ignore[func-returns-value]


def product_rate(device: Any, wait: Callable[[], None]) -> float:
    """The device's operations a second in large float32 products."""
    a, b, c = (tensor.empty((8192, 8192), like=device, dtype=np.float32) for _ in range(3))
    for x in (a, b):
        tensor.fill(x, 0.5)
    run = tensor.prod.bind(c, a, b)
    run()
    return 2.0 * 8192**3 / seconds(run, 10, wait)


def measure(network: BenchNetwork, device: Any, options: argparse.Namespace) -> dict[str, float]:
    """Variant -> frames a second."""
    wait = synchronizer(device)
    variants: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
    for replay, name in ((True, "graph"), (False, "no graph")):
        for natural, suffix in ((True, "NG"), (False, "plain")):
            made = Ours(network, device, replay, natural)
            variants[f"{name}, {suffix}"] = made.step, wait
    try:
        import torch_networks

        variants |= torch_networks.variants(network, options.device)
    except ImportError:
        log.warning("PyTorch is not installed: its columns stay empty")
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for name, (step, wait_for) in variants.items():
            took = seconds(step, options.minibatches, wait_for)
            best[name] = min(best.get(name, took), took)
    frames = network.minibatch * network.frames
    return {name: frames / took for name, took in best.items()}


COLUMNS = (
    "graph, NG", "graph, plain", "no graph, NG", "no graph, plain",
    "torch eager", "torch graph", "torch.compile",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--minibatches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    options = parser.parse_args()
    log.set_program("benchmarks/gpu")
    on_gpu = options.device == "gpu"
    device = choose_device("yes" if on_gpu else "no")
    wait = synchronizer(device)
    if on_gpu:
        from nnet3tools.tensor.cupy_backend import cuda

        print(f"Device: {cuda.describe()}; frames a second.\n")
    rate = product_rate(device, wait) if on_gpu else 0.0
    print("| network | " + " | ".join(COLUMNS) + " | time in products | of the product rate |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    for name in options.networks:
        network = NETWORKS[name]()
        found = measure(network, device, options)
        cells = [f"{found[c]:,.0f}" if c in found else "" for c in COLUMNS]
        share = fraction = ""
        if on_gpu:
            took, flops = products(network, device, wait)
            step = network.minibatch * network.frames / found["graph, NG"]
            share, fraction = f"{took / step:.0%}", f"{flops / step / rate:.0%}"
        print(f"| {name} | " + " | ".join([*cells, share, fraction]) + " |", flush=True)


if __name__ == "__main__":
    main()

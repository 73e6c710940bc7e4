"""The host's time for a minibatch that is replayed on a GPU: Python and nothing else.

    python benchmarks/gpu/host_time.py [--networks tdnn ...] [--profile]

The device does nothing: launches of graphs, kernels and copies return at once and are counted.
CPU time of the thread that trains; the one that prepares minibatches runs beside it, as in
nnet3-train. The median of 200 minibatches.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

from ours import Ours  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.training.example import NnetExample  # noqa: E402
from support import emulated_cuda, paper_device  # noqa: E402
from support.model_streams import Event  # noqa: E402

_WARM_UP = 60
"""Minibatches after which every variant of a graph has come up."""
_MINIBATCHES = 200


class _Idle(paper_device.PaperDevice):
    """A device that counts calls and does only what the host reads back."""

    def __init__(self) -> None:
        super().__init__(132)
        self.calls: Counter[str] = Counter()

    def kernel(self, source: str, name: str, shared_bytes: int = 0) -> Any:
        super().kernel(source, name, shared_bytes)
        calls = self.calls

        def launch(grid: Any, block: Any, args: Any) -> None:
            tuple(args)
            calls["kernels"] += 1

        return launch

    def gemm(self, *args: Any) -> Callable[[], None]:
        calls = self.calls

        def run() -> None:
            calls["products"] += 1

        return run

    def capture(self, work: Callable[[], None], on_side_stream: bool = False) -> Callable[[], None]:
        super().capture(work, on_side_stream)
        calls = self.calls

        def replay() -> None:
            calls["graphs"] += 1

        return replay

    def record(self) -> Any:
        self.calls["events"] += 1
        return super().record()

    def wait(self, event: Any) -> None:
        self.calls["waits"] += 1

    def copy_from_pinned(self, dest: Any, source: np.ndarray, after: Any) -> Any:
        self.calls["copies"] += 1
        return Event()


class HostTime:
    """Trains one network on a device that does nothing."""

    def __init__(self, network: BenchNetwork, natural_gradient: bool = True) -> None:
        like = emulated_cuda.to_device(np.zeros(0, np.float32))
        self.variant = Ours(network, like, replay=True, natural_gradient=natural_gradient)
        self.variant.run(_WARM_UP)

    def milliseconds(self) -> float:
        """The median time of a minibatch; few minibatches are recorded."""
        train, ends = self.variant.trainer.train, list[float]()

        def timed(example: NnetExample) -> None:
            train(example)
            ends.append(time.thread_time())

        self.variant.trainer.train = timed  # type: ignore[method-assign]
        self.variant.run(_MINIBATCHES)
        del self.variant.trainer.train
        return float(np.median(np.diff(ends)) * 1e3)


def host_time(network: BenchNetwork, profile: bool = False) -> tuple[float, dict[str, float]]:
    """Milliseconds of one minibatch, and how often it calls the device."""
    device = _Idle()
    with paper_device.paper_device(device.num_processors, device):
        timed = HostTime(network)
        device.calls.clear()
        found = timed.milliseconds()
        calls = {name: number / _MINIBATCHES for name, number in device.calls.items()}
        if profile:
            _profile(timed.variant)
    return found, calls


def _profile(variant: Ours) -> None:
    profiler = cProfile.Profile(time.thread_time)
    profiler.runcall(variant.run, _MINIBATCHES)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> int:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for name in options.networks:
        found, calls = host_time(NETWORKS[name](), options.profile)
        shown = ", ".join(f"{number:.1f} {kind}" for kind, number in sorted(calls.items()))
        print(f"{name}: {found:.2f} ms a minibatch ({shown})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What changes cost in training on a GPU: another learning rate, another shape, other targets.

    python benchmarks/gpu/changes.py [--networks tdnnf ...] [--on-paper]

For each network one line a case: seconds and captured graphs of 60 minibatches after the change,
beside those of 60 minibatches without one. The last line says whether two trainings with all these
changes give the same bytes. `--on-paper` needs no GPU: kernels are recorded and not run, seconds
are those of the host.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

from ours import Ours, gpu_or_paper, minibatch, synchronizer  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.io.sparse import SparseMatrix  # noqa: E402
from nnet3tools.nnet.arithmetic import vectorize  # noqa: E402
from nnet3tools.tensor.cuda import device as devices  # noqa: E402
from nnet3tools.training.example import NnetExample  # noqa: E402

_MINIBATCHES = 60
_WARM_UP = 60
"""Minibatches after which every variant of a graph has come up."""


class _Counting:
    """The device in use, with a count of captures."""

    def __init__(self, device: Any) -> None:
        self._device, self.captures = device, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def capture(self, *args: Any) -> Callable[[], None]:
        self.captures += 1
        found: Callable[[], None] = self._device.capture(*args)
        return found


def soft_targets(network: BenchNetwork, seed: int) -> NnetExample:
    """A minibatch whose rows have one to three targets each."""
    rng, found = np.random.default_rng(seed), minibatch(network, seed % 2)
    counts = rng.integers(1, 4, size=(found.io[1].features.shape[0],))
    columns = [np.sort(rng.choice(network.classes, n, replace=False)) for n in counts]
    targets = SparseMatrix(
        np.append(0, np.cumsum(counts)).astype(np.int32),
        np.concatenate(columns).astype(np.int32),
        np.ones(counts.sum(), np.float32),
        network.classes,
    )
    found.io[1] = replace(found.io[1], features=targets)
    return found


def run(network: BenchNetwork, like: Any, counting: _Counting) -> Iterator[tuple[str, float, int]]:
    """Yield (case, seconds, captures) for each case, and last (digest of the model, 0, 0)."""
    variant = Ours(network, like, replay=True, natural_gradient=True, warm_up=_WARM_UP)
    wait, usual = synchronizer(like), variant._examples

    def measured(case: str) -> tuple[str, float, int]:
        wait()
        captures, start = counting.captures, time.perf_counter()
        variant.run(_MINIBATCHES)
        wait()
        return case, time.perf_counter() - start, counting.captures - captures

    yield measured("no change")
    for _, component in variant.trainer._delta.updatable_components():
        component.learning_rate *= 0.9
    yield measured("a new learning rate")
    longer = replace(network, frames=network.frames + 3 * network.subsampling)
    variant._examples = [minibatch(longer, seed) for seed in range(2)]
    yield measured("a new shape")
    variant._examples = usual
    yield measured("the shape before")
    if network.subsampling == 1:
        variant._examples = [soft_targets(network, seed) for seed in range(_MINIBATCHES)]
        yield measured("other numbers of targets")
        yield measured("the same again")
    digest = hashlib.sha256(vectorize(variant.trainer.nnet).tobytes()).hexdigest()
    yield digest, 0.0, 0


@contextlib.contextmanager
def _device(on_paper: bool) -> Iterator[tuple[Any, _Counting]]:
    """An array on the device, and the device."""
    with gpu_or_paper(on_paper) as like:
        counting: Any = _Counting(devices.get_device())
        with devices.use_device(counting):
            yield like, counting


def main() -> int:
    """The exit status: 1 if two trainings differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ["tdnn", "tdnnf", "lstm"]
    parser.add_argument("--networks", nargs="*", default=names, choices=list(NETWORKS))
    parser.add_argument("--on-paper", action="store_true")
    options = parser.parse_args()
    print(f"| network | {_MINIBATCHES} minibatches with | seconds | captures |\n|---|---|---|---|")
    good = True
    with _device(options.on_paper) as (like, counting):
        for name in options.networks:
            *cases, (digest, _, _) = run(NETWORKS[name](), like, counting)
            for case, seconds, captures in cases:
                print(f"| {name} | {case} | {seconds:.2f} | {captures} |", flush=True)
            if not options.on_paper:
                *_, (again, _, _) = run(NETWORKS[name](), like, counting)
                good &= again == digest
                result = "the same bytes" if again == digest else "OTHER BYTES"
                print(f"| {name} | two trainings: {result} | | |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Which kernels a minibatch takes on a GPU, and how long each: what CUPTI saw.

    python benchmarks/gpu/kernel_times.py [--networks tdnn ...] [--minibatches 16] [--most 40]

Needs a GPU and PyTorch, whose profiler listens to CUPTI and hears every kernel of the process. For
each network a line: time of a minibatch by the clock, from the first kernel's begin to the last
one's end, while any kernel runs, and the sum of all; by kind; then the kernels that take most:
microseconds a minibatch, launches a minibatch, microseconds each. A kernel's source is told by the
paper device of the tests: `tests/cuda/test_cuda_nodes.py` prints what a name stands for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from ours import Ours, seconds, synchronizer  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.cli.gpu import choose_device  # noqa: E402

_WARM_UP = 60
"""Minibatches after which every variant of a graph has come up."""
_PRODUCT = re.compile("gemm|gemv|cutlass|cublas", re.IGNORECASE)


def busy(spans: Iterable[tuple[float, float]]) -> float:
    """The time during which at least one of the spans (begin, end) lasts."""
    total, end = 0.0, float("-inf")
    for begin, until in sorted(spans):
        total += max(0.0, until - max(begin, end))
        end = max(end, until)
    return total


def kind(name: str) -> str:
    """The kind of a kernel: a product, or the first part of our kernel's name."""
    return "products" if _PRODUCT.search(name) else name.split("_")[0]


def report(network: BenchNetwork, device: Any, minibatches: int, most: int) -> None:
    """Train, and print the table of one network."""
    from torch.profiler import ProfilerActivity, profile

    variant, wait = Ours(network, device, True, True, warm_up=_WARM_UP), synchronizer(device)
    clock = min(seconds(variant.run, 40, wait) for _ in range(2))
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        variant.run(minibatches)
        wait()
    events = [e for e in profiled.events() if e.device_type.name == "CUDA"]
    spans = [(e.time_range.start, e.time_range.end) for e in events]
    kernels, kinds = dict[str, list[float]](), dict[str, float]()
    for event in events:
        took = event.time_range.elapsed_us()
        kernels.setdefault(event.name, []).append(took)
        kinds[kind(event.name)] = kinds.get(kind(event.name), 0.0) + took / minibatches
    span = max(end for _, end in spans) - min(begin for begin, _ in spans)
    from_first_to_last, running = (x / minibatches / 1e3 for x in (span, busy(spans)))
    print(
        f"{network.name}: {clock * 1e3:.3f} ms a minibatch by the clock; {from_first_to_last:.3f} "
        f"from first to last kernel, {running:.3f} while any runs, {sum(kinds.values()) / 1e3:.3f} "
        f"in all, {len(events) / minibatches:.1f} of them"
    )
    shares = sorted(kinds.items(), key=lambda item: -item[1])[:8]
    print("  us: " + ", ".join(f"{name} {us:.0f}" for name, us in shares))
    for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:most]:
        us, count = sum(times) / minibatches, len(times) / minibatches
        print(f"  {us:9.1f} {count:7.2f} {sum(times) / len(times):8.2f}  {name[:100]}")


def main() -> int:
    """Print the tables; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--minibatches", type=int, default=16)
    parser.add_argument("--most", type=int, default=40, metavar="KERNELS")
    parser.add_argument("--gpu-math", choices=("fp32", "tf32", "fp16", "bf16"), default="fp32")
    options = parser.parse_args()
    device = choose_device("yes", options.gpu_math)
    for name in options.networks:
        report(NETWORKS[name](), device, options.minibatches, options.most)
    return 0


if __name__ == "__main__":
    sys.exit(main())

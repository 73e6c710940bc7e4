"""Which kernels a minibatch takes on a GPU, and how long each: what CUPTI saw.

    python benchmarks/gpu/kernel_times.py [--networks tdnn ...] [--minibatches 16] [--most 40]

Needs a GPU and PyTorch, whose profiler listens to CUPTI and hears every kernel of the process. For
each network a line: time of a minibatch by the clock, from the first kernel's begin to the last
one's end, while any kernel runs, and the sum of all; by kind; time in which no kernel runs, within
graphs and between them; the graphs of the last minibatches one after the other; then the kernels
that take most: microseconds a minibatch, launches a minibatch, microseconds each. A kernel's source
is told by the paper device of the tests: `tests/cuda/test_cuda_nodes.py` prints what a name stands
for.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

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


class Graph(NamedTuple):
    """One launch: of a graph, or of a kernel by itself."""

    begin: float
    end: float
    kernels: int
    idle: float
    """Time between begin and end in which none of all kernels runs."""
    gap: float
    """The time before it in which none runs; 0 if another launch's kernel runs."""


def timeline(spans: Iterable[tuple[float, float, int]]) -> list[Graph]:
    """Launches in order of time, from the (begin, end, number of the launch) of kernels."""
    found, end = dict[int, Graph](), float("-inf")
    for begin, until, launch in sorted(spans):
        gap = max(0.0, begin - end) if found else 0.0
        if launch in found:
            first, last, kernels, idle, before = found[launch]
            found[launch] = Graph(first, max(last, until), kernels + 1, idle + gap, before)
        else:
            found[launch] = Graph(begin, until, 1, 0.0, gap)
        end = max(end, until)
    return list(found.values())


def write_timeline(launches: list[Graph], minibatches: int) -> None:
    """Print the times without kernels, and the launches of the last two minibatches."""
    idle, gaps = (sum(us) / minibatches for us in zip(*(g[3:] for g in launches), strict=True))
    count = len(launches) / minibatches
    print(f"  no kernel runs for {idle:.1f} us within {count:.1f} graphs, {gaps:.1f} between them")
    some = launches[-round(2 * count) :]
    for g in some:
        print(
            f"  {g.begin - some[0].begin:9.1f} us: gap {g.gap:6.1f}, {g.kernels:4} kernels in "
            f"{g.end - g.begin:8.1f}, none for {g.idle:6.1f}"
        )


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
    # all kernels of a graph have the correlation id of its launch
    write_timeline(
        timeline((e.time_range.start, e.time_range.end, e.id) for e in events), minibatches
    )
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

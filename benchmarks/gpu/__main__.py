"""Times training on a GPU, beside PyTorch with the same layers where it is installed.

    python benchmarks/gpu [--networks tdnn ...] [--minibatches 100] [--rounds 3] [--gpu-math fp32]
    python benchmarks/gpu --memory-check 20000 --networks tdnn lstm
    python benchmarks/gpu --digest 60

The first writes one table (Markdown) to standard output, and which targets were met. Each round
runs every variant in turn; the best time of the rounds counts. The second trains for long and says
whether memory grew (exit status 1 if so). The third prints a digest of each trained network, which
is the same in each run. `--device cpu --scale 8` is for trying this program out where there is no
GPU: minibatches are that many times smaller.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from memory_growth import check_growth  # noqa: E402
from ours import Ours, product_rate, products, seconds, synchronizer  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.cli.gpu import choose_device  # noqa: E402
from nnet3tools.errors import UserError  # noqa: E402
from nnet3tools.io import log  # noqa: E402
from nnet3tools.nnet.arithmetic import vectorize  # noqa: E402

OURS = {
    "graph, NG": (True, True),
    "graph, plain": (True, False),
    "no graph, NG": (False, True),
    "no graph, plain": (False, False),
}
"""Column -> (graph replay, natural gradient)."""
TORCH = ("torch eager", "torch graph", "torch.compile")
LARGE = ("large-tdnnf", "large-lstm")
_CAPTURES = 60
"""Minibatches after which every variant of a graph has come up, as in host_time.py."""


def measure(network: BenchNetwork, device: Any, options: argparse.Namespace) -> dict[str, float]:
    """Variant -> frames a second."""
    wait = synchronizer(device)
    variants: dict[str, tuple[Callable[[int], None], Callable[[], None]]] = {}
    half = options.gpu_math == "fp16"
    for name, (replay, natural) in {} if options.no_ours else OURS.items():
        warm_up = {"warm_up": _CAPTURES} if replay and options.device == "gpu" else {}
        variants[name] = Ours(network, device, replay, natural, half, **warm_up).run, wait
    if not options.no_torch:
        try:
            import torch_networks

            made = torch_networks.variants(
                network, options.device, options.gpu_math, not options.no_compile
            )
            variants |= made
        except ImportError:
            log.warning("PyTorch is not installed: its columns stay empty")
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        for name, (run, wait_for) in variants.items():
            took = seconds(run, options.minibatches, wait_for)
            best[name] = min(best.get(name, took), took)
    frames = network.minibatch * network.frames
    return {name: frames / took for name, took in best.items()}


def targets(name: str, found: dict[str, float]) -> list[str]:
    """Which targets were met: beside PyTorch's graph, and of the large networks its best mode."""
    lines = []

    def line(what: str, ratio: float, wanted: float) -> None:
        verdict = "met" if ratio >= wanted else "MISSED"
        lines.append(f"- {name}: {what} {ratio:.2f} (target {wanted:g}): {verdict}")

    if "torch graph" in found:
        line("of PyTorch's graph", found["graph, NG"] / found["torch graph"], 1.0)
        line("of it, plain", found["graph, plain"] / found["torch graph"], 1.3)
        if name in LARGE:
            best = max(found[mode] for mode in TORCH if mode in found)
            line("of PyTorch's best mode, plain", found["graph, plain"] / best, 0.9)
    if name not in LARGE:
        line("of our run without graphs", found["graph, NG"] / found["no graph, NG"], 3.0)
    return lines


def write_table(chosen: list[BenchNetwork], device: Any, options: argparse.Namespace) -> None:
    """One line a network, as soon as it is measured; then the targets."""
    on_gpu, columns = options.device == "gpu", (*OURS, *TORCH)
    rate = product_rate(device) if on_gpu else 0.0
    print("| network | " + " | ".join(columns) + " | time in products | of the product rate |")
    print("|---" * (len(columns) + 3) + "|", flush=True)
    lines = []
    for network in chosen:
        found = measure(network, device, options)
        cells = [f"{found[c]:,.0f}" if c in found else "" for c in columns]
        share = fraction = ""
        if on_gpu and not options.no_ours:
            took, flops = products(network, device)
            step = network.minibatch * network.frames / found["graph, NG"]
            share, fraction = f"{took / step:.0%}", f"{flops / step / rate:.0%}"
            lines += targets(network.name, found)
        print(f"| {network.name} | " + " | ".join([*cells, share, fraction]) + " |", flush=True)
    if lines:
        print("\nTargets:\n\n" + "\n".join(lines))


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--minibatches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--gpu-math", choices=("fp32", "tf32", "fp16", "bf16"), default="fp32")
    parser.add_argument("--scale", type=int, default=1, help="divide minibatches by this")
    parser.add_argument("--no-ours", action="store_true", help="only PyTorch")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument("--check-device", action="store_true", help="only say whether it works")
    parser.add_argument("--memory-check", type=int, default=0, metavar="MINIBATCHES")
    parser.add_argument("--digest", type=int, default=0, metavar="MINIBATCHES")
    options = parser.parse_args()
    log.set_program("benchmarks/gpu")
    try:
        device = choose_device("yes" if options.device == "gpu" else "no", options.gpu_math)
    except UserError as error:
        log.error_line(str(error))
        return 1
    if options.check_device:
        return 0
    chosen = [NETWORKS[name]() for name in options.networks]
    chosen = [replace(n, minibatch=max(1, n.minibatch // options.scale)) for n in chosen]
    if options.device == "gpu":
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
        print(f"Device: {name}; --gpu-math={options.gpu_math}; frames a second.\n")
    if options.memory_check:
        good = [check_growth(network, device, options.memory_check) for network in chosen]
        return 0 if all(good) else 1
    for network in chosen if options.digest else ():
        trainer = Ours(network, device, True, True, warm_up=options.digest).trainer
        digest = hashlib.sha256(vectorize(trainer.nnet).tobytes()).hexdigest()
        print(f"{network.name}: {digest}", flush=True)
    if not options.digest:
        write_table(chosen, device, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

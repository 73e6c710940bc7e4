"""What each improvement for GPUs is worth: training with one of them switched off in turn.

    python benchmarks/gpu/without.py [--networks tdnnf ...] [--on-paper]

Prints milliseconds a minibatch, or with `--on-paper`, which needs no GPU, what the cost model
counts. Each case has a process of its own, because kernels are kept within one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "tests")]

import cost_model  # noqa: E402
from ours import Ours, seconds, synchronizer  # noqa: E402

from networks import NETWORKS, BenchNetwork  # noqa: E402
from nnet3tools.cli.gpu import choose_device  # noqa: E402
from nnet3tools.nnet.components.tdnn import TdnnComponent, TdnnIndexes  # noqa: E402
from nnet3tools.tensor.cuda import aggregate, launches, products  # noqa: E402

_MINIBATCHES, _ROUNDS = 100, 3
MACHINE = cost_model.Machine(132, 2.2, 50.0, 2.8, 60.0, 0.4, 30.0)
"""An H100, as in cost_model.py."""
APART = "one product for all time offsets"

SWITCHES: dict[str, list[tuple[Any, str, Any]]] = {
    "nothing": [],
    APART: [
        (TdnnComponent, "_splices", False), (TdnnIndexes, "joined", lambda *_: None),
    ],
    "loads by fours in sums": [(aggregate, "_LONG", 1 << 62)],
    "square norms that load once": [(products, "overlap", lambda *_: "")],
    "more blocks for sums of columns": [(launches, "_SLICES", 0)],
    "cuBLAS (in its place cublasLt)": [
        (os, "environ", os.environ | {"NNET3TOOLS_GPU_PRODUCTS": "cublaslt"}),
    ],
}  # fmt: skip
"""What is switched off -> the attributes, each as (object, name, value), that switch it off."""


def switch_off(case: str) -> None:
    """Leave one of `SWITCHES` out for the rest of this process."""
    for owner, name, value in SWITCHES[case]:
        setattr(owner, name, value)


def measure(network: BenchNetwork, on_paper: bool) -> str:
    """The figures of one network, as they are now."""
    if on_paper:
        found = cost_model.cost(cost_model.recorded(network, MACHINE, 8), MACHINE)
        figures = f"{found.nodes} nodes, {found.products:.0f} products, {found.megabytes:.0f} MB"
        return f"{figures}, {found.total_ms:.2f} ms (model)"
    like = choose_device("yes")
    variant, wait = Ours(network, like, True, True, warm_up=_MINIBATCHES), synchronizer(like)
    times = [seconds(variant.run, _MINIBATCHES, wait) for _ in range(_ROUNDS)]
    return f"{np.median(times) * 1e3:.3f} ms"


def main() -> int:
    """The exit status: that of the first case that fails, or 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = ["tdnn", "tdnnf", "lstm"]
    parser.add_argument("--networks", nargs="*", default=names, choices=list(NETWORKS))
    parser.add_argument("--on-paper", action="store_true")
    parser.add_argument("--case", choices=list(SWITCHES), help="only this one, in this process")
    options = parser.parse_args()
    if options.case:
        switch_off(options.case)
        for name in options.networks:
            figures = measure(NETWORKS[name](), options.on_paper)
            print(f"| {options.case} | {name} | {figures} |", flush=True)
        return 0
    print("| without | network | a minibatch |\n|---|---|---|", flush=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--case"]
    statuses = [subprocess.run([*command, case], env=os.environ).returncode for case in SWITCHES]
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main())

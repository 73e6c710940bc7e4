"""Trains a bench network with PyTorch, eager, on the CPU: `torch_train.py NAME MINIBATCHES`.

Prints the user seconds of the minibatches, without the start. benchmarks/run calls it, with any
Python that has PyTorch and NumPy.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "gpu")]


def main() -> None:
    """Time it."""
    import torch
    import torch_networks

    import networks

    torch.set_num_threads(1)
    name, count = sys.argv[1], int(sys.argv[2])
    step = torch_networks.eager_step(getattr(networks, name)(), "cpu")
    step()  # what the first one has to set up
    began = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for _ in range(count):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_utime - began)


if __name__ == "__main__":
    main()

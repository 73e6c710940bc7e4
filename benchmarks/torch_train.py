"""Trains a bench network with PyTorch on the CPU: `torch_train.py NAME COUNT THREADS [compiled]`.

It runs eagerly, or by torch.compile. Prints user and elapsed seconds of COUNT minibatches, without
the start and three minibatches before them. benchmarks/run calls it, with any Python that has
PyTorch and NumPy.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "gpu")]


def main() -> None:
    """Train, and print the times."""
    import torch
    import torch_networks

    import networks

    name, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    step = torch_networks.step(getattr(networks, name)(), "cpu", "compiled" in sys.argv[4:])
    for _ in range(3):
        step()  # the first ones set up, or compile
    clock, began = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for _ in range(count):
        step()
    user = resource.getrusage(resource.RUSAGE_SELF).ru_utime - began
    print(user, time.perf_counter() - clock)


if __name__ == "__main__":
    main()

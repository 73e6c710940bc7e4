"""Whether memory grows in a long training."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import numpy as np
from ours import Ours

from networks import BenchNetwork

_PARTS = 10
_TOLERANCE = 4 << 20
"""Bytes that may come and go: pools are rounded up, and the host's allocator has its own ways."""


def check_growth(network: BenchNetwork, device: Any, minibatches: int) -> bool:
    """Train, print a line for each tenth; whether memory stayed as it was after the second.

    Of a GPU its memory in use; of the host the process's resident memory.
    """
    variant = Ours(network, device, replay=True, natural_gradient=True)
    part = max(1, minibatches // _PARTS)
    used = []
    for i in range(_PARTS):
        variant.run(part)
        used.append(_used_bytes(device))
        print(f"{network.name}: after {(i + 1) * part} minibatches {used[-1] / 2**20:.1f} MB")
    growth = used[-1] - used[1]
    grew = growth > _TOLERANCE
    print(f"{network.name}: {'GREW by' if grew else 'no growth:'} {growth / 2**20:.1f} MB")
    return not grew


def _used_bytes(device: Any) -> int:
    if not isinstance(device, np.ndarray):
        from nnet3tools.tensor.cuda.device import get_device

        free, total = get_device().memory()
        return total - free
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

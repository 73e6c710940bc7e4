"""Dependencies between launches: two that share memory which at least one of them writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.addresses import span
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.launches import Launch, LibraryCall


def dependencies(nodes: Sequence[Launch | LibraryCall]) -> list[set[int]]:
    """For each node, the earlier nodes with which it shares memory that one of them writes."""
    owners, arrays, writes = list[int](), list[Array](), list[bool]()
    for i, node in enumerate(nodes):
        written = {id(a) for a in node.writes}
        for a in {id(a): a for a in (*node.reads, *node.writes)}.values():
            owners.append(i)
            arrays.append(a)
            writes.append(id(a) in written)
    owner, write = np.array(owners), np.array(writes, bool)
    low, high, pitch, width = np.array([span(a) for a in arrays], np.int64).reshape(-1, 4).T
    found: list[set[int]] = [set() for _ in nodes]
    for k in range(len(owners)):
        begin = int(np.searchsorted(owner, owner[k]))
        meets = (low[:begin] < high[k]) & (low[k] < high[:begin])
        if not write[k]:
            meets &= write[:begin]
        (others,) = np.nonzero(meets)
        if pitch[k] and others.size:
            gap = (low[others] - low[k]) % pitch[k]
            apart = (pitch[others] == pitch[k]) & (gap >= width[k])
            others = others[~(apart & (gap + width[others] <= pitch[k]))]
        found[owner[k]].update(owner[others].tolist())
    return found

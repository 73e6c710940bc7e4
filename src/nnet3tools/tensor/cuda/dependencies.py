"""Dependencies between launches: two that share memory which at least one of them writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.cuda.device import Array, pointer
from nnet3tools.tensor.cuda.launches import Launch, LibraryCall


def _spans(arrays: Sequence[Array]) -> np.ndarray:
    """A row for each array: first byte, one past the last byte, pitch and width in bytes.

    Pitch and width are 0 unless the array is a block of columns of a matrix.
    """
    rows = np.zeros((len(arrays), 4), np.int64)
    for row, a in zip(rows, arrays, strict=True):
        low = high = pointer(a)
        if 0 in a.shape:
            row[:2] = low
            continue
        for size, stride in zip(a.shape, a.strides, strict=True):
            if stride < 0:
                low += (size - 1) * stride
            else:
                high += (size - 1) * stride
        row[:2] = low, high + a.dtype.itemsize
        if a.ndim == 2 and a.strides[1] > 0 and a.shape[0] > 1:
            width = (a.shape[1] - 1) * a.strides[1] + a.dtype.itemsize
            if 0 < width <= a.strides[0]:
                row[2:] = a.strides[0], width
    return rows


def dependencies(nodes: Sequence[Launch | LibraryCall]) -> list[set[int]]:
    """For each node, the numbers of the earlier nodes that it must wait for."""
    owners, arrays, writes = list[int](), list[Array](), list[bool]()
    for i, node in enumerate(nodes):
        written = {id(a) for a in node.writes}
        for a in {id(a): a for a in (*node.reads, *node.writes)}.values():
            owners.append(i)
            arrays.append(a)
            writes.append(id(a) in written)
    spans, owner, write = _spans(arrays), np.array(owners), np.array(writes, bool)
    low, high, pitch, width = spans.T
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

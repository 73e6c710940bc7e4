"""The acceptors of a minibatch packed into two arrays, `ints` and `costs`.

A captured CUDA graph has fixed addresses and sizes. It serves other minibatches because everything
that differs is in these two arrays, whose sizes are rounded up (`capacity`). `ints` begins with an
offset for each name in INT_PARTS (into `ints`) and COST_PARTS (into `costs`).

The arcs of each frame are stored three times: sorted by destination, by source and by cell, and by
acceptor before that. So one thread computes each sum, and adds its terms in a fixed order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.tensor.offsets import capacity
from nnet3tools.tensor.operators.numerator import FrameArcs, PackedPaths, Paths

_TABLES = {"to": ("destinations", "sources"), "from": ("sources", "destinations")}
"""Name of a table -> the attribute that its arcs are sorted by, the states at the other end."""

INT_PARTS = (
    "parts", "which", "first_states", "first_cells", "starts", "finals", "final_offsets",
    *(f"{table}_{part}" for table in _TABLES for part in
      ("ranges", "offsets", "keys", "others", "cells")),
    "cell_ranges", "cell_offsets", "cell_keys", "cell_others", "cell_sources",
)  # fmt: skip
COST_PARTS = ("final_costs", "to_costs", "from_costs", "cell_costs")


class _Sorted:
    """The arcs of some frames, sorted by acceptor, then by a key: an attribute of FrameArcs.

    Arcs with equal keys are a group. In frame t the groups of acceptor p begin at ranges[t, p]
    and end before ranges[t, p + 1]. Likewise the arcs of group g are between offsets[g] and
    offsets[g + 1]; they have the key keys[g].
    """

    def __init__(self, frames: list[FrameArcs], num_parts: int, key: str) -> None:
        self.orders, keys, offsets, ranges = [], [], [np.zeros(1, np.int64)], []
        num_arcs = num_groups = 0
        for frame in frames:
            values = getattr(frame, key)
            order = np.lexsort((values, frame.parts))
            self.orders.append(order)
            values, parts = values[order], frame.parts[order]
            first = np.flatnonzero(np.diff(values, prepend=-1) | np.diff(parts, prepend=-1))
            keys.append(values[first])
            offsets.append(np.append(first[1:], len(values)) + num_arcs)
            bounds = np.searchsorted(parts[first], np.arange(num_parts + 1))
            ranges.append(bounds + num_groups)
            num_arcs, num_groups = num_arcs + len(values), num_groups + len(first)
        self.frames = frames
        self.keys = np.concatenate(keys)
        self.offsets = np.concatenate(offsets)
        self.ranges = np.stack(ranges)

    def column(self, name: str) -> NDArray:
        """An attribute of FrameArcs, such as "costs", for all arcs in sorted order."""
        pairs = zip(self.frames, self.orders, strict=True)
        return np.concatenate([getattr(frame, name)[order] for frame, order in pairs])

    def arrays(self, prefix: str, **columns: str) -> dict[str, NDArray]:
        """The arrays ranges, offsets, keys and `columns`, by name, with `prefix` and _ in front.

        `columns`: NAME="attribute" adds the array NAME, the values of this attribute of FrameArcs.
        """
        own = {"ranges": self.ranges, "offsets": self.offsets, "keys": self.keys}
        others = {name: self.column(column) for name, column in columns.items()}
        return {f"{prefix}_{name}": array for name, array in {**own, **others}.items()}


def pack_paths(paths: Paths, num_parts: int = 0) -> PackedPaths:
    """The paths as PackedPaths on the host, whose `num_parts` is at least the given one.

    ValueError if the output has too many elements to be counted with 32 bits.
    """
    arrays = _arrays(paths)
    if max(int(array.max(initial=0)) for array in arrays.values()) >= 1 << 31:
        raise ValueError("an output of more than 2^31 elements")
    ints = _joined([arrays[name] for name in INT_PARTS], np.int32)
    costs = _joined([arrays[name] for name in COST_PARTS], np.float64)
    at = np.cumsum([len(INT_PARTS) + len(COST_PARTS), *(arrays[n].size for n in INT_PARTS)])
    at_costs = np.cumsum([0, *(arrays[n].size for n in COST_PARTS)])
    header = np.concatenate([at[:-1], at_costs[:-1]]).astype(np.int32)
    packed = np.zeros(capacity(len(header) + len(ints)), np.int32)
    packed[: len(header)], packed[len(header) : len(header) + len(ints)] = header, ints
    room = np.zeros(capacity(len(costs)), np.float64)
    room[: len(costs)] = costs
    return PackedPaths(
        packed,
        room,
        max(num_parts, paths.num_parts),
        capacity(int(paths.first_states[-1])),
        len(paths.frames),
    )


def _joined(arrays: list[NDArray], dtype: type) -> NDArray:
    return np.concatenate([array.reshape(-1) for array in arrays]).astype(dtype)


def _arrays(paths: Paths) -> dict[str, NDArray]:
    """The arrays to pack, by their names in INT_PARTS (integers) and COST_PARTS (costs)."""
    distinct, which = paths.distinct_frames()
    order = np.argsort(paths.final_parts, kind="stable")
    found = {
        "parts": np.array([paths.num_parts]),
        "which": which,
        "first_states": paths.first_states,
        "first_cells": paths.first_cells,
        "starts": paths.starts,
        "finals": paths.finals[order],
        "final_costs": paths.final_costs[order],
        "final_offsets": np.searchsorted(paths.final_parts[order], np.arange(paths.num_parts + 1)),
    }
    for table, (key, others) in _TABLES.items():
        by_key = _Sorted(distinct, paths.num_parts, key)
        found |= by_key.arrays(table, others=others, cells="cells", costs="costs")
    by_cell = _Sorted(distinct, paths.num_parts, "cells")
    return found | by_cell.arrays("cell", others="destinations", sources="sources", costs="costs")

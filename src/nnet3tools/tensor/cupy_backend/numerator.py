"""The numerator's forward-backward on CUDA: one kernel each way, a block of threads an acceptor.

The arcs of each frame are stored three times, sorted by destination, source and cell, and within
these by acceptor, so that each sum is one thread's and its terms come in one order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import fill
from nnet3tools.tensor.cupy_backend.device import Array
from nnet3tools.tensor.cupy_backend.indexes import sent
from nnet3tools.tensor.cupy_backend.strided import block_step
from nnet3tools.tensor.numerator import FrameArcs, Paths
from nnet3tools.tensor.registry import implements

_THREADS = 64

_SCORE = "(output[[cell / columns, cell % columns]] - {0}_costs[[k]])"

_FORWARD = """
    if (threadIdx.x == 0) alpha[[starts[[p]]]] = 0.0;
    __syncthreads();
    for (long long t = 0; t < frames; ++t) {
      const int f = which[[t]], now = first_states[[t]], after = first_states[[t + 1]];
      for (int g = to_ranges[[f, p]] + threadIdx.x; g < to_ranges[[f, p + 1]]; g += blockDim.x) {
        nn_LogSumExp<double> acc; acc.init();
        for (int k = to_offsets[[g]]; k < to_offsets[[g + 1]]; ++k) {
          const long long cell = first_cells[[t]] + to_cells[[k]];
          acc.add(alpha[[now + to_others[[k]]]] + SCORE);
        }
        alpha[[after + to_keys[[g]]]] = acc.value();
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      nn_LogSumExp<double> acc; acc.init();
      for (int k = final_offsets[[p]]; k < final_offsets[[p + 1]]; ++k)
        acc.add(alpha[[finals[[k]]]] - final_costs[[k]]);
      totals[[p]] = acc.value();
    }""".replace("SCORE", _SCORE.format("to"))

_BACKWARD = """
    for (int k = final_offsets[[p]] + threadIdx.x; k < final_offsets[[p + 1]]; k += blockDim.x)
      beta[[finals[[k]]]] = -final_costs[[k]] - totals[[p]];
    for (long long t = frames - 1; t >= 0; --t) {
      __syncthreads();
      const int f = which[[t]], now = first_states[[t]], after = first_states[[t + 1]];
      for (int g = from_ranges[[f, p]] + threadIdx.x; g < from_ranges[[f, p + 1]];
           g += blockDim.x) {
        nn_LogSumExp<double> acc; acc.init();
        for (int k = from_offsets[[g]]; k < from_offsets[[g + 1]]; ++k) {
          const long long cell = first_cells[[t]] + from_cells[[k]];
          acc.add(beta[[after + from_others[[k]]]] + FROM_SCORE);
        }
        beta[[now + from_keys[[g]]]] = acc.value();
      }
      for (int g = cell_ranges[[f, p]] + threadIdx.x; g < cell_ranges[[f, p + 1]];
           g += blockDim.x) {
        const long long cell = first_cells[[t]] + cell_keys[[g]];
        double sum = 0.0;
        for (int k = cell_offsets[[g]]; k < cell_offsets[[g + 1]]; ++k)
          sum += exp(alpha[[now + cell_sources[[k]]]] + beta[[after + cell_others[[k]]]]
                     + CELL_SCORE);
        deriv[[cell / columns, cell % columns]] += T(weight * sum);
      }
    }""".replace("FROM_SCORE", _SCORE.format("from")).replace("CELL_SCORE", _SCORE.format("cell"))

_column_sums = aggregate("_1", "sum", axis=0)


class _Sorted:
    """The arcs of some frames, sorted by a key and grouped by it.

    `ranges` (frames, parts + 1) says which groups are each acceptor's in each frame, `offsets`
    which arcs are a group's, `keys` what these have in common.
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

    def column(self, name: str) -> np.ndarray:
        """An attribute of the arcs, in their order here."""
        pairs = zip(self.frames, self.orders, strict=True)
        return np.concatenate([getattr(frame, name)[order] for frame, order in pairs])

    def arrays(self, prefix: str, others: str) -> dict[str, Array]:
        """On the device, with names for the kernels; `others` are the states at the other end."""
        return {
            f"{prefix}_keys": sent(self.keys),
            f"{prefix}_offsets": sent(self.offsets),
            f"{prefix}_ranges": sent(self.ranges),
            f"{prefix}_others": sent(self.column(others)),
            f"{prefix}_costs": sent(self.column("costs"), np.float64),
        }


def _by_frame(paths: Paths) -> tuple[list[FrameArcs], dict[str, Array]]:
    """The frames' arcs without repetition; which are each frame's, and where its states begin."""
    distinct = list({id(frame): frame for frame in paths.frames}.values())
    number = {id(frame): i for i, frame in enumerate(distinct)}
    order = np.argsort(paths.final_parts, kind="stable")
    bounds = np.searchsorted(paths.final_parts[order], np.arange(paths.num_parts + 1))
    return distinct, {
        "which": sent([number[id(frame)] for frame in paths.frames]),
        "first_states": sent(paths.first_states),
        "first_cells": sent(paths.first_cells, np.int64),
        "starts": sent(paths.starts),
        "finals": sent(paths.finals[order]),
        "final_costs": sent(paths.final_costs[order], np.float64),
        "final_offsets": sent(bounds),
    }


@implements("numerator", "cupy")
def numerator(
    results: Array, output: Array, paths: Paths, deriv: Array | None = None, weight: float = 1.0
) -> None:
    """In float64."""
    frames, shared = _by_frame(paths)
    space = {"p": paths.num_parts}
    num_states = int(paths.first_states[-1])
    numbers: dict[str, Any] = {
        "frames": np.int64(len(paths.frames)),
        "columns": np.int64(output.shape[1]),
    }
    with (
        scratch((2, num_states), like=output, dtype=np.float64) as both,
        scratch((paths.num_parts,), like=output, dtype=np.float64) as totals,
    ):
        fill(both, -np.inf)
        arrays = {"output": output, "alpha": both[0], "totals": totals, **shared}
        to = _Sorted(frames, paths.num_parts, "destinations")
        forward = {**arrays, **to.arrays("to", "sources"), "to_cells": sent(to.column("cells"))}
        block_step("numerator", space, _THREADS, forward, _FORWARD, **numbers)()
        if deriv is not None:
            arrays |= {"beta": both[1], "deriv": deriv, **_backward_arrays(frames, paths)}
            numbers["weight"] = np.float64(weight)
            block_step("numerator_back", space, _THREADS, arrays, _BACKWARD, **numbers)()
        _column_sums(results, totals[:, None])


def _backward_arrays(frames: list[FrameArcs], paths: Paths) -> dict[str, Array]:
    by_source = _Sorted(frames, paths.num_parts, "sources")
    by_cell = _Sorted(frames, paths.num_parts, "cells")
    return {
        **by_source.arrays("from", "destinations"),
        "from_cells": sent(by_source.column("cells")),
        **by_cell.arrays("cell", "destinations"),
        "cell_sources": sent(by_cell.column("sources")),
    }

"""The numerator's forward-backward on CUDA: one kernel each way, a block of threads an acceptor.

Where arcs and states are is looked up in the minibatch's two arrays (tensor/packed_paths.py), so
that a captured graph serves other minibatches.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import fill
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.cuda.strided import block_step
from nnet3tools.tensor.operators.numerator import PackedPaths, Paths
from nnet3tools.tensor.operators.numerator.packed_paths import COST_PARTS, INT_PARTS, pack_paths
from nnet3tools.tensor.registry import implements

_THREADS = 256
"""The number of threads that kernels of fused levels have."""

_SCORE = "(output[[cell / columns, cell % columns]] - {0}_costs[k])"

_FORWARD = """
    const int num_parts = parts[0];
    if (threadIdx.x == 0) {
      totals[[p]] = 0.0;
      if (p < num_parts) alpha[starts[p]] = 0.0;
    }
    __syncthreads();
    if (p >= num_parts) continue;
    for (long long t = 0; t < frames; ++t) {
      const int now = first_states[t], after = first_states[t + 1];
      const int* const range = to_ranges + which[t] * (num_parts + 1) + p;
      for (int g = range[0] + threadIdx.x; g < range[1]; g += blockDim.x) {
        nn_LogSumExp<double> acc; acc.init();
        for (int k = to_offsets[g]; k < to_offsets[g + 1]; ++k) {
          const long long cell = first_cells[t] + to_cells[k];
          acc.add(alpha[now + to_others[k]] + SCORE);
        }
        alpha[after + to_keys[g]] = acc.value();
      }
      __syncthreads();
    }
    if (threadIdx.x == 0) {
      nn_LogSumExp<double> acc; acc.init();
      for (int k = final_offsets[p]; k < final_offsets[p + 1]; ++k)
        acc.add(alpha[finals[k]] - final_costs[k]);
      totals[[p]] = acc.value();
    }""".replace("SCORE", _SCORE.format("to"))

_BACKWARD = """
    const int num_parts = parts[0];
    if (p >= num_parts) continue;
    for (int k = final_offsets[p] + threadIdx.x; k < final_offsets[p + 1]; k += blockDim.x)
      beta[finals[k]] = -final_costs[k] - totals[[p]];
    for (long long t = frames - 1; t >= 0; --t) {
      __syncthreads();
      const int now = first_states[t], after = first_states[t + 1];
      const int* const range = from_ranges + which[t] * (num_parts + 1) + p;
      for (int g = range[0] + threadIdx.x; g < range[1]; g += blockDim.x) {
        nn_LogSumExp<double> acc; acc.init();
        for (int k = from_offsets[g]; k < from_offsets[g + 1]; ++k) {
          const long long cell = first_cells[t] + from_cells[k];
          acc.add(beta[after + from_others[k]] + FROM_SCORE);
        }
        beta[now + from_keys[g]] = acc.value();
      }
      const int* const cells = cell_ranges + which[t] * (num_parts + 1) + p;
      for (int g = cells[0] + threadIdx.x; g < cells[1]; g += blockDim.x) {
        const long long cell = first_cells[t] + cell_keys[g];
        double sum = 0.0;
        for (int k = cell_offsets[g]; k < cell_offsets[g + 1]; ++k)
          sum += exp(alpha[now + cell_sources[k]] + beta[after + cell_others[k]]
                     + CELL_SCORE);
        deriv[[cell / columns, cell % columns]] += T(weight * sum);
      }
    }""".replace("FROM_SCORE", _SCORE.format("from")).replace("CELL_SCORE", _SCORE.format("cell"))

_column_sums = aggregate("_1", "sum", axis=0)


def _with_parts(body: str) -> str:
    """A body with the parts of both arrays that it uses, by name."""
    lines = []
    for i, name in enumerate((*INT_PARTS, *COST_PARTS)):
        if re.search(rf"\b{name}\b", body):
            kind, of = ("int", "ints") if name in INT_PARTS else ("double", "costs")
            lines.append(f"    const {kind}* const {name} = &{of}[[ints[[{i}]]]];")
    return "\n".join(lines) + body


_FORWARD, _BACKWARD = map(_with_parts, (_FORWARD, _BACKWARD))


@implements("numerator", "cupy")
def numerator(
    results: Array,
    output: Array,
    paths: Paths | PackedPaths,
    deriv: Array | None = None,
    weight: float = 1.0,
) -> None:
    """In float64."""
    if isinstance(paths, Paths):
        packed = pack_paths(paths)
        ints, costs = sent(packed.ints), sent(packed.costs, np.float64)
    else:
        packed, ints, costs = paths, paths.ints, paths.costs
    space = {"p": packed.num_parts}
    numbers: dict[str, Any] = {
        "frames": np.int64(packed.num_frames),
        "columns": np.int64(output.shape[1]),
    }
    with (
        scratch((2, packed.num_states), like=output, dtype=np.float64) as both,
        scratch((packed.num_parts,), like=output, dtype=np.float64) as totals,
    ):
        fill(both, -np.inf)
        arrays = {
            "output": output, "ints": ints, "costs": costs, "alpha": both[0], "totals": totals,
        }  # fmt: skip
        block_step("numerator", space, _THREADS, arrays, _FORWARD, writes=[both[0]], **numbers)()
        if deriv is not None:
            arrays |= {"beta": both[1], "deriv": deriv}
            numbers["weight"] = np.float64(weight)
            block_step(
                "numerator_back", space, _THREADS, arrays, _BACKWARD, writes=[both[1]], **numbers
            )()
        _column_sums(results, totals[:, None])

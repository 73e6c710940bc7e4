"""The numerator's forward-backward on CUDA: a kernel for each direction.

The kernels find arcs and states in the two arrays of a minibatch (packed_paths.py), so a captured
graph serves other minibatches.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import fill
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import sent
from nnet3tools.tensor.operators.numerator import PackedPaths, Paths
from nnet3tools.tensor.operators.numerator.packed_paths import COST_PARTS, INT_PARTS, pack_paths
from nnet3tools.tensor.registry import implements

_THREADS = 256
"""The number of threads that kernels of fused levels have."""

_functions = cuda_functions(__file__)
_column_sums = aggregate("_1", "sum", axis=0)


def _packed_arrays(body: str) -> str:
    """C++ declarations of those packed arrays of a minibatch that a function body names."""
    lines = []
    for i, name in enumerate((*INT_PARTS, *COST_PARTS)):
        if re.search(rf"\b{name}\b", body):
            kind, of = ("int", "ints") if name in INT_PARTS else ("double", "costs")
            lines.append(f"const {kind}* const {name} = &{of}(ints({i}));")
    return "\n  ".join(lines)


def _by_blocks(name: str, packed: PackedPaths, **operands: Any) -> Callable[[], None]:
    """Bind function `name` of kernel.cuh to `packed` paths and operands; a block per acceptor."""
    function = _functions[name]
    words = {"PACKED_ARRAYS": _packed_arrays(function.body)}
    return function.by_blocks(
        (packed.num_parts,), _THREADS, frames=packed.num_frames, words=words, **operands
    )


@implements("numerator", "cupy")
def numerator(
    results: Array,
    output: Array,
    paths: Paths | PackedPaths,
    deriv: Array | None = None,
    weight: float = 1.0,
) -> None:
    """The operator `numerator` on a GPU, in float64; `paths` in host memory are uploaded first."""
    if isinstance(paths, Paths):
        packed = pack_paths(paths)
        ints, costs = sent(packed.ints), sent(packed.costs, np.float64)
    else:
        packed, ints, costs = paths, paths.ints, paths.costs
    with (
        scratch((2, packed.num_states), like=output, dtype=np.float64) as both,
        scratch((packed.num_parts,), like=output, dtype=np.float64) as totals,
    ):
        fill(both, -np.inf)
        arrays = {
            "output": output, "ints": ints, "costs": costs, "alpha": both[0], "totals": totals,
            "columns": output.shape[1],
        }  # fmt: skip
        _by_blocks("numerator", packed, **arrays)()
        if deriv is not None:
            arrays |= {"beta": both[1], "deriv": deriv, "weight": weight}
            _by_blocks("numerator_back", packed, **arrays)()
        _column_sums(results, totals[:, None])

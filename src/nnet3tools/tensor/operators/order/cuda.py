"""Sorting along an axis on CUDA: in shared memory, then by merging.

Indexes are sorted by their values and, for equal values, by themselves (nn_before in prelude.cuh),
so equal elements keep their order. A block sorts as much of a line as fits into shared memory, by
Batcher's bitonic network. Each later pass merges pairs of sorted runs: a thread finds the place of
one index by bisection. If few indexes are wanted, a block finds one after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.function_files import cuda_functions, last_axis
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_FEW = 16
"""Up to this many indexes are found one after the other, each by a pass over the line."""
_LARGEST_RUN = 2048
"""Indexes that a block sorts in 24 KB of shared memory."""

_functions = cuda_functions(__file__)


@implements("sort_indexes", "cupy", types=("int32",), binder=True)
def bind_sort_indexes(out: Array, x: Array, axis: int, descending: bool) -> Step:
    """A callable that runs `sort_indexes`: it selects up to 16 indexes, else merges sorted runs."""
    to, of = last_axis(out, axis), last_axis(x, axis)
    wanted, length = to.shape[3], of.shape[3]
    numbers = {"sign": -1.0 if descending else 1.0, "wanted": wanted, "count": length}
    if wanted <= _FEW < length:
        select = _functions["select_indexes"]
        return select.by_blocks(of.shape[:3], length, out=to, x=of, **numbers)
    run = min(_LARGEST_RUN, max(2, 1 << (length - 1).bit_length())) if length else 2
    if length <= run:
        return _sorted_runs(to, of, run, numbers)
    buffers = [get_device().empty(of.shape, np.int32) for _ in range(2)]
    steps = [_sorted_runs(buffers[0], of, run, {**numbers, "wanted": length})]
    while run < length:
        is_last = 2 * run >= length
        given = {**numbers, "wanted": wanted if is_last else length, "run": run}
        arrays = {"out": to if is_last else buffers[1], "x": of, "from": buffers[0]}
        steps.append(_functions["merge_runs"].on_grid(of.shape, **arrays, **given))
        buffers.reverse()
        run *= 2
    return in_turn(steps)


def _sorted_runs(out: Array, x: Array, run: int, numbers: dict[str, Any]) -> Step:
    """A callable that sorts each `run` elements of x: sets `out` to their indexes in order.

    `numbers` are the kernel's other arguments.
    """
    shape = (*x.shape[:3], -(-x.shape[3] // run))
    return _functions["sort_indexes"].by_blocks(
        shape, run // 2, out=out, x=x, words={"SIZE": run}, **numbers
    )


@implements("cumulative_sum", "cupy", binder=True)
def bind_cumulative_sum(
    out: Array, x: Array, axis: int, reverse: bool, exclusive: bool, beta: float = 0.0
) -> Step:
    """A callable that runs `cumulative_sum`, with one thread for each line along the axis."""
    to, of = last_axis(out, axis), last_axis(x, axis)
    return _functions["cumulative_sum"].on_grid(
        to.shape[:3], out=to, x=of, length=x.shape[axis], reverse=reverse, exclusive=exclusive,
        beta=beta,
    )  # fmt: skip

"""Sorting along an axis on CUDA: in shared memory, then by merging.

What is sorted are places, by a total order of their values (nn_before in prelude.cuh), so that
equal ones keep their order. A block sorts as much of a line as it has shared memory for, by
Batcher's bitonic network; in each pass after that every place finds by bisection where it goes in
its run and the next one together. Where few places are wanted a block finds one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.launch import in_turn
from nnet3tools.tensor.cuda.strided import block_step, grid_step, last_axis, space_of
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_FEW = 16
"""Places that are found one after the other: each takes a look at the whole line."""
_LARGEST_RUN = 2048
"""Places that a block sorts in 24 KB of shared memory."""

_SELECT = """
    __shared__ nn_First part[9];
    nn_First last; last.init();
    for (long long k = 0; k < wanted; ++k) {
      nn_First next; next.init();
      for (long long i = threadIdx.x; i < count; i += blockDim.x) {
        const double value = sign * (double)x[[a, b, c, i]];
        if (last.at < 0 || nn_before(last.a, last.at, value, i)) next.add(value, i);
      }
      last = nn_block(next, part);
      if (threadIdx.x == 0) out[[a, b, c, k]] = (T)last.at;
    }
"""

_RUN = """
    const int size = SIZE;
    __shared__ double value[SIZE];
    __shared__ int place[SIZE];
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      const long long k = h * size + i;
      value[i] = k < count ? sign * (double)x[[a, b, c, k]] : __longlong_as_double(NAN_BITS);
      place[i] = (int)k;
    }
    for (int run = 2; run <= size; run *= 2)
      for (int gap = run / 2; gap > 0; gap /= 2) {
        __syncthreads();
        for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
          const int low = i / gap * 2 * gap + i % gap, high = low + gap;
          const bool before = nn_before(value[high], place[high], value[low], place[low]);
          if (before == ((low & run) == 0)) {
            const double v = value[low]; value[low] = value[high]; value[high] = v;
            const int p = place[low]; place[low] = place[high]; place[high] = p;
          }
        }
      }
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
      const long long k = h * size + i;
      if (k < wanted && k < count) out[[a, b, c, k]] = (T)place[i];
    }
""".replace("NAN_BITS", "0x7ff8000000000000LL")

_MERGE = """
      const long long at = from[[a, b, c, k]];
      const double mine = sign * (double)x[[a, b, c, at]];
      const long long own = k / run * run, pair = own / (2 * run) * 2 * run;
      const long long other = own == pair ? own + run : pair;
      long long low = other < count ? other : count;
      long long high = other + run < count ? other + run : count;
      const long long begin = low;
      while (low < high) {  // the first of the other run that comes later
        const long long middle = (low + high) / 2, there = from[[a, b, c, middle]];
        if (nn_before(sign * (double)x[[a, b, c, there]], there, mine, at)) low = middle + 1;
        else high = middle;
      }
      const long long to = pair + (k - own) + (low - begin);
      if (to < wanted) out[[a, b, c, to]] = (T)at;"""


@implements("sort_indexes", "cupy", types=("int32",), binder=True)
def bind_sort_indexes(out: Array, x: Array, axis: int, descending: bool) -> Step:
    """Few places one by one; else runs, which are merged until there is one."""
    to, of = last_axis(out, axis), last_axis(x, axis)
    wanted, length = to.shape[3], of.shape[3]
    numbers: dict[str, Any] = {
        "sign": np.float64(-1.0 if descending else 1.0),
        "wanted": np.int64(wanted),
        "count": np.int64(length),
    }
    lines = {i: n for i, n in space_of(of).items() if i != "k"}
    if wanted <= _FEW < length:
        arrays = {"out": to, "x": of}
        return block_step("select_indexes", lines, length, arrays, _SELECT, **numbers)
    run = min(_LARGEST_RUN, max(2, 1 << (length - 1).bit_length())) if length else 2
    if length <= run:
        return _sorted_runs(to, of, run, lines, numbers)
    buffers = [get_device().empty(of.shape, np.int32) for _ in range(2)]
    steps = [_sorted_runs(buffers[0], of, run, lines, {**numbers, "wanted": np.int64(length)})]
    while run < length:
        is_last = 2 * run >= length
        arrays = {"out": to if is_last else buffers[1], "x": of, "from": buffers[0]}
        limit = wanted if is_last else length
        given = {**numbers, "wanted": np.int64(limit), "run": np.int64(run)}
        steps.append(grid_step("merge_runs", space_of(of), arrays, _MERGE, **given))
        buffers.reverse()
        run *= 2
    return in_turn(steps)


def _sorted_runs(
    out: Array, x: Array, run: int, lines: dict[str, int], numbers: dict[str, Any]
) -> Step:
    """Runs of places, each sorted."""
    space = {**lines, "h": -(-x.shape[3] // run)}
    body = _RUN.replace("SIZE", str(run))
    return block_step("sort_indexes", space, run // 2, {"out": out, "x": x}, body, **numbers)


@implements("cumulative_sum", "cupy", binder=True)
def bind_cumulative_sum(
    out: Array, x: Array, axis: int, reverse: bool, exclusive: bool, beta: float = 0.0
) -> Step:
    """One thread a line."""
    arrays = {"out": last_axis(out, axis), "x": last_axis(x, axis)}
    length = x.shape[axis]
    body = """
      T sum = 0;
      for (long long i = 0; i < length; ++i) {
        const long long k = reverse ? length - 1 - i : i;
        const T value = x[[a, b, c, k]];
        const T result = exclusive ? sum : sum + value;
        sum += value;
        out[[a, b, c, k]] = beta == T(0) ? result : result + beta * out[[a, b, c, k]];
      }"""
    space = {i: n for i, n in space_of(arrays["out"]).items() if i != "k"}
    return grid_step(
        "cumulative_sum", space, arrays, body, length=np.int64(length),
        reverse=np.int32(reverse), exclusive=np.int32(exclusive), beta=out.dtype.type(beta),
    )  # fmt: skip

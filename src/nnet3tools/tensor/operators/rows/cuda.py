"""Row and column operations on CUDA: one thread for each element of what is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import check_rows, table, uploaded
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_COPY = "const int s = at[[r]]; out[[r, c]] = s < 0 ? T(0) : src[[s, c]];"
_ADD = "const int s = at[[r]]; if (s >= 0) out[[r, c]] += alpha * src[[s, c]];"
_COPY_COLS = "const int s = at[[c]]; out[[r, c]] = s < 0 ? T(0) : src[[r, s]];"
_ADD_COLS = "const int s = at[[c]]; if (s >= 0) out[[r, c]] += alpha * src[[r, s]];"
_RANGES = """
      const long long begin = ranges[[r, 0]], end = ranges[[r, 1]];
      if (end > begin) {
        T sum = 0;
        for (long long s = begin; s < end; ++s) sum += src[[s, c]];
        out[[r, c]] += alpha * sum;
      }"""
# a table row is the address of a matrix and its two strides
_FROM = """
      const int w = which[[r]];
      const long long* m = table + (w < 0 ? 0 : w) * 3;
      const T* const from = (const T*)m[0] + at[[r]] * m[1] + c * m[2];
"""
_TO = """
      const int w = which[[r]];
      if (w >= 0) {
        const long long* m = table + w * 3;
        ((T*)m[0])[at[[r]] * m[1] + c * m[2]] = src[[r, c]];
      }"""
_ADD_TO = """
      const long long* m = table + which[[r]] * 3;
      T sum = 0;
      for (long long k = offsets[[r]]; k < offsets[[r + 1]]; ++k) sum += src[[order[[k]], c]];
      ((T*)m[0])[at[[r]] * m[1] + c * m[2]] += alpha * sum;"""


def _space(out: Array) -> dict[str, int]:
    return {"r": out.shape[0], "c": out.shape[1]}


def _like(out: Array, value: float) -> Any:
    return out.dtype.type(value)


@implements("copy_rows", "cupy", binder=True)
def bind_copy_rows(out: Array, src: Array, indexes: Any) -> Step:
    """Each element finds its source row."""
    check_rows(indexes, len(src), len(out))
    return grid_step("copy_rows", _space(out), _operands(out, src, indexes), _COPY)


@implements("add_rows", "cupy", binder=True)
def bind_add_rows(out: Array, src: Array, indexes: Any, alpha: float = 1.0) -> Step:
    """Each element finds its source row."""
    check_rows(indexes, len(src), len(out))
    arrays = _operands(out, src, indexes)
    return grid_step("add_rows", _space(out), arrays, _ADD, alpha=_like(out, alpha))


@implements("copy_cols", "cupy", binder=True)
def bind_copy_cols(out: Array, src: Array, indexes: Any) -> Step:
    """Each element finds its source column."""
    check_rows(indexes, src.shape[1], out.shape[1])
    return grid_step("copy_cols", _space(out), _operands(out, src, indexes), _COPY_COLS)


@implements("add_cols", "cupy", binder=True)
def bind_add_cols(out: Array, src: Array, indexes: Any, alpha: float = 1.0) -> Step:
    """Each element finds its source column."""
    check_rows(indexes, src.shape[1], out.shape[1])
    arrays = _operands(out, src, indexes)
    return grid_step("add_cols", _space(out), arrays, _ADD_COLS, alpha=_like(out, alpha))


def _operands(out: Array, src: Array, indexes: Any) -> dict[str, Array]:
    return {"out": out, "src": src, "at": uploaded(indexes)}


@implements("add_row_ranges", "cupy", binder=True)
def bind_add_row_ranges(out: Array, src: Array, ranges: Any, alpha: float = 1.0) -> Step:
    """Each element sums its range of rows, in order."""
    check_rows(ranges, len(src) + 1, len(out), lowest=-1 << 31)
    arrays = {"out": out, "src": src, "ranges": uploaded(ranges)}
    return grid_step("add_row_ranges", _space(out), arrays, _RANGES, alpha=_like(out, alpha))


def _multi(
    first: str, matrix: Array, others: Sequence[Array], which: Any, at: Any
) -> dict[str, Array]:
    """Operands of a Multi kernel, checked."""
    which_host, at_host = (np.asarray(x.get() if hasattr(x, "get") else x) for x in (which, at))
    check_rows(which_host, len(others), len(matrix))
    sizes = np.array([len(o) for o in others] + [0])
    taken = which_host >= 0
    if (at_host[taken] >= sizes[which_host[taken]]).any() or (at_host[taken] < 0).any():
        raise ProgramError("row indexes beyond the matrices of a multi-row operation")
    return {
        first: matrix, "table": table(list(others)), "which": uploaded(which), "at": uploaded(at)
    }  # fmt: skip


@implements("copy_rows_multi", "cupy", binder=True)
def bind_copy_rows_multi(out: Array, sources: Sequence[Array], which: Any, at: Any) -> Step:
    """Each element finds its source matrix and row; addresses are on the device since binding."""
    arrays = _multi("out", out, sources, which, at)
    body = _FROM + "      out[[r, c]] = w < 0 ? T(0) : *from;"
    return grid_step("copy_rows_multi", _space(out), arrays, body, reads=sources)


@implements("add_rows_multi", "cupy", binder=True)
def bind_add_rows_multi(
    out: Array, sources: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """Each element finds its source matrix and row."""
    arrays = _multi("out", out, sources, which, at)
    body = _FROM + "      if (w >= 0) out[[r, c]] += alpha * *from;"
    return grid_step(
        "add_rows_multi", _space(out), arrays, body, reads=sources, alpha=_like(out, alpha)
    )


@implements("copy_to_rows_multi", "cupy", binder=True)
def bind_copy_to_rows_multi(src: Array, dests: Sequence[Array], which: Any, at: Any) -> Step:
    """Each element finds its destination; no place is given twice."""
    arrays = _multi("src", src, dests, which, at)
    return grid_step("copy_to_rows_multi", _space(src), arrays, _TO, writes=dests)


@implements("add_to_rows_multi", "cupy", binder=True)
def bind_add_to_rows_multi(
    src: Array, dests: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """Each destination sums what goes there, in order: no atomics, the same sum every time."""
    _multi("src", src, dests, which, at)
    which, at = (np.asarray(x.get() if hasattr(x, "get") else x, np.int64) for x in (which, at))
    taken = np.flatnonzero(which >= 0)
    if not len(taken):
        return lambda: None
    places = (which[taken] << 32) + at[taken]
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    arrays = {
        "src": src, "table": table(list(dests)),
        "which": uploaded((distinct >> 32).astype(np.int32)),
        "at": uploaded((distinct & 0xFFFFFFFF).astype(np.int32)),
        "offsets": uploaded(np.append(starts, len(order)).astype(np.int32)),
        "order": uploaded(taken[order].astype(np.int32)),
    }  # fmt: skip
    space = {"r": len(distinct), "c": src.shape[1]}
    return grid_step(
        "add_to_rows_multi", space, arrays, _ADD_TO, writes=dests, alpha=_like(src, alpha)
    )

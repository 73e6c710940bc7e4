"""Picking by index arrays along an axis, cumulative sums, and sparse products on CUDA.

Sums are made by the thread that owns the result, which looks at all that could go there: slower
than atomics for long axes, but the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.registry import implements

__all__ = ["last_axis", "space_of"]

Step = Callable[[], None]

_INDEXES = "abck"


def last_axis(array: Array, axis: int) -> Array:
    """The array with four axes, the given one last."""
    if array.ndim > 4:
        raise ProgramError(f"an operator along an axis of an array of {array.ndim} axes")
    axis %= array.ndim
    order = [*(i for i in range(array.ndim) if i != axis), axis]
    moved = array.transpose(order)
    return moved[(None,) * (4 - array.ndim)] if array.ndim < 4 else moved


def space_of(array: Array) -> dict[str, int]:
    """Index names of an array with four axes, and their sizes."""
    return dict(zip(_INDEXES, array.shape, strict=True))


def _bounds(out: Array, src: Array, axis: int) -> dict[str, Any]:
    """The size of the axis that indexes pick from, and the value of elements outside of it."""
    floats = out.dtype.kind == "f"
    outside = np.nan if floats or out.dtype.kind == "b" else np.iinfo(out.dtype).max
    return {"count": np.int64(src.shape[axis]), "outside": out.dtype.type(outside)}


@implements("take", "cupy", binder=True)
def bind_take(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """One thread an element of the output; nan for what lies outside."""
    to = last_axis(out, axis)
    arrays = {"out": to, "src": last_axis(src, axis), "at": uploaded(indexes)}
    body = """
      const long long i = at[[k]];
      out[[a, b, c, k]] = i >= 0 && i < count ? src[[a, b, c, i]] : outside;"""
    return grid_step("take", space_of(to), arrays, body, **_bounds(out, src, axis))


@implements("add_taken", "cupy", binder=True)
def bind_add_taken(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """One thread an element of the output."""
    to = last_axis(out, axis)
    arrays = {"out": to, "src": last_axis(src, axis), "at": uploaded(indexes)}
    body = """
      T sum = 0;
      for (long long i = 0; i < count; ++i) if (at[[i]] == k) sum += src[[a, b, c, i]];
      out[[a, b, c, k]] += sum;"""
    return grid_step("add_taken", space_of(to), arrays, body, count=np.int64(len(indexes)))


@implements("gather", "cupy", binder=True)
def bind_gather(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """One thread an element of the output."""
    to = last_axis(out, axis)
    arrays = {"out": to, "src": last_axis(src, axis), "at": last_axis(uploaded(indexes), axis)}
    body = """
      const long long i = at[[a, b, c, k]];
      out[[a, b, c, k]] = i >= 0 && i < count ? src[[a, b, c, i]] : outside;"""
    return grid_step("gather", space_of(to), arrays, body, **_bounds(out, src, axis))


@implements("add_gathered", "cupy", binder=True)
def bind_add_gathered(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """One thread an element of the output."""
    to, at = last_axis(out, axis), last_axis(uploaded(indexes), axis)
    arrays = {"out": to, "src": last_axis(src, axis), "at": at}
    body = """
      T sum = 0;
      for (long long i = 0; i < count; ++i)
        if (at[[a, b, c, i]] == k) sum += src[[a, b, c, i]];
      out[[a, b, c, k]] += sum;"""
    space = {**space_of(to), **dict(zip("abc", at.shape, strict=False))}
    return grid_step("add_gathered", space, arrays, body, count=np.int64(at.shape[3]))


@implements("scatter", "cupy", binder=True)
def bind_scatter(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """One thread an element of the source."""
    of = last_axis(src, axis)
    arrays = {"out": last_axis(out, axis), "src": of, "at": last_axis(uploaded(indexes), axis)}
    body = """
      const long long i = at[[a, b, c, k]];
      if (i >= 0 && i < count) out[[a, b, c, i]] = src[[a, b, c, k]];"""
    return grid_step("scatter", space_of(of), arrays, body, count=np.int64(out.shape[axis]))


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


def _host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _transposed(indexes: Any, offsets: Any, num_rows: int) -> dict[str, np.ndarray]:
    """Where the entries of each column are: offsets, the entries in order, and their rows."""
    columns, starts = _host(indexes), _host(offsets)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.argsort(columns, kind="stable")
    begins = np.searchsorted(columns[order], np.arange(num_rows + 1))
    return {"offsets": begins, "order": order, "from": rows[order]}


@implements("csr_dot", "cupy", binder=True)
def bind_csr_dot(
    out: Array, values: Array, indexes: Any, offsets: Any, b: Array, trans: bool = False,
    beta: float = 0.0,
) -> Step:  # fmt: skip
    """One thread an output, over the entries of its row (column, with `trans`)."""
    to, of = (x[:, None] if x.ndim == 1 else x for x in (out, b))
    if trans:
        found = _transposed(indexes, offsets, len(to))
        order, source = "order[[k]]", found["from"]
    else:
        found = {"offsets": _host(offsets), "order": np.zeros(1, np.int32)}
        order, source = "k", _host(indexes)
    arrays = {
        "out": to, "values": values, "b": of, "source": uploaded(source),
        "offsets": uploaded(found["offsets"]), "order": uploaded(found["order"]),
    }  # fmt: skip
    body = f"""
      T sum = 0;
      for (long long k = offsets[[r]]; k < offsets[[r + 1]]; ++k)
        sum += values[[{order}]] * b[[source[[k]], c]];
      out[[r, c]] = beta == T(0) ? sum : sum + beta * out[[r, c]];"""
    space = {"r": to.shape[0], "c": to.shape[1]}
    return grid_step("csr_dot", space, arrays, body, beta=out.dtype.type(beta))

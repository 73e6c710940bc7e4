"""Picking by index arrays along an axis on CUDA.

Sums are made by the thread that owns the result, which looks at all that could go there: slower
than atomics for long axes, but the same every time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.strided import grid_step, last_axis, space_of
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]


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

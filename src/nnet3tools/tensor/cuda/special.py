"""Compression, groups, patches, windows, gathering and order on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launch import in_turn
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.element import element
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_fill = element("_1 = _2")
_sqrt = element("_1 = sqrt(_1)")
_sum_squares = aggregate("_1 * _1", "sum", axis=2)
_norm_backprop = element("_1 = where(_3 != 0, _2 * (_4 / where(_3 != 0, _3, 1)), 0)")
_window_dots = aggregate("_1 * _2", "sum", axis=3)
_weighted_windows = aggregate("_1 * _2", "sum", axis=2)
_add_product = element("_1 += _2 * _3 * _4")


# -- compression


@implements("compress", "cupy", types=("int8", "uint8", "int16", "uint16"), binder=True)
def bind_compress(out: Array, src: Array, value_range: float, truncate: bool = True) -> Step:
    """Scale, round, cut off, convert."""
    info, kind = np.iinfo(out.dtype), src.dtype.type
    body = "out[[r, c]] = (T)nn_max(low, nn_min(high, rint(src[[r, c]] * scale)));"
    if value_range == 0.0:
        body = "out[[r, c]] = (T)nn_max(low, nn_min(high, nn_sgn(src[[r, c]])));"
    scale = 1.0 if value_range == 0.0 else info.max / value_range
    space = {"r": out.shape[0], "c": out.shape[1]}
    return grid_step(
        "compress", space, {"out": out, "src": src}, body,
        scale=kind(scale), low=kind(info.min), high=kind(info.max),
    )  # fmt: skip


@implements("decompress", "cupy", binder=True)
def bind_decompress(out: Array, src: Array, value_range: float) -> Step:
    """Convert and scale."""
    scale = 1.0 if value_range == 0.0 else value_range / np.iinfo(src.dtype).max
    space = {"r": out.shape[0], "c": out.shape[1]}
    body = "out[[r, c]] = src[[r, c]] * scale;"
    return grid_step(
        "decompress", space, {"out": out, "src": src}, body, scale=out.dtype.type(scale)
    )


# -- groups of columns


@implements("group_norm", "cupy", binder=True)
def bind_group_norm(out: Array, x: Array) -> Step:
    """Splitting the last axis is a view, even of strided matrices."""
    groups = x.reshape(*out.shape, -1)
    return in_turn([_discard(_sum_squares.bind(out, groups)), _sqrt.bind(out)])


@implements("group_norm_backprop", "cupy", binder=True)
def bind_group_norm_backprop(
    in_deriv: Array, in_value: Array, out_value: Array, out_deriv: Array
) -> Step:
    """One formula over three axes."""
    shape = (*out_value.shape, -1)
    return _norm_backprop.bind(
        _split(in_deriv, shape), _split(in_value, shape),
        out_value[:, :, None], out_deriv[:, :, None],
    )  # fmt: skip


def _split(array: Array, shape: tuple[int, ...]) -> Array:
    """A view with the last axis in groups; strides, not `reshape`, which might copy."""
    rows, columns = array.strides
    size = array.shape[1] // shape[1]
    split = (array.shape[0], shape[1], size)
    return get_device().strided(array, split, (rows, columns * size, columns))


@implements("sum_column_ranges", "cupy", binder=True)
def bind_sum_column_ranges(out: Array, x: Array, ranges: Any) -> Step:
    """One thread an output."""
    arrays = {"out": out, "x": x, "ranges": uploaded(ranges)}
    body = """
      T sum = 0;
      for (long long c = ranges[[j, 0]]; c < ranges[[j, 1]]; ++c) sum += x[[r, c]];
      out[[r, j]] = sum;"""
    space = {"r": out.shape[0], "j": out.shape[1]}
    return grid_step("sum_column_ranges", space, arrays, body)


# -- patches and windows


@implements("gather_patches", "cupy", binder=True)
def bind_gather_patches(out: Array, frames: Array, pieces: Any) -> Step:
    """One thread an element of the patches."""
    arrays = {"out": out, "frames": frames, "pieces": uploaded(pieces)}
    body = """
      const long long begin = pieces[[k, 0]], end = pieces[[k, 1]];
      const long long from = pieces[[k, 2]] + (h - begin) * pieces[[k, 3]];
      out[[r, h, k, f]] = h >= begin && h < end ? frames[[r, from, f]] : T(0);"""
    space = dict(zip("rhkf", out.shape, strict=True))
    return grid_step("gather_patches", space, arrays, body)


@implements("add_patches", "cupy", binder=True)
def bind_add_patches(frames: Array, patches: Array, pieces: Any) -> Step:
    """One thread an element of the frames, which sums what was gathered from it, in order."""
    arrays = {"frames": frames, "patches": patches, "pieces": uploaded(pieces)}
    body = """
      T sum = 0;
      for (long long k = 0; k < places; ++k) {
        const long long begin = pieces[[k, 0]], gap = g - pieces[[k, 2]], step = pieces[[k, 3]];
        const long long h = begin + gap / step;
        if (gap % step == 0 && h >= begin && h < pieces[[k, 1]]) sum += patches[[r, h, k, f]];
      }
      frames[[r, g, f]] += sum;"""
    space = dict(zip("rgf", frames.shape, strict=True))
    return grid_step("add_patches", space, arrays, body, places=np.int64(patches.shape[2]))


def _windows(b: Array, num_rows: int, width: int, shift: int) -> Array:
    """View (num_rows, heads, width, D) of the rows r, r + shift, ... of b."""
    row, head, column = b.strides
    shape = (num_rows, b.shape[1], width, b.shape[2])
    return get_device().strided(b, shape, (row, head, shift * row, column))


@implements("window_dots", "cupy", binder=True)
def bind_window_dots(out: Array, a: Array, b: Array, shift: int, alpha: float = 1.0) -> Step:
    """A sum of products over a view of the windows."""
    windows = _windows(b, len(a), out.shape[2], shift)
    return _discard(_window_dots.bind(out, a[:, :, None, :], windows, alpha=alpha))


@implements("add_weighted_windows", "cupy", binder=True)
def bind_add_weighted_windows(
    out: Array, b: Array, weights: Array, shift: int, alpha: float = 1.0
) -> Step:
    """A sum of products over a view of the windows."""
    windows = _windows(b, len(out), weights.shape[2], shift)
    step = _weighted_windows.bind(out, weights[..., None], windows, alpha=alpha, beta=1.0)
    return _discard(step)


def _discard(step: Callable[[], Any]) -> Step:
    def run() -> None:
        step()

    return run


@implements("add_to_windows", "cupy", binder=True)
def bind_add_to_windows(b: Array, a: Array, weights: Array, shift: int, alpha: float = 1.0) -> Step:
    """One formula for each place of the window."""
    starts = [(k, k * shift) for k in range(weights.shape[2])]
    return in_turn(
        [
            _add_product.bind(b[s : s + len(a)], a, weights[:, :, k : k + 1], float(alpha))
            for k, s in starts
        ]
    )

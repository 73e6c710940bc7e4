"""Operators written as loops over elements, rows or places: what tests compare with."""

import numpy as np


def take(out, src, indexes, axis):
    out[...] = np.take(src, indexes, axis)


def add_taken(out, src, indexes, axis):
    into, add = np.moveaxis(out, axis, 0), np.moveaxis(src, axis, 0)
    for i, at in enumerate(indexes):
        into[at] += add[i]


def gather(out, src, indexes, axis):
    out[...] = np.take_along_axis(src, indexes, axis)


def add_gathered(out, src, indexes, axis):
    for at in np.ndindex(indexes.shape):
        place = (*at[:axis], int(indexes[at]), *at[axis + 1 :])
        out[place] += src[at]


def scatter(out, src, indexes, axis):
    np.put_along_axis(out, indexes, src, axis)


def group_norm(out, x):
    groups = np.asarray(x, np.float64).reshape(*out.shape, -1)
    out[...] = np.sqrt(np.sum(groups * groups, axis=2))


def group_norm_backprop(in_deriv, in_value, out_value, out_deriv):
    size = in_value.shape[1] // out_value.shape[1]
    safe = np.where(out_value == 0.0, 1.0, out_value)
    factor = np.where(out_value == 0.0, 0.0, out_deriv / safe)
    in_deriv[...] = in_value * np.repeat(factor, size, axis=1)


def sum_column_ranges(out, x, ranges):
    sums = np.concatenate(
        [np.zeros((len(x), 1)), np.cumsum(np.asarray(x, np.float64), axis=1)], axis=1
    )
    out[...] = sums[:, ranges[:, 1]] - sums[:, ranges[:, 0]]


def window_dots(out, a, b, shift, alpha=1.0):
    for k in range(out.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        out[:, :, k] = alpha * np.sum(np.asarray(a, np.float64) * window, axis=2)


def add_weighted_windows(out, b, weights, shift, alpha=1.0):
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(out)]
        out[...] = out + alpha * np.float64(weights[:, :, k, None]) * window


def add_to_windows(b, a, weights, shift, alpha=1.0):
    for k in range(weights.shape[2]):
        window = b[k * shift : k * shift + len(a)]
        window[...] = window + alpha * np.float64(weights[:, :, k, None]) * a


def gather_patches(out, frames, pieces):
    out[...] = 0.0
    for k, (begin, end, first, step) in enumerate(pieces):
        for h in range(begin, end):
            out[:, h, k] = frames[:, first + (h - begin) * step]


def add_patches(frames, patches, pieces):
    for k, (begin, end, first, step) in enumerate(pieces):
        for h in range(begin, end):
            frames[:, first + (h - begin) * step] += patches[:, h, k]


def sort_indexes(out, x, axis, descending):
    keys = -np.asarray(x, np.float64) if descending else np.asarray(x, np.float64)
    order = np.argsort(keys, axis=axis, kind="stable")
    out[...] = np.take(order, np.arange(out.shape[axis]), axis)


def cumulative_sum(out, x, axis, reverse, exclusive, beta=0.0):
    flipped = np.flip(np.asarray(x, np.float64), axis) if reverse else np.asarray(x, np.float64)
    total = np.cumsum(flipped, axis=axis)
    if exclusive:
        total = total - flipped
    value = np.flip(total, axis) if reverse else total
    out[...] = value if beta == 0.0 else value + beta * out


def compress(out, src, value_range, truncate=True):
    info = np.iinfo(out.dtype)
    if value_range == 0.0:
        out[...] = np.clip(np.sign(src), info.min, info.max)
    else:
        scaled = np.rint(np.asarray(src, np.float64) * (info.max / value_range))
        out[...] = np.clip(scaled, info.min, info.max)


def decompress(out, src, value_range):
    scale = 1.0 if value_range == 0.0 else value_range / np.iinfo(src.dtype).max
    out[...] = np.asarray(src, np.float64) * scale


def csr_dot(out, values, indexes, offsets, b, trans=False, beta=0.0):
    total = np.zeros(out.shape, np.float64)
    for row in range(len(offsets) - 1):
        for k in range(offsets[row], offsets[row + 1]):
            to, source = (indexes[k], row) if trans else (row, indexes[k])
            total[to] += values[k] * np.float64(b[source])
    out[...] = total if beta == 0.0 else total + beta * out


def copy_rows(out, src, indexes):
    for i, row in enumerate(indexes):
        out[i] = 0.0 if row < 0 else src[row]


def add_rows(out, src, indexes, alpha=1.0):
    for i, row in enumerate(indexes):
        if row >= 0:
            out[i] += alpha * src[row]


def copy_cols(out, src, indexes):
    copy_rows(out.T, src.T, indexes)

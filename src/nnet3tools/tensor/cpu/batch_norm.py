"""Batch normalisation as C: columns in tiles that stay in the second cache for both passes."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.kernels import Job, Kernel, Number
from nnet3tools.tensor.emit.c_columns import GROUP
from nnet3tools.tensor.plain.operands import overlap

__all__ = ["batch_norm", "batch_norm_backprop"]

_TYPES = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}
_TILE = 512
"""Columns of a tile at most, and where fewest columns do not fit the cache either."""
_TILE_BYTES = 1 << 19
"""What a tile of columns may take of the second cache."""
_CANCELLED = 1 / 64
"""Part of the mean square that a variance must be: below it, too many digits have cancelled."""

_SUMS = """\
      for (i64 c = 0; c < width; ++c) a[c] = b[c] = 0.0;
      for (i64 r0 = 0; r0 < rows; r0 += 16) {{
        {t} pa[TILE], pb[TILE];
        for (i64 c = 0; c < width; ++c) pa[c] = pb[c] = 0;
        for (i64 r = r0; r < NN_LEAST(r0 + 16, rows); ++r) {{
          {rows}
          #pragma omp simd
          for (i64 c = 0; c < width; ++c) {{ {add} }}
        }}
        #pragma omp simd
        for (i64 c = 0; c < width; ++c) {{ a[c] += pa[c]; b[c] += pb[c]; }}
      }}
"""
_TILES = """\
  const i64 cols = w[0].i, rows = w[1].i, tile = w[2].i;
  const i64 last = NN_LEAST(end * GROUP, cols);
"""
_FORWARD = (
    _TILES
    + """\
  {t} *const out = w[3].p, *const stats = w[4].p; const {t} *const x = w[5].p;
  const i64 down = w[6].i, stats_down = w[7].i, x_down = w[8].i;
  const f64 epsilon = w[9].f, target = w[10].f;
  const f64 count = rows ? (f64)rows : 1.0;
  for (i64 g = begin * GROUP; g < last; g += tile) {{
    const i64 width = NN_LEAST(tile, last - g);
    f64 a[TILE], b[TILE]; {t} mean[TILE], scale[TILE], shift[TILE];
    int again = 0;
"""
    + _SUMS.replace("{rows}", "const {t} *const q = x + r * x_down + g;").replace(
        "{add}", "pa[c] += q[c]; pb[c] += q[c] * q[c];"
    )
    + """\
    for (i64 c = 0; c < width; ++c) {{
      const f64 m = a[c] / count, s = b[c] / count;
      again |= s - m * m < CANCELLED * s;
      shift[c] = ({t})m;
    }}
    if (again) {{
"""
    + _SUMS.replace("{rows}", "const {t} *const q = x + r * x_down + g;").replace(
        "{add}", "const {t} d = q[c] - shift[c]; pa[c] += d; pb[c] += d * d;"
    )
    + """\
    }} else for (i64 c = 0; c < width; ++c) shift[c] = 0;
    for (i64 c = 0; c < width; ++c) {{
      const f64 m = a[c] / count, s = b[c] / count, v = s - m * m;
      const f64 f = target / sqrt((v < 0.0 ? 0.0 : v) + epsilon), whole = shift[c] + m;
      stats[g + c] = mean[c] = ({t})whole;
      stats[stats_down + g + c] = ({t})(again ? v + whole * whole : s);
      stats[2 * stats_down + g + c] = scale[c] = ({t})f;
    }}
    for (i64 r = 0; r < rows; ++r) {{
      const {t} *const q = x + r * x_down + g; {t} *const p = out + r * down + g;
      #pragma omp simd
      for (i64 c = 0; c < width; ++c) p[c] = (q[c] - mean[c]) * scale[c];
    }}
  }}
"""
)
_BACKWARD = (
    _TILES
    + """\
  {t} *const out = w[3].p; const {t} *const z = w[4].p, *const e = w[5].p, *const by = w[6].p;
  const i64 down = w[7].i, z_down = w[8].i, e_down = w[9].i, by_step = w[10].i;
  const f64 target = w[11].f, count = rows ? (f64)rows : 1.0;
  for (i64 g = begin * GROUP; g < last; g += tile) {{
    const i64 width = NN_LEAST(tile, last - g);
    f64 a[TILE], b[TILE]; {t} mean[TILE], scale[TILE], inner[TILE];
"""
    + _SUMS.replace(
        "{rows}", "const {t} *const q = z + r * z_down + g, *const p = e + r * e_down + g;"
    ).replace("{add}", "pa[c] += p[c]; pb[c] += p[c] * q[c];")
    + """\
    for (i64 c = 0; c < width; ++c) {{
      scale[c] = by[(g + c) * by_step];
      mean[c] = ({t})(a[c] / count);
      inner[c] = ({t})(b[c] / count * (f64)scale[c] / (target * target));
    }}
    for (i64 r = 0; r < rows; ++r) {{
      const {t} *const q = z + r * z_down + g, *const p = e + r * e_down + g;
      {t} *const o = out + r * down + g;
      #pragma omp simd
      for (i64 c = 0; c < width; ++c) o[c] = (p[c] - mean[c]) * scale[c] - q[c] * inner[c];
    }}
  }}
"""
)


@functools.cache
def _kernel(text: str, dtype: np.dtype) -> Kernel:
    text = text.replace("GROUP", str(GROUP)).replace("TILE", str(_TILE))
    return Kernel(text.replace("CANCELLED", repr(_CANCELLED)).format(t=_TYPES[dtype]))


def _fits(*matrices: Any) -> bool:
    """Whether all are matrices of one type with contiguous rows."""
    dtype = matrices[0].dtype
    return dtype in _TYPES and all(
        m.ndim == 2 and m.dtype == dtype and m.strides[1] == m.itemsize
        and m.strides[0] % m.itemsize == 0 for m in matrices
    )  # fmt: skip


def _down(matrix: np.ndarray) -> int:
    return matrix.strides[0] // matrix.itemsize


def _shape(matrix: np.ndarray, num_read: int) -> list[int]:
    """Columns, rows, columns of a tile."""
    rows, cols = matrix.shape
    fitting = _TILE_BYTES // max(1, rows * matrix.itemsize * num_read) // GROUP * GROUP
    return [cols, rows, min(_TILE, fitting) or _TILE]


def batch_norm(
    out: np.ndarray, stats: np.ndarray, x: np.ndarray, epsilon: Any, target_rms: Any
) -> list[Job] | None:
    """Sums of x and x * x, or of x - mean where digits have cancelled, then the result."""
    if not _fits(out, stats, x) or 0 in x.shape or overlap(out, x) == "partial":
        return None
    if not all(isinstance(n, (int, float)) for n in (epsilon, target_rms)) or overlap(stats, x):
        return None
    downs = [_down(out), _down(stats), _down(x)]
    numbers = [Number(float(epsilon)), Number(float(target_rms))]
    values = [*_shape(x, 1), out, stats, x, *downs, *numbers]
    return [Job(_kernel(_FORWARD, x.dtype), values, -(-x.shape[1] // GROUP), 3 * x.size)]


def batch_norm_backprop(
    in_deriv: np.ndarray, out_value: np.ndarray, out_deriv: np.ndarray, scale: np.ndarray,
    target_rms: Any,
) -> list[Job] | None:  # fmt: skip
    """Sums of e and z * e, then scale (e - mean of e) - z scale (mean of z e) / target_rms^2."""
    read = out_value, out_deriv
    if not _fits(in_deriv, *read) or 0 in out_deriv.shape or scale.dtype != out_deriv.dtype:
        return None
    askew = any(overlap(in_deriv, m) == "partial" for m in read) or overlap(in_deriv, scale)
    if askew or not isinstance(target_rms, (int, float)) or scale.strides[0] % scale.itemsize:
        return None
    downs = [_down(m) for m in (in_deriv, *read)]
    step = scale.strides[0] // scale.itemsize
    values = [*_shape(out_deriv, 2), in_deriv, *read, scale, *downs, step]
    kernel = _kernel(_BACKWARD, out_deriv.dtype)
    steps = -(-out_deriv.shape[1] // GROUP)
    return [Job(kernel, [*values, Number(float(target_rms))], steps, 4 * out_deriv.size)]

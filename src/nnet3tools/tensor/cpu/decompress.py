"""Kaldi's compressed matrices decompressed by compiled code, many of one shape in one call.

The arithmetic is that of `io.compressed_codes`, operation by operation, so that all bits agree.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_at_once
from nnet3tools.tensor.cpu.kernels import Job, Kernel
from nnet3tools.tensor.plain.addresses import address

__all__ = ["decompress"]

_BEGIN = """\
  const i64 *const at = w[0].p; f32 *const out = w[1].p;
  const i64 rows = w[2].i, cols = w[3].i; const f32 *const weights = w[4].p;
  static const s32 first[3] = {0, 64, 192};
  static const f64 part[3] = {1 / 64.0, 1 / 128.0, 1 / 63.0};
  for (i64 i = begin; i < end; ++i) {
    const u8 *p = (const u8 *)at[i];
    f32 *const q = out + i * rows * cols;
    f32 low, extent;
    memcpy(&low, p, 4);
    memcpy(&extent, p + 4, 4);
    if (weights) { low *= weights[i]; extent *= weights[i]; }
    p += 16;
"""
_BY_COLUMNS = """\
    const f32 step = extent * 1.52590218966964e-05f;
    const u8 *code = p + 8 * cols;
    for (i64 c = 0; c < cols; ++c, code += rows) {
      uint16_t four[4];
      memcpy(four, p + 8 * c, 8);
      f32 v[4];
      for (int k = 0; k < 4; ++k) v[k] = low + step * (f32)four[k];
      const f32 length[3] = {v[1] - v[0], v[2] - v[1], v[3] - v[2]};
      for (i64 r = 0; r < rows; ++r) {
        const s32 k = code[r], j = (k > 64) + (k > 192);
        const f32 above = (f32)(k - first[j]);
        q[r * cols + c] = (f32)((f64)(length[j] * above) * part[j] + (f64)v[j]);
      }
    }
  }
"""
"""Tables take a quarter of the time of choices, which become jumps or several passes."""
_BY_ROWS = """\
    const f32 step = (f32)((f64)extent * (1.0 / {most}));
    for (i64 k = 0; k < rows * cols; ++k) {{
      {type} code;
      memcpy(&code, p + sizeof(code) * k, sizeof(code));
      const f32 value = (f32)code * step;
      q[k] = value + low;
    }}
  }}
"""
_KERNELS = {
    "CM": Kernel(_BEGIN + _BY_COLUMNS),
    "CM2": Kernel(_BEGIN + _BY_ROWS.format(type="uint16_t", most="65535.0")),
    "CM3": Kernel(_BEGIN + _BY_ROWS.format(type="u8", most="255.0")),
}


def decompress(
    token: str,
    data: bytes,
    starts: NDArray[np.int64],
    shape: tuple[int, int],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32] | None:
    """Matrices (N, rows, columns) of which the minimum and all after it begin at `starts` in data.

    `token` is CM, CM2 or CM3; each matrix times its weight. None where there are no compiled
    kernels. The bytes must be there: who calls has matched them (`io.matrix_forms`).
    """
    if not are_native() or sys.byteorder != "little":
        return None
    out = np.empty((len(starts), *shape), np.float32)
    raw = np.frombuffer(data, np.uint8)
    scales = None if weights is None else np.ascontiguousarray(weights, np.float32)
    arguments = [starts + address(raw), out, *shape, 0 if scales is None else scales]
    return out if run_at_once(Job(_KERNELS[token], arguments, len(out), out.size)) else None

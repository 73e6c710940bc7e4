"""Kaldi's uniform numbers by a compiled kernel: the same bits as plain/random.py.

rand_r of the C library takes three steps of a linear congruential generator a number. Sixteen
numbers are worked on side by side, each by steps over all sixteen at once; a part of an array
begins with a jump, s -> A s + C with A and C of as many steps, found by squaring.
"""

from __future__ import annotations

import numpy as np

from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_if_made
from nnet3tools.tensor.cpu.kernels import Job, Kernel
from nnet3tools.tensor.plain.random import INCREMENT, MULTIPLIER, prefer

__all__ = ["draw_uniform"]

_BLOCK = 1 << 12
"""Numbers in a step of the kernel's job."""

_BODY = f"""\
  f32 *out = w[0].p;
  const i64 count = w[1].i;
  const i64 first = begin * {_BLOCK}, last = NN_LEAST(end * {_BLOCK}, count);
  u32 state = (u32)w[2].i, factor = {MULTIPLIER}u, offset = {INCREMENT}u;
  for (i64 left = 3 * first; left; left >>= 1) {{
    if (left & 1) state = factor * state + offset;
    offset *= factor + 1;
    factor *= factor;
  }}
  u32 s[3][16], far_factor = 1, far_offset = 0;
  for (int k = 0; k < 48; ++k) {{
    state = {MULTIPLIER}u * state + {INCREMENT}u;
    s[k % 3][k / 3] = state;
    far_offset = {MULTIPLIER}u * far_offset + {INCREMENT}u;
    far_factor *= {MULTIPLIER}u;
  }}
  for (i64 i = first; i < last; i += 16) {{
    f32 found[16];
    for (int k = 0; k < 16; ++k) {{
      const u32 high = (s[0][k] >> 16) & 2047, middle = (s[1][k] >> 16) & 1023;
      const u32 bits = ((high << 10 ^ middle) << 10) ^ ((s[2][k] >> 16) & 1023);
      found[k] = (f32)(((f64)(s32)bits + 1.0) / 2147483649.0);
    }}
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 16; ++k) s[j][k] = far_factor * s[j][k] + far_offset;
    memcpy(out + i, found, sizeof(f32) * (size_t)NN_LEAST(16, last - i));
  }}
"""
_KERNEL = Kernel(_BODY)


def draw_uniform(out: np.ndarray, state: int) -> bool:
    """Fill a vector of float32 from this state of rand_r on; False if the kernel is not made yet.

    It is made with others: what it gives does not hang on who does the work.
    """
    if not are_native():
        return False
    steps = -(-len(out) // _BLOCK)
    return run_if_made(Job(_KERNEL, [out, len(out), state], steps, len(out)))


prefer(draw_uniform)

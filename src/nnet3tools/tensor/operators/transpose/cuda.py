"""Transposes on CUDA: tiles of 32 x 32 through shared memory, so that both sides are coalesced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools.tensor.basics import add, copy
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.strided import block_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]

_SIDE = 32
_OUTER = "abcdefgh"
# a row of 33: elements of a column lie in 32 different banks
_BODY = """
    __shared__ T tile[32][33];
    const long long p0 = tile_p * 32, q0 = tile_q * 32;
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) {{
      const long long q = q0 + k / 32, p = p0 + k % 32;
      if (q < count_q && p < count_p) tile[k / 32][k % 32] = src[[{outer}q, p]];
    }}
    __syncthreads();
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) {{
      const long long p = p0 + k / 32, q = q0 + k % 32;
      if (q < count_q && p < count_p) out[[{outer}p, q]] {assign} tile[k % 32][k / 32];
    }}
    __syncthreads();
"""


def _fastest(array: Array) -> int:
    """The axis along which neighbours are nearest."""
    axes = [i for i, n in enumerate(array.shape) if n > 1]
    return min(axes, key=lambda i: abs(array.strides[i]), default=0)


def _bind(what: str, out: Array, src: Array, axes: Sequence[int]) -> Step | None:
    """The tiled transpose; None where both run along the same axis, or hardly along another."""
    moved = src.transpose(axes)
    if out.ndim < 2 or out.ndim > len(_OUTER) + 2:
        return None
    q, p = _fastest(out), _fastest(moved)
    if p == q or min(out.shape[p], out.shape[q]) < _SIDE // 4:
        return None
    rest = [i for i in range(out.ndim) if i not in (p, q)]
    to, of = out.transpose([*rest, p, q]), moved.transpose([*rest, q, p])
    names = _OUTER[: len(rest)]
    space = {name: out.shape[i] for name, i in zip(names, rest, strict=True)}
    counts = {"p": out.shape[p], "q": out.shape[q]}
    space |= {f"tile_{name}": -(-count // _SIDE) for name, count in counts.items()}
    body = _BODY.format(
        outer="".join(f"{name}, " for name in names), assign="=" if what == "transpose" else "+="
    )
    return block_step(
        what, space, 256, {"out": to, "src": of}, body,
        count_p=np.int64(counts["p"]), count_q=np.int64(counts["q"]),
    )  # fmt: skip


@implements("transpose", "cupy", binder=True)
def bind_transpose(out: Array, src: Array, axes: Sequence[int]) -> Step:
    """Tiles, or a copy where that is coalesced anyway."""
    return _bind("transpose", out, src, axes) or copy.bind(out, src.transpose(axes))


@implements("add_transposed", "cupy", binder=True)
def bind_add_transposed(out: Array, src: Array, axes: Sequence[int]) -> Step:
    """Tiles, or a sum where that is coalesced anyway."""
    return _bind("add_transposed", out, src, axes) or add.bind(out, src.transpose(axes))

"""Transposes on CUDA: tiles of 32 x 32 through shared memory, so that both sides are coalesced."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from nnet3tools.tensor.basics import add, copy
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_SIDE = 32
_OUTER = "abcdefgh"
_transpose = cuda_functions(__file__)["transpose"]


def _fastest(array: Array) -> int:
    """The axis with the smallest stride."""
    axes = [i for i, n in enumerate(array.shape) if n > 1]
    return min(axes, key=lambda i: abs(array.strides[i]), default=0)


def _bind(assign: str, out: Array, src: Array, axes: Sequence[int]) -> Step | None:
    """A callable that transposes by a kernel, in tiles; `assign` is = or +=.

    None if the same axis has the smallest stride in both arrays, or an axis is short.
    """
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
    words = {"OUTER": "".join(f"{name}, " for name in names), "ASSIGN": assign}
    return _transpose.by_blocks(
        space, 256, out=to, src=of, count_p=counts["p"], count_q=counts["q"], words=words
    )


def _bind_or_plainly(assign: str, plain: Any, out: Array, src: Array, axes: Sequence[int]) -> Step:
    """A callable that transposes by a kernel, in tiles, where this pays (`assign`: = or +=).

    Otherwise the operator `plain` (copy or add) is bound: it has coalesced accesses.
    """
    return _bind(assign, out, src, axes) or plain.bind(out, src.transpose(axes))


for _name, _assign, _plain in (("transpose", "=", copy), ("add_transposed", "+=", add)):
    implements(_name, "cupy", binder=True)(partial(_bind_or_plainly, _assign, _plain))

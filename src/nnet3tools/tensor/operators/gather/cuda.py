"""Picking by index arrays along an axis on CUDA: a thread for each element that is written."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from nnet3tools.tensor.arrays import strided
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions, last_axis
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


def _operands(
    are_vector: bool, out: Array, src: Array, indexes: Any, axis: int
) -> dict[str, Array]:
    """The kernel's arrays by parameter name, with four axes each; `axis` becomes the last one.

    `are_vector`: the indexes, on host or device, are (N,), the same for every line along the axis.
    """
    to, of, at = last_axis(out, axis), last_axis(src, axis), uploaded(indexes)
    if are_vector:  # the same for every line
        shape, strides = (*to.shape[:3], len(at)), (0, 0, 0, at.strides[0])
        return {"out": to, "src": of, "at": strided(at, shape, strides)}
    return {"out": to, "src": of, "at": last_axis(at, axis)}


def _bind_gather(are_vector: bool, out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """A callable that runs `take` or `gather`: a thread per element of out; NaN if out of range.

    `are_vector`: the indexes, on host or device, are (N,), the same for every line along the axis.
    """
    arrays = _operands(are_vector, out, src, indexes, axis)
    floats = out.dtype.kind == "f"
    outside = np.nan if floats or out.dtype.kind == "b" else np.iinfo(out.dtype).max
    return _functions["gather"].on_grid(
        arrays["out"].shape, count=src.shape[axis], outside=outside, **arrays
    )


def _bind_add(are_vector: bool, out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """A callable that runs `add_taken` or `add_gathered`: a thread adds up an element of out.

    `are_vector`: the indexes, on host or device, are (N,), the same for every line along the axis.
    """
    arrays = _operands(are_vector, out, src, indexes, axis)
    *lines, count = arrays["at"].shape
    shape = (*lines, out.shape[axis])
    return _functions["add_gathered"].on_grid(shape, count=count, **arrays)


for _name, _bind, _vector in (
    ("take", _bind_gather, True), ("gather", _bind_gather, False),
    ("add_taken", _bind_add, True), ("add_gathered", _bind_add, False),
):  # fmt: skip
    implements(_name, "cupy", binder=True)(partial(_bind, _vector))


@implements("scatter", "cupy", binder=True)
def bind_scatter(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """A callable that runs `scatter` with its arguments; `indexes` may be a host array."""
    arrays = _operands(False, out, src, indexes, axis)
    shape = arrays["src"].shape
    return _functions["scatter"].on_grid(shape, count=out.shape[axis], **arrays)

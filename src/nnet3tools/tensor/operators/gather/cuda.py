"""Picking by index arrays along an axis on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launch import Step
from nnet3tools.tensor.cuda.operands import last_axis
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


def _bounds(out: Array, src: Array, axis: int) -> dict[str, Any]:
    """Operands of kernels: `count`, the size of src's axis; `outside`, the value beyond it."""
    floats = out.dtype.kind == "f"
    outside = np.nan if floats or out.dtype.kind == "b" else np.iinfo(out.dtype).max
    return {"count": src.shape[axis], "outside": outside}


def _repeated(indexes: Any, shape: tuple[int, ...]) -> Array:
    """A view of a vector of indexes for every line along the last of four axes of a shape."""
    at = uploaded(indexes)
    return get_device().strided(at, (*shape[:3], len(at)), (0, 0, 0, at.strides[0]))


@implements("take", "cupy", binder=True)
def bind_take(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """Bind the operator `take`, a thread for each element of out; indexes beyond src give NaN."""
    to, of = last_axis(out, axis), last_axis(src, axis)
    at, bounds = _repeated(indexes, to.shape), _bounds(out, src, axis)
    return _functions["gather"].on_grid(to.shape, out=to, src=of, at=at, **bounds)


@implements("add_taken", "cupy", binder=True)
def bind_add_taken(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """Bind the operator `add_taken`, with a thread for each element of out."""
    to, of = last_axis(out, axis), last_axis(src, axis)
    at = _repeated(indexes, to.shape)
    return _functions["add_gathered"].on_grid(to.shape, out=to, src=of, at=at, count=at.shape[3])


@implements("gather", "cupy", binder=True)
def bind_gather(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """Bind the CUDA form of `gather`, with one thread for each element of `out`."""
    to, of, at = last_axis(out, axis), last_axis(src, axis), last_axis(uploaded(indexes), axis)
    return _functions["gather"].on_grid(to.shape, out=to, src=of, at=at, **_bounds(out, src, axis))


@implements("add_gathered", "cupy", binder=True)
def bind_add_gathered(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """Bind the operator `add_gathered`, with a thread for each element of out."""
    to, of, at = last_axis(out, axis), last_axis(src, axis), last_axis(uploaded(indexes), axis)
    shape = (*at.shape[:3], to.shape[3])
    return _functions["add_gathered"].on_grid(shape, out=to, src=of, at=at, count=at.shape[3])


@implements("scatter", "cupy", binder=True)
def bind_scatter(out: Array, src: Array, indexes: Any, axis: int) -> Step:
    """Bind the operator `scatter`, with a thread for each element of src."""
    to, of, at = last_axis(out, axis), last_axis(src, axis), last_axis(uploaded(indexes), axis)
    return _functions["scatter"].on_grid(of.shape, out=to, src=of, at=at, count=out.shape[axis])

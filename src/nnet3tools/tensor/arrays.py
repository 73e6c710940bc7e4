"""Making arrays, moving them between host and device, and pooled scratch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np

from nnet3tools.tensor import recording
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.registry import OPERATORS, device_of, on_host

Array = Any
"""An array of some device: numpy.ndarray or cupy.ndarray, views allowed."""

_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Bytes of the machine: Linux grants larger arrays, and kills the program when it uses them."""

Shape = int | tuple[int, ...]

POISON = os.environ.get("NNET3TOOLS_POISON", "0") not in ("", "0")
"""For tests: undefined memory is filled with NaN (-1 for integers), so that reading it shows."""


def poison(array: Array) -> Array:
    """Set every byte of `array` to 255 if NNET3TOOLS_POISON is set. Returns `array`."""
    if POISON and array.size:
        array.reshape(-1).view(np.uint8).fill(255)
    return array


def _module(like: Array | None) -> Any:
    if on_host(like):
        return np
    import cupy

    return cupy


def aligned_bytes(num_bytes: int, alignment: int, like: Array | None = None) -> Array:
    """A new uint8 array on `like`'s device, at a multiple of `alignment`; at least `num_bytes`."""
    raw = empty(num_bytes + alignment, like, np.uint8)
    return raw[-address(raw) % alignment :]


def empty(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """A new array with undefined contents, on the device and of the type of the array `like`.

    `dtype` replaces the type of `like`. Without `like` it is on the host, without both float32.
    """
    return poison(_make(_module(like).empty, shape, _dtype(like, dtype)))


_FLOATS_ALIGNED = 4
"""float32 numbers in 16 bytes: cuBLAS is fast if each row begins at a multiple of 16 bytes."""


def _padded_columns(columns: int, like: Array) -> int:
    if device_of(like) == "numpy":
        return columns
    return -(-columns // _FLOATS_ALIGNED) * _FLOATS_ALIGNED


def padded(shape: tuple[int, int], like: Array) -> Array:
    """A new matrix with undefined contents; on a GPU rows begin at multiples of 4 elements."""
    rows, columns = shape
    return empty((rows, _padded_columns(columns, like)), like)[:, :columns]


def zeros(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """A new array of zeros on the device of `like`, of type `dtype`, or else of `like`'s type."""
    made = _make(_module(like).zeros, shape, _dtype(like, dtype))
    if recording.state.call_recorder is not None:
        OPERATORS["fill"](made, 0.0)  # by name: basics.py is built on this module
    return made


def _make(create: Any, shape: Shape, dtype: Any) -> Array:
    """The array `create(shape, dtype)`; MemoryError for more bytes than the machine has."""
    sizes = (shape,) if isinstance(shape, int) else shape
    limit = _MEMORY if create in (np.zeros, np.empty) else 1 << 63
    if math.prod(map(int, sizes)) * dtype.itemsize >= limit:
        raise MemoryError(f"(an array of {' x '.join(map(str, sizes))})")
    return create(shape, dtype)


def _dtype(like: Array | None, dtype: Any) -> Any:
    if dtype is not None:
        return np.dtype(dtype)
    return np.dtype(np.float32) if like is None else like.dtype


def persistent_array(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """A new array with undefined contents; recorded code gets the same array in each replay.

    It is for memos, to which a later step refers by address. Arguments are those of `empty`.
    """
    return recording.persistent_object(lambda: empty(shape, like, dtype))


def asarray(host: Any, like: Array | None = None, dtype: Any = None) -> Array:
    """A host array or nested list as an array on the device of `like`, of type `dtype` if given.

    The values are copied only if necessary. Without `like` the result is on the host.
    """
    module = _module(like)
    if like is not None and isinstance(host, np.ndarray):
        recording.not_capturable()
    return module.asarray(host, dtype=dtype)


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    """A view of an array with another shape and other strides, in bytes."""
    return _module(array).lib.stride_tricks.as_strided(array, shape, strides)


def constant(host: np.ndarray, like: Array) -> Array:
    """A copy of `host` on the device of `like`, uploaded once; `host` must not change later."""
    if _module(like) is np:
        return host
    from nnet3tools.tensor.cuda.indexes import uploaded

    host.flags.writeable = False
    return uploaded(host, host.dtype)


def to_host(array: Array) -> np.ndarray:
    """A copy of a device array as a numpy.ndarray; an array on the host is returned itself."""
    recording.not_capturable()
    return array if device_of(array) == "numpy" else array.get()


class _Pool:
    """Unused memory buffers of a GPU by size (powers of two). Their memory is never freed."""

    def __init__(self) -> None:
        self._free: dict[int, list[Array]] = {}

    def take(self, num_bytes: int) -> Array:
        import cupy

        size = 1 << max(10, (max(num_bytes, 1) - 1).bit_length())
        buffers = self._free.get(size)
        return buffers.pop() if buffers else cupy.empty(size, np.uint8)

    def give_back(self, buffer: Array) -> None:
        self._free.setdefault(buffer.size, []).append(buffer)


_captured_pool = _Pool()
_pool: _Pool | None = None
"""Has the scratch memory of a GPU while a graph is captured; else CuPy's own pool has it."""


@contextmanager
def captured_scratch(on_side_stream: bool = False) -> Iterator[None]:
    """In the `with` block, `scratch` takes memory from a pool that keeps all its memory for ever.

    CUDA graphs captured in the block go on using that memory. Graphs of the main stream share one
    pool, because they run one after the other and expect undefined contents. Graphs of the side
    stream have another pool.
    """
    global _pool
    before, _pool = _pool, _Pool() if on_side_stream else _captured_pool
    try:
        yield
    finally:
        _pool = before


class _Scratch:
    """The context manager that `scratch` returns; it yields an array and takes it back at the end.

    It is a class for speed: a minibatch enters hundreds of blocks, and a generator is slower.
    """

    __slots__ = ("_buffer", "_dtype", "_like", "_num_bytes", "_pool", "_recorder", "_shape")

    def __init__(self, shape: tuple[int, ...], like: Array, dtype: np.dtype) -> None:
        self._shape, self._like, self._dtype = shape, like, dtype

    def __enter__(self) -> Array:
        state = recording.state
        num_bytes = math.prod(self._shape) * self._dtype.itemsize
        self._num_bytes, self._recorder = num_bytes, state.event_recorder
        if self._recorder is not None:
            self._recorder.count_scratch(num_bytes)
        self._pool: Any = None
        if state.call_recorder is not None:
            self._pool = state.call_recorder.workspace
        elif device_of(self._like) != "numpy":
            self._pool = _pool
        elif self._recorder is not None:
            self._pool = self._recorder.scratch
        if self._pool is None:
            return empty(self._shape, self._like, self._dtype)
        self._buffer = self._pool.take(num_bytes)
        if POISON:
            recording.run("poison", partial(poison, self._buffer))
        return self._buffer[:num_bytes].view(self._dtype).reshape(self._shape)

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.give_back(self._buffer)
        if self._recorder is not None:
            self._recorder.count_scratch(-self._num_bytes)


def scratch(shape: Shape, like: Array, dtype: Any = None) -> AbstractContextManager[Array]:
    """Context manager that yields an array with undefined contents, whose memory is from a pool.

    At the end of the `with` block the memory goes back to the pool. The array is on the device
    of `like`, and of its type unless `dtype` is given.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return _Scratch(shape, like, _dtype(like, dtype))


@contextmanager
def padded_scratch(shape: tuple[int, int], like: Array) -> Iterator[Array]:
    """Yield a matrix with undefined contents; at the end its memory goes back to a pool.

    Device and type are those of `like`. On a GPU each row begins at a multiple of 4 elements.
    """
    rows, columns = shape
    with scratch((rows, _padded_columns(columns, like)), like) as whole:
        yield whole[:, :columns]

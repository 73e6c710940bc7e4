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
from nnet3tools.tensor.host_pool import HostPool
from nnet3tools.tensor.registry import OPERATORS, device_of

__all__ = [
    "POISON",
    "Array",
    "aligned_bytes",
    "asarray",
    "captured_scratch",
    "constant",
    "empty",
    "forget_scratch",
    "padded",
    "padded_scratch",
    "persistent_array",
    "poison",
    "same_place",
    "scratch",
    "to_host",
    "zeros",
]

Array = Any
"""An array of some device: numpy.ndarray or cupy.ndarray, views allowed."""

Shape = int | tuple[int, ...]

_KEEP_BYTES = 1 << 26
"""The pool keeps at most this much unused memory of a device."""


POISON = os.environ.get("NNET3TOOLS_POISON", "0") not in ("", "0")
"""For tests: undefined memory is filled with NaN (-1 for integers), so that reading it shows."""


def poison(array: Array) -> Array:
    """Every byte 255, if NNET3TOOLS_POISON is set; the array."""
    if POISON and array.size:
        array.reshape(-1).view(np.uint8).fill(255)
    return array


def _module(like: Array | None) -> Any:
    if like is None or device_of(like) == "numpy":
        return np
    import cupy

    return cupy


def same_place(a: Array, b: Array) -> bool:
    """Whether two arrays of one device begin at the same address."""
    return _address(a) == _address(b)


def _address(array: Array) -> int:
    if device_of(array) == "numpy":
        return int(array.__array_interface__["data"][0])
    return int(array.data.ptr)


def aligned_bytes(num_bytes: int, alignment: int, like: Array | None = None) -> Array:
    """At least `num_bytes` new bytes on the device of `like`, at a multiple of `alignment`."""
    raw = empty(num_bytes + alignment, like, np.uint8)
    return raw[-_address(raw) % alignment :]


def empty(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """A new array with undefined contents, on the device and of the type of `like`.

    Without `like`: on the host; without either: float32.
    """
    return poison(_make(_module(like).empty, shape, _dtype(like, dtype)))


_FLOATS_ALIGNED = 4
"""float32 in 16 bytes: rows that begin at multiples of them, as cuBLAS's fast kernels want."""


def _padded_columns(columns: int, like: Array) -> int:
    if device_of(like) == "numpy":
        return columns
    return -(-columns // _FLOATS_ALIGNED) * _FLOATS_ALIGNED


def padded(shape: tuple[int, int], like: Array) -> Array:
    """As `empty`; on a GPU each row begins at a multiple of four elements."""
    rows, columns = shape
    return empty((rows, _padded_columns(columns, like)), like)[:, :columns]


def zeros(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """A new array of zeros; see `empty`."""
    made = _make(_module(like).zeros, shape, _dtype(like, dtype))
    if recording.state.call_recorder is not None:
        OPERATORS["fill"](made, 0.0)  # by name: basics.py is built on this module
    return made


def _make(create: Any, shape: Shape, dtype: Any) -> Array:
    """A new array; MemoryError also for more elements than an address can count."""
    sizes = (shape,) if isinstance(shape, int) else shape
    if math.prod(map(int, sizes)) * dtype.itemsize >= 1 << 63:
        raise MemoryError(f"(an array of {' x '.join(map(str, sizes))})")
    return create(shape, dtype)


def _dtype(like: Array | None, dtype: Any) -> Any:
    if dtype is not None:
        return np.dtype(dtype)
    return np.dtype(np.float32) if like is None else like.dtype


def persistent_array(shape: Shape, like: Array | None = None, dtype: Any = None) -> Array:
    """An undefined array for a memo: a later step, perhaps of another variant, finds it by address.

    Each of a recorded program's steps gets its own arrays, the same ones at each run.
    """
    return recording.persistent_object(lambda: empty(shape, like, dtype))


def asarray(host: Any, like: Array | None = None, dtype: Any = None) -> Array:
    """A host array (or nested list) on the device of `like`; of its own type if none is given.

    No copy is made where none is needed.
    """
    module = _module(like)
    if like is not None and isinstance(host, np.ndarray):
        recording.not_capturable()
    return module.asarray(host, dtype=dtype)


def constant(host: np.ndarray, like: Array) -> Array:
    """As `asarray`, for an array that nobody changes any more: uploaded once, not at each call."""
    if _module(like) is np:
        return host
    from nnet3tools.tensor.cuda.indexes import uploaded

    host.flags.writeable = False
    return uploaded(host, host.dtype)


def to_host(array: Array) -> np.ndarray:
    """The array as numpy.ndarray; the very same if it is on the host already."""
    recording.not_capturable()
    return array if device_of(array) == "numpy" else array.get()


class _Pool:
    """A device's free buffers by size class: powers of two, so that a few buffers serve all shapes.

    It keeps at most `most` bytes of unused memory.
    """

    def __init__(self, most: float) -> None:
        self._free: dict[int, list[Array]] = {}
        self._kept, self._most = 0, most

    def take(self, num_bytes: int, like: Array) -> Array:
        size = 1 << max(10, (max(num_bytes, 1) - 1).bit_length())
        buffers = self._free.get(size)
        if buffers:
            self._kept -= size
            return buffers.pop()
        return _module(like).empty(size, np.uint8)

    def give_back(self, buffer: Array) -> None:
        if self._kept + buffer.size <= self._most:
            self._kept += buffer.size
            self._free.setdefault(buffer.size, []).append(buffer)


_host_pool = HostPool()
_pool = _Pool(_KEEP_BYTES)
_captured_pool = _Pool(math.inf)


@contextmanager
def captured_scratch(on_side_stream: bool = False) -> Iterator[None]:
    """Let `scratch` take memory in the `with` block from a pool that drops nothing.

    What is captured in a graph goes on using that memory. All graphs share it: they run one after
    the other, and nobody expects anything of a scratch array's contents. One that runs `aside`,
    beside others, has its own.
    """
    global _pool
    before, _pool = _pool, _Pool(math.inf) if on_side_stream else _captured_pool
    try:
        yield
    finally:
        _pool = before


def forget_scratch() -> None:
    """Give up the host's scratch memory, as recordings have their own from now on."""
    _host_pool.forget()


class _Scratch:
    """A context manager by hand: it is entered some hundred times a minibatch."""

    __slots__ = ("_buffer", "_dtype", "_like", "_num_bytes", "_pool", "_recorder", "_shape")

    def __init__(self, shape: tuple[int, ...], like: Array, dtype: np.dtype) -> None:
        self._shape, self._like, self._dtype = shape, like, dtype

    def __enter__(self) -> Array:
        num_bytes = math.prod(self._shape) * self._dtype.itemsize
        self._num_bytes, self._recorder = num_bytes, recording.state.event_recorder
        if self._recorder is not None:
            self._recorder.count_scratch(num_bytes)
        call_recorder = recording.state.call_recorder
        if call_recorder is not None:
            pool: Any = call_recorder.workspace
            self._pool = pool
            self._buffer = self._pool.take(num_bytes)
            made = self._buffer.view(self._dtype).reshape(self._shape)
            if POISON:
                recording.run("poison", partial(poison, self._buffer))
            return made
        if device_of(self._like) == "numpy":
            self._pool = getattr(self._recorder, "scratch", None) or _host_pool
            self._buffer = self._pool.take(num_bytes)
        else:
            self._pool = _pool
            self._buffer = _pool.take(num_bytes, self._like)
        return poison(self._buffer[:num_bytes]).view(self._dtype).reshape(self._shape)

    def __exit__(self, *_: object) -> None:
        self._pool.give_back(self._buffer)
        if self._recorder is not None:
            self._recorder.count_scratch(-self._num_bytes)


def scratch(shape: Shape, like: Array, dtype: Any = None) -> AbstractContextManager[Array]:
    """A temporary from the pool, contents undefined, on the device (and of the type) of `like`.

    It must not be used after the `with` block.
    """
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return _Scratch(shape, like, _dtype(like, dtype))


@contextmanager
def padded_scratch(shape: tuple[int, int], like: Array) -> Iterator[Array]:
    """As `scratch`; on a GPU each row begins at a multiple of four elements."""
    rows, columns = shape
    with scratch((rows, _padded_columns(columns, like)), like) as whole:
        yield whole[:, :columns]

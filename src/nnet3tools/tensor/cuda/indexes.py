"""Index arrays on the device: uploaded once, found again by what they hold.

Components pass the same host arrays at every call; a captured graph keeps pointing at the copy it
was captured with. Copies are therefore kept, up to a limit that no usual set of programs meets.
"""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.operands import element_strides

_KEEP = 1 << 16
_by_content: dict[Any, Array] = {}
_by_object: dict[tuple[int, int], tuple[Any, Array]] = {}
_lists: list[list[Array]] = []


def sent(host: Any, dtype: Any = np.int32) -> Array:
    """A new device copy of a host array; the copy is not cached."""
    return get_device().upload(np.ascontiguousarray(host, dtype))


def uploaded(host: Any, dtype: Any = np.int32) -> Array:
    """The cached copy of an index array on the device, as `dtype`; such a device array itself."""
    copy = _found_or_made(host, dtype)
    for kept in _lists:
        kept.append(copy)
    return copy


@contextlib.contextmanager
def kept_copies() -> Iterator[list[Array]]:
    """Yield a list to which all copies that `uploaded` returns in the `with` block are added.

    A captured graph knows copies by address only, so it must be kept with the list.
    """
    kept: list[Array] = []
    _lists.append(kept)
    try:
        yield kept
    finally:
        _lists.remove(kept)


def _found_or_made(host: Any, dtype: Any) -> Array:
    if not isinstance(host, np.ndarray) or type(host).__module__.startswith("cupy"):
        if hasattr(host, "dtype") and host.dtype == dtype:
            return host
        host = np.asarray(host.get() if hasattr(host, "get") else host)
    device = get_device()
    at = (id(device), id(host))
    found = _by_object.get(at)
    # an array that may be written to may hold something else by now
    if found is not None and found[0]() is host and not host.flags.writeable:
        return found[1]
    values = np.ascontiguousarray(host, dtype)
    digest = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
    key = (id(device), values.shape, values.dtype, digest)
    if (copy := _by_content.get(key)) is None:
        if len(_by_content) >= _KEEP:
            forget()
        copy = _by_content[key] = device.upload(values)
    _by_object[at] = (weakref.ref(host, lambda _: _by_object.pop(at, None)), copy)
    return copy


def forget() -> None:
    """Empty the cache of device copies; callables of operators and captured graphs keep theirs."""
    _by_content.clear()
    _by_object.clear()


def table(arrays: list[Array]) -> Array:
    """A device array with a row for each matrix: address, row stride, column stride in elements."""
    rows = [(address(a), *element_strides(a)) for a in arrays]
    return uploaded(np.array(rows, np.int64).reshape(-1, 3), np.int64)

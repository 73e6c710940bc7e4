"""Sending minibatches to a GPU: packed into pinned memory, copied by a second stream.

The reading thread packs all arrays of a minibatch into one block of page-locked memory. One copy
moves them to a buffer on the device. Several such pairs of buffers are used in turn, so that the
copy for the next minibatch runs while the device works on the present one.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array
from nnet3tools.tensor.offsets import rounded_up

if TYPE_CHECKING:
    from nnet3tools.tensor.cuda.cuda import CudaDevice

_ALIGNMENT = 256
"""Alignment in bytes, that of CUDA's own allocations."""
_GRAIN = 1 << 16
"""Buffer sizes are multiples of this number of bytes, since minibatches differ a little in size."""
_NUM_BUFFERS = 2
"""The number of pairs made before one is reused; more are made if more minibatches wait."""


_numbers = itertools.count(1)
_MOST_LAYOUTS = 64
"""The most minibatch layouts whose views a pair of buffers keeps."""
_MOST_NUMBERED = 1024
"""The most layouts that keep their number."""
_layouts: dict[Hashable, int] = {}
"""Shapes, types and offsets of packed arrays -> a unique number, which is cheaper to look up."""


class _Buffers:
    """Pinned host memory, and the device memory that receives a copy of it."""

    def __init__(self) -> None:
        self.pinned = np.empty(0, np.uint8)
        self.on_device: Array = None
        self.copied: Any = None
        """The last copy between the two is done."""
        self.number = 0
        """A unique number of the device memory."""
        self.used: Any = None
        """The event after the device's last use of the copied arrays."""
        self.views: dict[int, list[Array]] = {}
        """The device arrays of each layout."""


class Packed:
    """The arrays of one minibatch in a pair of buffers (pinned and device memory).

    The first `num_inputs` are the network's inputs.
    """

    def __init__(
        self, buffers: _Buffers, arrays: Sequence[np.ndarray], num_inputs: int = 0
    ) -> None:
        self.buffers = buffers
        self.places: list[tuple[int, np.dtype, tuple[int, ...]]] = []
        self.sent = False
        end = 0
        for array in arrays:
            self.places.append((end, array.dtype, array.shape))
            end += rounded_up(array.nbytes, _ALIGNMENT)
        self.num_bytes = max(end, 1)
        self.layout = _layout(self.places)
        self._layout_of_inputs = _layout(self.places[:num_inputs])

    @property
    def place(self) -> Hashable:
        """A key that is equal for equally shaped arrays in the same device memory."""
        return self.buffers.number, self.layout

    @property
    def place_of_inputs(self) -> Hashable:
        """A key that is equal for equally shaped input arrays in the same device memory."""
        return self.buffers.number, self._layout_of_inputs

    def views(self, memory: Array) -> list[Array]:
        """The arrays as views of `memory`, the pinned or the device buffer."""
        found = []
        for begin, dtype, shape in self.places:
            size = math.prod(shape) * dtype.itemsize
            found.append(memory[begin : begin + size].view(dtype).reshape(shape))
        return found


class DeviceInputs:
    """Copies minibatches to a GPU. Any thread may call `pack`, one thread the other methods."""

    def __init__(self, device: CudaDevice, like: Array) -> None:
        """Make an object for the GPU `device`, on which `like` is an array."""
        self._device, self._like = device, like
        self._free: deque[_Buffers] = deque()  # its append and popleft are atomic
        self._num_made = 0

    def pack(self, arrays: Sequence[np.ndarray], num_inputs: int = 0) -> Packed:
        """Copy arrays, the first `num_inputs` being network inputs, to unused pinned memory."""
        buffers = self._take()
        packed = Packed(buffers, arrays, num_inputs)
        if len(buffers.pinned) < packed.num_bytes:
            buffers.pinned = self._device.pinned(_rounded(packed.num_bytes))
        for view, array in zip(packed.views(buffers.pinned), arrays, strict=True):
            np.copyto(view, array)
        return packed

    def _take(self) -> _Buffers:
        if self._num_made < _NUM_BUFFERS or not self._free:
            self._num_made += 1
            return _Buffers()
        buffers = self._free.popleft()
        if buffers.copied is not None:
            buffers.copied.synchronize()
        return buffers

    def send(self, packed: Packed) -> None:
        """Start the copy of packed arrays to the GPU unless it has already been started."""
        if packed.sent:
            return
        packed.sent = True
        buffers = packed.buffers
        if buffers.on_device is None or len(buffers.on_device) < packed.num_bytes:
            size = _rounded(packed.num_bytes)
            buffers.on_device = tensor.empty((size,), like=self._like, dtype=np.uint8)
            buffers.number = next(_numbers)
            buffers.views.clear()
            # the memory may have been something else's, which the device still works on
            buffers.used = self._device.record()
        assert buffers.used is not None
        buffers.copied = self._device.copy_from_pinned(
            buffers.on_device[: packed.num_bytes], buffers.pinned[: packed.num_bytes], buffers.used
        )

    def arrays(self, packed: Packed) -> list[Array]:
        """The packed arrays on the GPU; later work on the main stream waits for their copy."""
        self.send(packed)
        copied = packed.buffers.copied
        assert copied is not None
        self._device.wait(copied)
        views = packed.buffers.views
        if (found := views.get(packed.layout)) is None:
            if len(views) >= _MOST_LAYOUTS:
                views.clear()
            found = views[packed.layout] = packed.views(packed.buffers.on_device)
        return found

    def release(self, packed: Packed) -> None:
        """Free the buffers of `packed` for reuse once the GPU has done all work submitted yet."""
        packed.buffers.used = self._device.record()
        self._free.append(packed.buffers)


def _layout(places: Sequence[tuple[int, np.dtype, tuple[int, ...]]]) -> int:
    if len(_layouts) >= _MOST_NUMBERED:
        _layouts.clear()
    return _layouts.setdefault(tuple(places), next(_numbers))


def _rounded(num_bytes: int) -> int:
    return -(-num_bytes // _GRAIN) * _GRAIN

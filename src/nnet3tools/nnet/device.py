"""Moving a network between host and device: parameters, statistics, natural-gradient state.

A component's declared fields say which arrays it has. Indexes stay on the host, because operators
upload them once.
"""

from __future__ import annotations

from typing import Any

from nnet3tools import tensor
from nnet3tools.errors import UserError
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor.registry import device_of


def move_nnet(nnet: Nnet, like: Any = None) -> None:
    """Move all float arrays of a network to the device of the array `like` (None: to the host)."""
    if like is not None and device_of(like) == "numpy":
        return  # moving to the host takes like=None
    moved: dict[int, tuple[Any, Any]] = {}

    def move(array: Any) -> Any:
        if id(array) not in moved:  # arrays shared by components stay shared
            moved[id(array)] = array, _move_array(array, like)
        return moved[id(array)][1]

    try:
        for component in nnet.components:
            component.map_arrays(move)
    except MemoryError as error:
        raise _too_large(nnet, error) from None


def _too_large(nnet: Nnet, error: MemoryError) -> UserError:
    """A UserError that says that the network does not fit into the memory of a device."""
    arrays = [array for component in nnet.components for array in component.arrays()]
    sizes = {id(array): array.nbytes for array in arrays}
    return UserError(
        f"out of memory on the GPU: the model takes {sum(sizes.values()) / 2**20:.1f} MB "
        f"({' '.join(str(error).split()).rstrip('.')}); a larger CUPY_GPU_MEMORY_LIMIT (if it is "
        "set), a GPU with more free memory (nvidia-smi tells), or --use-gpu=no help"
    )


def _move_array(array: Any, like: Any) -> Any:
    if like is None:
        return tensor.to_host(array)
    return array if device_of(array) != "numpy" else tensor.asarray(array, like=like)

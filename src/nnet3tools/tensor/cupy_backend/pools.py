"""CuPy's pools of a GPU's memory: none, part of the memory taken ahead."""

from __future__ import annotations

from nnet3tools.errors import UserError

__all__ = ["reserve", "use_none"]


def use_none() -> None:
    """Let CUDA allocate and free each array, so that tools that watch memory see its bounds."""
    import cupy

    cupy.cuda.set_allocator(None)


def reserve(proportion: float) -> None:
    """Take so much of the device's memory now, to be given out later; UserError if it is not free.

    The pool keeps blocks by stream: the device's stream must be the current one.
    """
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    wanted = int(proportion * total)
    try:
        cupy.empty(wanted, cupy.uint8)
    except MemoryError:
        raise UserError(
            f"--cuda-memory-proportion={proportion:g}: {wanted >> 20} MB of the GPU's "
            f"{total >> 20} are not to be had, {free >> 20} MB are free: others use this GPU "
            "(nvidia-smi tells), or CUPY_GPU_MEMORY_LIMIT is less"
        ) from None

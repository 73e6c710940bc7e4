"""CuPy's memory pools: without a pool, with reserved memory, with one limit for several pools."""

from __future__ import annotations

from typing import Any

from nnet3tools.errors import UserError


def use_none() -> None:
    """Use no memory pool: CUDA allocates each array, so that memory checkers see its bounds."""
    import cupy

    cupy.cuda.set_allocator(None)


def reserve(proportion: float) -> None:
    """Let CuPy's pool allocate a proportion of the device's memory; UserError if that is not free.

    The pool keeps blocks by stream: the device's main stream must be the current one.
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


class SharedLimit:
    """One limit, CUPY_GPU_MEMORY_LIMIT, for the sum of several memory pools of CuPy.

    Each pool may grow into the rest of the limit. Only one grows at a time, and `share` must be
    called before another pool grows.
    """

    def __init__(self, *pools: Any) -> None:
        """Store CuPy memory pools; each has the limit (bytes) that CuPy gave it, 0 for no limit."""
        self._pools, self.limit = pools, int(pools[0].get_limit())

    def share(self) -> None:
        """Set the limit of each pool to the common limit minus the memory of the other pools."""
        if self.limit == 0:
            return
        held = [int(pool.total_bytes()) for pool in self._pools]
        for pool, own in zip(self._pools, held, strict=True):
            # 0 would mean no limit
            pool.set_limit(size=max(1, self.limit - sum(held) + own))

    def free_bytes(self) -> int:
        """Bytes that are left of the common limit, plus unused memory that the pools keep."""
        return self.limit - sum(int(pool.used_bytes()) for pool in self._pools)

"""What the kernel of a wave looks up: its table's words, grids, the order of closing steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnet3tools.tensor.cuda.dependencies import dependencies
from nnet3tools.tensor.cuda.device import Array, Device, pointer
from nnet3tools.tensor.cuda.launches import Launch
from nnet3tools.tensor.cuda.wave_source import WARP, as_function

__all__ = ["Table", "in_turns", "is_for_a_warp", "smaller_grids"]

_BLOCKS_A_PROCESSOR = 8
"""Of 256 threads, as many as are at work at once if registers suffice."""


class Table:
    """The words that the kernels of a graph look things up in: one array."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self._array: Array = None

    def upload(self, device: Device) -> None:
        """Make an array of it, which is then all there is to it."""
        if self.words:
            self._array = device.upload(np.array(self.words, np.int64))

    def address(self, word: int) -> np.uint64:
        """Where a word lies."""
        return np.uint64(pointer(self._array) + 8 * word)


def smaller_grids(
    grids: Sequence[tuple[int, int]], loops: Sequence[bool], processors: int
) -> list[tuple[int, int]]:
    """The grids (x, y) of a wave's parts, those that loop made smaller if all are too many blocks.

    Each block looks up first what it has to do, some microseconds in which it moves nothing.
    """
    most, blocks = processors * _BLOCKS_A_PROCESSOR, [x * y for x, y in grids]
    fixed = sum(n for n, loop in zip(blocks, loops, strict=True) if not loop)
    total = sum(blocks)
    if total <= most or fixed == total:
        return list(grids)
    kept = max(most - fixed, most // 2) / (total - fixed)
    return [_smaller(grid, kept) if loop else grid for grid, loop in zip(grids, loops, strict=True)]


def _smaller(grid: tuple[int, int], kept: float) -> tuple[int, int]:
    """About so many of a grid's blocks, rather fewer rows at once than parts of rows."""
    if kept >= 1.0:
        return grid
    x, y = grid
    wanted = max(1, round(x * y * kept))
    return (x, max(1, wanted // x)) if wanted >= x else (wanted, 1)


def is_for_a_warp(step: Launch) -> bool:
    """Whether a warp is as good as a block for a closing step."""
    function = as_function(step.source)
    assert function is not None
    return not function.has_barriers and step.block[0] * step.block[1] <= WARP


def in_turns(steps: Sequence[Launch]) -> list[list[Launch]]:
    """Closing steps in an order in which each comes after those it waits for.

    Those of a list are done side by side, each by a warp, or there is one, for a whole block.
    """
    level = list[int]()
    for earlier in dependencies(steps):
        level.append(1 + max((level[j] for j in earlier), default=-1))
    found = list[list[Launch]]()
    for i in range(max(level, default=-1) + 1):
        now = [step for step, at in zip(steps, level, strict=True) if at == i]
        if narrow := [step for step in now if is_for_a_warp(step)]:
            found.append(narrow)
        found += [[step] for step in now if not is_for_a_warp(step)]
    return found

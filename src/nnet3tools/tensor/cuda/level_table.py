"""What a fused level's table says of its grids, and of the order of closing steps."""

from __future__ import annotations

from collections.abc import Sequence

from nnet3tools.tensor.cuda.launches import Launch, dependencies
from nnet3tools.tensor.cuda.level_source import WARP, as_function

_BLOCKS_A_PROCESSOR = 8
"""Blocks of 256 threads that a processor can hold if registers suffice."""


def smaller_grids(
    grids: Sequence[tuple[int, int]], loops: Sequence[bool], processors: int
) -> list[tuple[int, int]]:
    """Grids (x, y) of the pieces of work that one kernel does: fewer blocks if there are too many.

    Only pieces whose threads loop over their work (`loops`) can have fewer. Each block spends some
    microseconds before it does any work. `processors` is the number of multiprocessors.
    """
    most, blocks = processors * _BLOCKS_A_PROCESSOR, [x * y for x, y in grids]
    fixed = sum(n for n, loop in zip(blocks, loops, strict=True) if not loop)
    total = sum(blocks)
    if total <= most or fixed == total:
        return list(grids)
    kept = max(most - fixed, most // 2) / (total - fixed)
    return [_smaller(grid, kept) if loop else grid for grid, loop in zip(grids, loops, strict=True)]


def _smaller(grid: tuple[int, int], kept: float) -> tuple[int, int]:
    """A grid (x, y) with about `kept` (0 to 1) of the blocks; y shrinks first, x when y is 1."""
    if kept >= 1.0:
        return grid
    x, y = grid
    wanted = max(1, round(x * y * kept))
    return (x, max(1, wanted // x)) if wanted >= x else (wanted, 1)


def is_for_a_warp(step: Launch) -> bool:
    """Whether a warp can do a small launch (a closing step) as well as a block."""
    function = as_function(step.source)
    assert function is not None
    return not function.has_barriers and step.block[0] * step.block[1] <= WARP


def closing_turns(steps: Sequence[Launch]) -> list[list[Launch]]:
    """Launches that one block does, in lists that run one after the other.

    Launches of one list are independent and run concurrently, each by a warp. A launch that
    needs a whole block is alone in its list.
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

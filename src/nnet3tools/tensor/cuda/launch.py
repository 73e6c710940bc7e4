"""Grids and blocks of launches, and sequences of bound steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nnet3tools.tensor.cuda.device import Dim

Step = Callable[[], Any]
"""Bound work, for example a Launch."""

THREADS = 256
_BLOCKS_A_PROCESSOR = 16
"""The most blocks that a grid has for each multiprocessor; threads loop over further work."""


def grid_for(items: int, rows: int, processors: int) -> tuple[Dim, Dim]:
    """(grid, block) of a kernel that loops over `items` along x and `rows` along y."""
    width = min(THREADS, max(32, 1 << (max(items, 1) - 1).bit_length()))
    height = min(THREADS // width, max(rows, 1))
    blocks_x = max(1, math.ceil(items / width))
    most = processors * _BLOCKS_A_PROCESSOR
    blocks_x = min(blocks_x, max(1, most))
    blocks_y = min(max(1, math.ceil(rows / height)), max(1, most // blocks_x), 65535)
    return (blocks_x, blocks_y, 1), (width, height, 1)


def block_of(length: int, most_threads: int = THREADS) -> int:
    """The threads of a block that works on `length` elements: a power of two, at least a warp."""
    return min(most_threads, max(32, 1 << (max(length, 1) - 1).bit_length()))


COLUMNS, LANES = 32, 8
"""Columns and rows of the threads of a block that sums columns."""
_SUMMING_BLOCKS_A_PROCESSOR = 2


def slices_of(rows: int, columns: int, processors: int) -> tuple[int, int]:
    """(slices of rows, tiles of 32 columns) that a kernel divides a matrix into to sum its columns.

    There are enough blocks to keep the device busy, and at least 8 rows to a block. A tile's
    last block adds up the slices: with four times as many slices this took most of 66 us on an
    H100, for the sums of 960 x 256 LSTM cells.
    """
    tiles = max(1, -(-columns // COLUMNS))
    wanted = -(-_SUMMING_BLOCKS_A_PROCESSOR * processors // tiles)
    return max(1, min(wanted, -(-rows // LANES))), tiles

"""The regular grid of times and images on which TDNNs, convolution and attention compute.

A request may be irregular (gaps, several steps). These components pad it to evenly spaced times for
every image, where an "image" is an (n, x) pair, with blank rows (t = NO_TIME) in the gaps.
`TimeGrid` is Kaldi's ConvolutionComputationIo (convolution.h); attention stores it in programs.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from nnet3tools.errors import RequestError
from nnet3tools.nnet.components.declared import Declared
from nnet3tools.nnet.components.fields import Int
from nnet3tools.nnet.indexes import NO_TIME, IndexArray, IndexSet, IntArray, sorted_unique


class GridSizes(NamedTuple):
    """The fields of a TimeGrid; making a TimeGrid takes 30 times as long."""

    num_images: int
    start_t_in: int
    t_step_in: int
    num_t_in: int
    start_t_out: int
    t_step_out: int
    num_t_out: int
    reorder_t_in: int = 1


class TimeGrid(Declared):
    """Start, step and number of input and output times of a component; step 0 for a single time.

    There are `num_images` pairs (n, x). HAS_SETTINGS is False, because a grid never changes.
    """

    type_name: ClassVar[str] = "ConvCompIo"
    HAS_SETTINGS: ClassVar[bool] = False

    num_images = Int("", positive=True)
    start_t_in = Int("")
    t_step_in = Int("")
    num_t_in = Int("", positive=True)
    start_t_out = Int("")
    t_step_out = Int("")
    num_t_out = Int("", positive=True)
    reorder_t_in = Int("", None, 1, positive=True)
    """With r > 1 (subsampling), r consecutive input times are adjacent for each image, so that the
    input reshapes to frames r times as wide, at the output's step."""

    @property
    def last_t_in(self) -> int:
        """The last input time."""
        return self.start_t_in + (self.num_t_in - 1) * self.t_step_in

    @property
    def last_t_out(self) -> int:
        """The last output time."""
        return self.start_t_out + (self.num_t_out - 1) * self.t_step_out


class _Extent(NamedTuple):
    """Which (n, x) pairs and which times an array of Indexes has.

    `images` (P, 2) are the distinct (n, x) pairs, sorted. `start` is the first time, `step` the gcd
    of the gaps (0 for one time), `number` the number of times in such steps (0: none has a time).
    """

    images: IntArray
    start: int
    step: int
    number: int


def _extent(indexes: IndexArray) -> _Extent:
    return _extent_of(indexes.tobytes())


@lru_cache(maxsize=64)
def _extent_of(content: bytes) -> _Extent:
    """The _Extent of an array of Indexes, given as bytes. Cached: compilers ask several times."""
    indexes = np.frombuffer(content, np.int32).reshape(-1, 3)
    if not indexes[:, 2].any():  # the usual case needs no sorting
        n = np.flatnonzero(np.bincount(indexes[:, 0]))
        x = np.zeros_like(n)
    else:
        pairs = sorted_unique(_pairs(indexes[:, [0, 2]]))
        n = (pairs + (1 << 31)) >> 32  # x, in the low half, may be negative
        x = pairs - (n << 32)
    images = np.stack([n, x], axis=1).astype(np.int32)
    times = indexes[:, 1]
    is_new = np.ones(len(times), np.bool_)
    np.not_equal(times[1:], times[:-1], out=is_new[1:])
    times = sorted_unique(times[is_new])
    times = times[times != NO_TIME].astype(np.int64)
    if len(times) < 2:
        return _Extent(images, int(times.sum()), 0, len(times))
    step = int(np.gcd.reduce(np.diff(times)))
    return _Extent(images, int(times[0]), step, 1 + int(times[-1] - times[0]) // step)


def sizes_of(name: str, input_indexes: IndexArray, output_indexes: IndexArray) -> GridSizes:
    """The smallest grid that covers the Indexes; Indexes without a time are ignored.

    RequestError, with the component's `name`, if none has a time.
    """
    of_input, of_output = _extent(input_indexes), _extent(output_indexes)
    if 0 in (of_input.number, of_output.number):
        side = "output" if of_input.number else "input"
        raise RequestError(f"{name} cannot order its rows: no {side} index has a time")
    return GridSizes(len(of_input.images), *of_input[1:], *of_output[1:])


def grid_of(name: str, input_indexes: IndexArray, output_indexes: IndexArray) -> TimeGrid:
    """The smallest grid as a TimeGrid; arguments and errors are those of `sizes_of`."""
    return TimeGrid(**sizes_of(name, input_indexes, output_indexes)._asdict())


def _on_times(
    images: IntArray, start: int, step: int, number: int, reorder: int, wanted: IndexArray
) -> IndexArray:
    """Indexes of the pairs (n, x) in `images` at `number` times from `start` on, `step` apart.

    The order is by group of `reorder` times, then pair, then time. Indexes that are not in
    `wanted` get t = NO_TIME.
    """
    times = (start + step * np.arange(number)).reshape(-1, 1, reorder)
    grid = np.empty((number // reorder, len(images), reorder, 3), np.int32)
    grid[..., 0] = images[None, :, None, 0]
    grid[..., 1] = times
    grid[..., 2] = images[None, :, None, 1]
    indexes = grid.reshape(-1, 3)
    # All elements of `wanted` are on the grid and distinct.
    if len(wanted) != len(indexes) or int(wanted[:, 1].min(initial=0)) == NO_TIME:
        indexes[~IndexSet(wanted).contains(indexes), 1] = NO_TIME
    return indexes


def indexes_on_grid(
    name: str, grid: TimeGrid | GridSizes, input_indexes: IndexArray, output_indexes: IndexArray
) -> tuple[IndexArray, IndexArray]:
    """Input and output Indexes of the whole grid: by time (inputs: by group of times), then (n, x).

    Those that the arguments lack have t = NO_TIME (blank rows). RequestError, with the component's
    `name`, if an output's (n, x) has no input.
    """
    images, of_outputs = _extent(input_indexes).images, _extent(output_indexes).images
    are_same = np.array_equal(images, of_outputs)
    if not are_same and not np.isin(_pairs(of_outputs), _pairs(images)).all():
        raise RequestError(
            f"{name} cannot order its rows: an output has an (n, x) that no input has"
        )
    return (
        _on_times(
            images, grid.start_t_in, grid.t_step_in, grid.num_t_in, grid.reorder_t_in, input_indexes
        ),
        _on_times(images, grid.start_t_out, grid.t_step_out, grid.num_t_out, 1, output_indexes),
    )


def _pairs(images: IntArray) -> np.ndarray:
    """One int64 key for each row (n, x) of `images`, for set operations."""
    return (images[:, 0].astype(np.int64) << 32) + images[:, 1]

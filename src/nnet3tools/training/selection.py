"""Choosing among examples and cutting them down: one frame, less context, subsets, orders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.general_matrix import filter_rows, scale
from nnet3tools.nnet.indexes import BoolArray
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.std_order import MersenneTwister, shuffle

__all__ = [
    "FrameSelection",
    "draw_count",
    "random_subset",
    "rename_output",
    "scale_supervision",
    "shift_times",
    "shuffle_in_buffer",
    "shuffled",
]

Keyed = tuple[str, NnetExample]

_UNSHIFTED = ("ivector",)
"""Inputs whose times are not frames."""


def shift_times(example: NnetExample, offset: int) -> NnetExample:
    """Add `offset` to every t except the i-vectors'."""
    if offset == 0:
        return example
    step = np.array([0, offset, 0], np.int32)
    return NnetExample(
        [
            io if io.name in _UNSHIFTED else replace(io, indexes=io.indexes + step)
            for io in example.io
        ]
    )


def _change_output(example: NnetExample, key: str, **changes: object) -> NnetExample:
    if all(io.name != "output" for io in example.io):
        raise DataError(f"example '{key}' has no 'output'")
    return NnetExample(
        [replace(io, **changes) if io.name == "output" else io for io in example.io]  # type: ignore[arg-type]
    )


def rename_output(example: NnetExample, key: str, name: str) -> NnetExample:
    """Give 'output' another name, for multilingual training."""
    return _change_output(example, key, name=name)


def scale_supervision(example: NnetExample, key: str, weight: float) -> NnetExample:
    """Multiply the features of 'output' by a weight."""
    if weight == 1.0:
        return example
    outputs = [io for io in example.io if io.name == "output"]
    features = scale(outputs[0].features, weight) if outputs else None
    return _change_output(example, key, features=features)


def draw_count(expected: float) -> int:
    """Floor or ceiling of `expected` at random, so that it is the mean."""
    if expected < 0.0:
        raise OptionError(f"invalid --keep-proportion={expected:g}: must not be negative")
    count = math.floor(expected)
    return count + tensor.random.with_prob(expected - count)


@dataclass
class FrameSelection:
    """One labelled frame of each example, and less context around it.

    `frame` is "" (keep all), "random", or the t of the frame to keep; contexts of -1 stay whole.
    """

    frame: str = ""
    left_context: int = -1
    right_context: int = -1
    frame_shift: int = 0
    _warned: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """OptionError for a --frame that is neither empty, "random" nor a number."""
        if self.frame not in ("", "random"):
            try:
                int(self.frame)
            except ValueError:
                raise OptionError(
                    f"invalid --frame={self.frame}: expected a number or 'random'"
                ) from None

    @property
    def does_nothing(self) -> bool:
        """Whether examples pass through unchanged."""
        contexts = (self.left_context, self.right_context)
        return self.frame == "" and contexts == (-1, -1) and self.frame_shift == 0

    def apply(self, example: NnetExample, key: str) -> NnetExample | None:
        """The selected part of an example; None if it has no frame of that number.

        DataError for a merged example, or one without 'input' or 'output'.
        """
        if self.does_nothing:
            return example
        first_input, last_input = _time_range(example, "input", key)
        first, last = _time_range(example, "output", key)
        if self.frame == "random":
            first = last = tensor.random.rand_int(first, last)
        elif self.frame != "":
            if not first <= int(self.frame) <= last:
                return None
            first = last = int(self.frame)
        if self.left_context != -1:
            if first_input > first - self.left_context:
                self._warn("left", "initial", self.left_context, first - first_input)
            first_input = max(first_input, first - self.left_context)
        if self.right_context != -1:
            if last_input < last + self.right_context:
                self._warn("right", "final", self.right_context, last_input - last)
            last_input = min(last_input, last + self.right_context)
        kept = {"input": (first_input, last_input), "output": (first, last)}
        ios = [_keep_times(io, key, *kept[io.name]) if io.name in kept else io for io in example.io]
        return shift_times(NnetExample(ios), self.frame_shift)

    def _warn(self, side: str, end: str, wanted: int, found: int) -> None:
        if side not in self._warned:
            self._warned |= {side}
            log.warning(
                f"You requested --{side}-context={wanted}, but example only has {side}-context of "
                f"{found} (will warn only once; this may be harmless if using any "
                f"--*{side}-context-{end} options)"
            )


def _time_range(example: NnetExample, name: str, key: str) -> tuple[int, int]:
    for io in example.io:
        if (io.indexes[:, 0] != 0).any():
            raise DataError(
                f"example '{key}' is a merged one: too late for frame selection or less context"
            )
    for io in example.io:
        if io.name == name and len(io.indexes):
            times = io.indexes[:, 1]
            return int(times.min()), int(times.max())
    raise DataError(f"example '{key}' has no '{name}', which frame selection needs")


def _keep_times(io: NnetIo, key: str, first: int, last: int) -> NnetIo:
    times = io.indexes[:, 1]
    keep: BoolArray = (times >= first) & (times <= last)
    if keep.all():
        return io
    if not keep.any():
        raise DataError(f"frame selection leaves nothing of '{io.name}' in example '{key}'")
    return NnetIo(io.name, io.indexes[keep], filter_rows(io.features, keep))


# -- orders and subsets


def shuffled(examples: Iterable[Keyed], seed: int) -> list[Keyed]:
    """All examples in random order."""
    everything = list(examples)
    shuffle(everything, MersenneTwister(seed))
    return everything


def shuffle_in_buffer(examples: Iterable[Keyed], buffer_size: int) -> Iterator[Keyed]:
    """A partial shuffle: each example waits in a random place until another takes it."""
    if buffer_size < 0:
        raise OptionError(f"invalid --buffer-size={buffer_size}: must not be negative")
    buffer: list[Keyed | None] = [None] * buffer_size
    for example in examples:
        place = tensor.random.rand_int(0, buffer_size - 1)
        if (before := buffer[place]) is not None:
            yield before
        buffer[place] = example
    yield from (example for example in buffer if example is not None)


def random_subset(
    examples: Iterable[Keyed], size: int, seed: int, randomize_order: bool
) -> tuple[list[Keyed], int]:
    """Up to `size` examples, drawn as Kaldi draws them, and how many there were.

    The first `size` are taken; a later one, number k, replaces a random one with probability
    size / k.
    """
    if size <= 0:
        raise OptionError(f"invalid --n={size}: must be positive")
    chosen: list[Keyed] = []
    num_read = 0
    for example in examples:
        num_read += 1
        if num_read <= size:
            chosen.append(example)
        elif tensor.random.with_prob(float(np.float32(size) / np.float32(num_read))):
            chosen[tensor.random.rand_int(0, size - 1)] = example
    if randomize_order:
        shuffle(chosen, MersenneTwister(seed))
    return chosen, num_read

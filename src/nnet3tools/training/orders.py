"""Random orders and subsets of examples, drawn as Kaldi draws them.

This module does not load NumPy: programs that pass encoded examples start faster without it.
"""

import math
from collections.abc import Iterable, Iterator
from typing import TypeVar

from nnet3tools import draws
from nnet3tools.errors import OptionError
from nnet3tools.training.std_order import MersenneTwister, shuffle

T = TypeVar("T")


def draw_count(expected: float) -> int:
    """A random integer with mean `expected`: the floor or the ceiling of `expected`."""
    if expected == 1.0:
        return 1  # the usual case
    if expected < 0.0:
        raise OptionError(f"invalid --keep-proportion={expected:g}: must not be negative")
    count = math.floor(expected)
    return count + draws.with_prob(expected - count)


def shuffled(examples: Iterable[T], seed: int) -> list[T]:
    """All examples in random order."""
    everything = list(examples)
    shuffle(everything, MersenneTwister(seed))
    return everything


def shuffle_in_buffer(examples: Iterable[T], buffer_size: int) -> Iterator[T]:
    """Yield examples partly shuffled: each waits at one of `buffer_size` places until replaced."""
    if buffer_size < 0:
        raise OptionError(f"invalid --buffer-size={buffer_size}: must not be negative")
    buffer: list[T | None] = [None] * buffer_size
    for example in examples:
        place = draws.rand_int(0, buffer_size - 1)
        if (before := buffer[place]) is not None:
            yield before
        buffer[place] = example
    yield from (example for example in buffer if example is not None)


def random_subset(
    examples: Iterable[T], size: int, seed: int, randomize_order: bool
) -> tuple[list[T], int]:
    """A random list of up to `size` examples, as Kaldi draws it, and the number of all examples.

    Example number k > `size` replaces a random one with probability `size` / k. With
    `randomize_order` the list is shuffled, with `seed`.
    """
    if size < 0:
        raise OptionError(f"invalid --n={size}: must not be negative")
    chosen: list[T] = []
    num_read = 0
    for example in examples:
        num_read += 1
        if num_read <= size:
            chosen.append(example)
        elif size and draws.with_prob(draws.as_float32(size) / draws.as_float32(num_read)):
            chosen[draws.rand_int(0, size - 1)] = example
    if randomize_order:
        shuffle(chosen, MersenneTwister(seed))
    return chosen, num_read

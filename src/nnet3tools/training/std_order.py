"""The shuffle and hash orders of the C++ standard library (libstdc++), which Kaldi uses.

The order of minibatches affects the last digits of a trained model. Kaldi's egs programs shuffle
with std::shuffle over std::mt19937, and its merger writes the remaining examples in the order of a
std::unordered_map. Both orders are fixed by libstdc++'s documented ABI.
"""

import bisect
import random
from collections.abc import Iterator
from functools import partial
from typing import TypeVar

T = TypeVar("T")

_WORD = 0xFFFFFFFF
_STATE = 624
"""The number of words in mt19937's state."""


class MersenneTwister:
    """The random numbers of std::mt19937 and libstdc++'s uniform_int_distribution."""

    def __init__(self, seed: int) -> None:
        words = [seed & _WORD]
        for i in range(1, _STATE):
            words.append((1812433253 * (words[-1] ^ words[-1] >> 30) + i) & _WORD)
        # Python's generator is the same, with another seeding.
        generator = random.Random()
        generator.setstate((3, (*words, _STATE), None))
        self.next_word = partial(generator.getrandbits, 32)
        """Returns the generator's next 32-bit output."""

    def below(self, count: int) -> int:
        """A random integer, uniform in [0, count), for count <= 2**32 (Lemire's method)."""
        if count > _WORD:
            return self.next_word()
        product = self.next_word() * count
        if product & _WORD < count:
            threshold = (1 << 32) % count
            while product & _WORD < threshold:
                product = self.next_word() * count
        return product >> 32


def shuffle(values: list[T], generator: MersenneTwister) -> None:
    """Shuffle `values` in place with the same result as libstdc++'s std::shuffle."""
    size = len(values)
    if size < 2:
        return
    if _WORD // size < size:
        for i in range(1, size):
            drawn = generator.below(i + 1)
            values[i], values[drawn] = values[drawn], values[i]
        return
    start = 1
    if size % 2 == 0:
        drawn = generator.below(2)
        values[1], values[drawn] = values[drawn], values[1]
        start = 2
    for i in range(start, size, 2):
        first, second = divmod(generator.below((i + 1) * (i + 2)), i + 2)
        values[i], values[first] = values[first], values[i]
        values[i + 1], values[second] = values[second], values[i + 1]


# Bucket counts that a growing table with maximum load 1 passes through.
_BUCKET_COUNTS = (
    *(13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273),
    *(20753, 42043, 85229, 172933, 351061, 712697, 1447153, 2938679),
)


class HashOrder:
    """Iteration order of a std::unordered_map, given its keys' hash values.

    libstdc++ keeps one linked list; a new key is inserted before the other keys of its bucket, or,
    if the bucket is empty, at the front of the list. This class keeps the list of keys only.
    """

    def __init__(self) -> None:
        self._num_buckets = 1
        self._order: list[tuple[int, object]] = []

    def insert(self, key: object, hash_value: int) -> None:
        """Add a key, with its hash, that is not yet in this order."""
        if len(self._order) + 1 > (self._num_buckets if self._num_buckets > 1 else 0):
            self._grow()
        self._place((hash_value, key))

    def erase(self, key: object) -> None:
        """Remove a key that is in the list."""
        del self._order[next(i for i, (_, k) in enumerate(self._order) if k == key)]

    def __iter__(self) -> Iterator[object]:
        return (key for _, key in self._order)

    def _place(self, entry: tuple[int, object]) -> None:
        bucket = entry[0] % self._num_buckets
        front = (i for i, (h, _) in enumerate(self._order) if h % self._num_buckets == bucket)
        self._order.insert(next(front, 0), entry)

    def _grow(self) -> None:
        wanted = max(len(self._order) + 2, 12, 2 * self._num_buckets)
        bucket = bisect.bisect_left(_BUCKET_COUNTS, wanted)
        self._num_buckets = _BUCKET_COUNTS[min(bucket, len(_BUCKET_COUNTS) - 1)]
        entries, self._order = self._order, []
        for entry in entries:
            self._place(entry)

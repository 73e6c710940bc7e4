"""Merges examples of the same structure into minibatches by Kaldi's --minibatch-size rules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, field
from nnet3tools.io.general_matrix import append_rows, compress
from nnet3tools.training.example import NnetExample, NnetIo, structure_hash, structure_key
from nnet3tools.training.merging_stats import MergingStats
from nnet3tools.training.minibatch_rules import ExampleMergingOptions
from nnet3tools.training.same_layout import (
    DecodableExample,
    SameLayoutBatch,
    merged_by_layout,
    prototype,
)
from nnet3tools.training.std_order import HashOrder

E = TypeVar("E")


def merge_examples(examples: Sequence[DecodableExample], compress_features: bool) -> NnetExample:
    """One example with the rows of all, example by example, and distinct sequence numbers n.

    Inputs and outputs are sorted by name. Examples may be minibatches. With `compress_features`,
    full matrices are compressed. DataError if the dimension of a name differs between examples.
    """
    stride = int(prototype(examples[0]).io[0].indexes[:, 0].max(initial=0)) + 1
    return NnetExample(
        merge_runs(merged_by_layout(examples, attrgetter("io")), stride, compress_features)
    )


def merge_runs(
    runs: Iterable[tuple[int, list[NnetIo]]], stride: int, compress_features: bool
) -> list[NnetIo]:
    """The inputs and outputs of a minibatch, merged from `runs`.

    A run is a number of examples and their joined inputs and outputs (`merged_by_layout`). Sequence
    numbers go up by `stride` per example. `compress_features`: compress all. DataError if the
    dimension of a name differs.
    """
    parts: dict[str, list[tuple[NDArray[np.int32], NnetIo]]] = {}
    first = 0
    for num, ios in runs:
        numbers = np.arange(first, first + num, dtype=np.int32)
        for io in ios:
            of_rows = np.repeat(numbers, len(io.indexes) // num)
            parts.setdefault(io.name, []).append((of_rows, io))
        first += num
    return [_merge_io(parts[name], stride, compress_features) for name in sorted(parts)]


def _merge_io(
    parts: list[tuple[NDArray[np.int32], NnetIo]], stride: int, compress_features: bool
) -> NnetIo:
    name = parts[0][1].name
    dims = {io.dim for _, io in parts}
    if len(dims) > 1:
        raise DataError(
            f"merging examples with different dimensions {sorted(dims)} of '{name}': "
            "expected one dimension"
        )
    indexes = np.concatenate([io.indexes for _, io in parts])
    if indexes[:, 0].max(initial=0) >= stride:
        raise DataError(
            f"merging examples whose '{name}' has n = {indexes[:, 0].max()}: expected less than "
            f"{stride}, as in the first example"
        )
    indexes[:, 0] += stride * np.concatenate([numbers for numbers, _ in parts])
    features = append_rows([io.features for _, io in parts])
    return NnetIo(name, indexes, compress(features) if compress_features else features)


# -- merging a table


@dataclass(frozen=True)
class Mergeable(Generic[E]):
    """The functions that merge one kind of examples.

    `structure` returns a key that is equal for examples that can be merged, `structure_hash` its
    hash in Kaldi, `size` the number that --minibatch-size rules use. `merge(examples, compress)`
    returns one example. For batches of examples, `count(batch)` is their number, and `part(batch,
    begin, end)` has the examples from `begin` to `end` - 1.
    """

    structure: Callable[[E], Hashable]
    structure_hash: Callable[[E], int]
    size: Callable[[E], int]
    merge: Callable[[Sequence[E], bool], E]
    count: Callable[[E], int] = lambda example: 1
    part: Callable[[E, int, int], E] = lambda example, begin, end: example


def structure_by_layout(of_prototype: Callable[[Any], Hashable]) -> Callable[[Any], Hashable]:
    """Make a function that applies `of_prototype` to an example or, if encoded, to its prototype.

    The prototype is a decoded example of equal structure. Results are cached by structure.
    """
    of_layout = functools.lru_cache(maxsize=64)(lambda layout: of_prototype(layout.prototype()))

    def structure(example: Any) -> Hashable:
        if (layout := getattr(example, "layout", None)) is None:
            return of_prototype(example)
        example.prototype()  # the layout keeps it
        return of_layout(layout)

    return structure


def _part(example: DecodableExample, begin: int, end: int) -> DecodableExample:
    return example.part(begin, end) if isinstance(example, SameLayoutBatch) else example


MERGEABLE_FRAMES: Mergeable[DecodableExample] = Mergeable(
    structure_by_layout(structure_key),
    lambda example: structure_hash(prototype(example)),
    lambda example: prototype(example).size,
    merge_examples,
    lambda example: len(example) if isinstance(example, SameLayoutBatch) else 1,
    _part,
)
"""How frame-level examples are merged."""


_ANY_NUMBER = 1 << 62


class ExampleMerger(Generic[E]):
    """Collects examples by structure and calls `write(key, minibatch)` for full minibatches."""

    def __init__(
        self, kind: Mergeable[E], options: ExampleMergingOptions, write: Callable[[str, E], None]
    ) -> None:
        self._kind = kind
        self._rules = options.rules()
        self._compress = options.compress
        self._write = write
        self._waiting: dict[Hashable, _Waiting[E]] = {}
        self._hashes: dict[Hashable, int] = {}
        self._sizes: dict[Hashable, int] = {}
        self._order = HashOrder()
        self._stats = MergingStats()
        self.num_accepted = self.num_written = 0
        """The number of examples accepted, and of minibatches written."""

    def accept(self, example: E) -> None:
        """Add one example, or a batch of them, and write each minibatch that becomes full."""
        key = self._kind.structure(example)
        wanted = self._wanted(example, key)
        begin, count = 0, self._kind.count(example)
        self.num_accepted += count
        while begin < count:
            waiting = self._waiting.get(key) or self._begin(key, example)
            end = min(count, begin + wanted - waiting.count)
            waiting.examples.append(self._part(example, begin, end))
            waiting.count += end - begin
            begin = end
            if waiting.count >= wanted:
                del self._waiting[key]
                self._order.erase(key)
                self._write_minibatch(waiting.examples, self._hashes[key])

    def _part(self, example: E, begin: int, end: int) -> E:
        """The examples `begin` to `end` - 1 of `example`, which may be a batch of examples."""
        whole = begin == 0 and end == self._kind.count(example)
        return example if whole else self._kind.part(example, begin, end)

    def _begin(self, key: Hashable, example: E) -> _Waiting[E]:
        """Register and return an empty list of waiting examples for the structure `key`."""
        if key not in self._hashes:
            self._hashes[key] = self._kind.structure_hash(example)
        self._order.insert(key, self._hashes[key])
        waiting = self._waiting[key] = _Waiting()
        return waiting

    def _wanted(self, example: E, key: Hashable) -> int:
        """The number of examples in a full minibatch of the structure `key`."""
        if (wanted := self._sizes.get(key)) is None:
            size = self._kind.size(example)
            wanted = self._sizes[key] = self._rules.minibatch_size(size, _ANY_NUMBER, False)
        return wanted

    def finish(self) -> None:
        """Write the remaining examples as far as the rules allow, and log statistics."""
        for key in self._order:
            batches, hash_value = self._waiting[key].examples, self._hashes[key]
            size = self._kind.size(batches[0])
            left = [self._part(b, i, i + 1) for b in batches for i in range(self._kind.count(b))]
            while n := self._rules.minibatch_size(size, len(left), True):
                self._write_minibatch(left[:n], hash_value)
                del left[:n]
            self._stats.discarded(size, hash_value, len(left))
        self._waiting.clear()
        self._order = HashOrder()
        self._stats.print()

    def _write_minibatch(self, examples: list[E], hash_value: int) -> None:
        count = sum(map(self._kind.count, examples))
        self._stats.wrote(self._kind.size(examples[0]), hash_value, count)
        merged = self._kind.merge(examples, self._compress)
        self._write(f"merged-{self.num_written}-{count}", merged)
        self.num_written += 1


@dataclass
class _Waiting(Generic[E]):
    """Examples of one structure, or batches of them, that wait for a full minibatch."""

    examples: list[E] = field(default_factory=list)
    count: int = 0
    """The number of examples, in batches or not."""

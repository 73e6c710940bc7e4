"""Training examples: NnetIo, NnetExample, and Kaldi's `<Nnet3Eg>` files, in text and binary."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np

from nnet3tools.errors import DataError, NotFiniteError, RequestError
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.io import log
from nnet3tools.io.encoded import EncodedRecord
from nnet3tools.io.general_matrix import GeneralMatrix, check_finite, compress
from nnet3tools.io.holders import Holder
from nnet3tools.io.read_ahead import read_ahead
from nnet3tools.io.record import RecordObject
from nnet3tools.io.table import SequentialTableReader
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example_format import EXAMPLE_RECORD, IO_RECORD

E = TypeVar("E")


@dataclass(frozen=True)
class NnetIo(RecordObject):
    """One input or output of an example.

    `name` is the node's name; `indexes` (N, 3) has n, t and x of each row of `features` (N, dim), a
    full, compressed or sparse matrix.
    """

    name: str
    indexes: IndexArray
    features: GeneralMatrix

    RECORD = IO_RECORD

    @property
    def dim(self) -> int:
        """The number of columns of the features."""
        return self.features.shape[1]

    def check(self) -> None:
        """Raise DataError if the number of rows differs from the number of indexes."""
        num_rows = self.features.shape[0]
        if num_rows != len(self.indexes):
            raise DataError(
                f"'{self.name}' of an example has {num_rows} rows of features for "
                f"{len(self.indexes)} indexes"
            )


@dataclass
class NnetExample(RecordObject):
    """The inputs and outputs of a chunk of an utterance, or of a minibatch.

    If an objective's supervision is not a matrix (chain/), it is in `supervisions`, and `io` has
    the inputs only.
    """

    io: list[NnetIo] = field(default_factory=list)
    supervisions: tuple[Any, ...] = field(default=(), kw_only=True)

    RECORD = EXAMPLE_RECORD

    def check_finite(self) -> None:
        """Raise NotFiniteError if a matrix or a supervision has a NaN or infinite number."""
        for io in self.io:
            check_finite(f"'{io.name}'", io.features)
        for supervision in self.supervisions:
            supervision.check_finite()

    def compressed(self) -> NnetExample:
        """A copy whose full matrices are compressed."""
        return NnetExample([replace(io, features=compress(io.features)) for io in self.io])

    @property
    def size(self) -> int:
        """The largest number of rows of an input or output, as used by --minibatch-size rules."""
        return max(len(io.indexes) for io in self.io)


EncodedExample = EncodedRecord[NnetExample]
"""The bytes of a frame-level example."""

EXAMPLE: Holder[NnetExample] = Holder(
    "an example",
    NnetExample.read,
    lambda writer, example: example.write(writer),
    adopt=lambda value: value if isinstance(value, NnetExample) else None,
)
"""The holder of tables of examples (Kaldi's KaldiObjectHolder<NnetExample>)."""


class Ahead(Protocol[E]):
    """Interface of ExampleRunner: prepares examples, in the reading thread, before their use."""

    def prepare(self, example: E) -> E:
        """Prepare an example, in the reading thread; must not draw random numbers."""

    def send(self, example: E) -> None:
        """Start copying a prepared example to the GPU; does nothing if it is not prepared yet."""


def _prepared(
    rspecifier: str,
    holder: Holder[E],
    ahead: Ahead[E] | None,
    adapt: Callable[[str, E], E] | None,
    share: tuple[int, int],
) -> Iterator[tuple[str, E]]:
    with SequentialTableReader(rspecifier, holder) as examples:
        for key, example in islice(examples, share[0], None, share[1]):
            adapted = example if adapt is None else adapt(key, example)
            yield key, adapted if ahead is None else ahead.prepare(adapted)


def for_each_example(
    rspecifier: str,
    work: Callable[[str, NnetExample], None],
    ahead: Ahead[NnetExample] | None = None,
) -> int:
    """Call `work` with each key and frame-level example of a table; returns their number.

    Examples with a NotFiniteError in `work` are skipped. With `ahead`, a thread prepares examples.
    """
    return for_each_of_kind(EXAMPLE, rspecifier, work, ahead)


def for_each_of_kind(
    holder: Holder[E],
    rspecifier: str,
    work: Callable[[str, E], None],
    ahead: Ahead[E] | None = None,
    adapt: Callable[[str, E], E] | None = None,
    share: tuple[int, int] = (0, 1),
) -> int:
    """Call `work` with each key and example that `holder` reads in a table; returns their number.

    With `share` (rank, number of ranks) only the examples of this rank are taken: rank, rank +
    number and so on.

    `adapt(key, example)`, if given, returns the example that `work` gets. If `work` raises
    NotFiniteError, the example is reported and not counted. Other DataErrors and RequestErrors get
    the names of the table and the example. With `ahead`, a thread reads examples, and calls
    `ahead.prepare` with each, while `work` runs; the results are the same.
    """
    tally = ExampleTally(rspecifier)
    items = _prepared(rspecifier, holder, ahead, adapt, share)
    if ahead is not None:
        items = read_ahead(items, ready=lambda item: ahead.send(item[1]))
    with contextlib.closing(items) as examples:  # type: ignore[type-var]
        tally.work(examples, work)
    tally.report()
    return tally.count


class ExampleTally:
    """Counts the processed and the skipped examples of a table."""

    def __init__(self, rspecifier: str) -> None:
        self._rspecifier = rspecifier
        self.count = self._num_skipped = 0

    def work(self, examples: Iterable[tuple[str, E]], work: Callable[[str, E], None]) -> None:
        """Call `work` with each key and example, and count them.

        If `work` raises NotFiniteError, the example is skipped. Other errors get the names of the
        table and the example.
        """
        for key, example in examples:
            try:
                work(key, example)
            except NotFiniteError as error:
                log.skipped(NotFiniteError(f"{self._rspecifier}: example '{key}': {error}"))
                self._num_skipped += 1
                continue
            except (DataError, RequestError) as error:
                raise type(error)(f"{self._rspecifier}: example '{key}': {error}") from None
            self.count += 1

    def report(self) -> None:
        """Log a warning if any example was skipped."""
        if self._num_skipped:
            total = self.count + self._num_skipped
            log.warning(
                f"{self._rspecifier}: left out {self._num_skipped} of {total} examples, which hold "
                "NaN or infinity"
            )


def frames_io(name: str, t_begin: int, features: GeneralMatrix, t_stride: int = 1) -> NnetIo:
    """An input or output of one sequence (n = x = 0); row i has t = t_begin + i * t_stride."""
    return NnetIo(name, frame_indexes(t_begin, features.shape[0], t_stride), features)


def frame_indexes(t_begin: int, num_rows: int, t_stride: int) -> IndexArray:
    """The indexes of `num_rows` rows of one sequence; row i has t = t_begin + i * t_stride."""
    indexes = np.zeros((num_rows, 3), np.int32)
    indexes[:, 1] = np.arange(t_begin, t_begin + t_stride * num_rows, t_stride)
    return indexes


# -- structure: names, dimensions and indexes, which agree within a minibatch


def structure_key(example: NnetExample) -> tuple:
    """A key that is equal for examples with the same names, dimensions and indexes."""
    return tuple((io.name, io.dim, io.indexes.tobytes()) for io in example.io)


_WORD = 0xFFFFFFFFFFFFFFFF


def structure_hash(example: NnetExample) -> int:
    """The hash of an example's names, dimensions and indexes (NnetExampleStructureHasher)."""
    value = len(example.io) * 35099
    for io in example.io:
        value = value * 19157 + hash_of_io(io)
    return value & _WORD


def string_hash(text: str) -> int:
    """The hash of a string, as Kaldi's StringHasher."""
    value = 0
    for byte in text.encode("utf-8", "surrogateescape"):
        value = (value * 7853 + (byte - 256 if byte > 127 else byte)) & _WORD
    return value


def index_hash(indexes: IndexArray) -> int:
    """A hash of the length, the first 15 indexes and every tenth later one (IndexVectorHasher)."""
    sampled = np.concatenate([indexes[:15], indexes[15::10]]).astype(np.int64)
    return 1433 + 34949 * len(indexes) + int((sampled @ [1619, 15649, 89809]).sum())


def hash_of_io(io: NnetIo) -> int:
    """The hash of an input's name, indexes and dimensions, as Kaldi's NnetIoStructureHasher."""
    num_rows = len(io.indexes)
    return string_hash(io.name) + index_hash(io.indexes) + 19249 * num_rows + 14731 * io.dim

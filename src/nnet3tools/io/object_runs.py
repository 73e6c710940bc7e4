"""Runs: the objects of successive entries of a table, read, converted and written together.

A program that converts small objects one by one spends its time between NumPy's calls. A run takes
as many calls as one object.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import UserError, naming
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.entries import encoded_entries
from nnet3tools.io.holders import (
    INT32_VECTOR,
    POSTERIOR,
    Holder,
    bytes_of_numbers,
    find_int32_vector,
    numbers_of_bytes,
)
from nnet3tools.io.posterior import Posterior, bytes_of_frames, find_even_frames, frames_of_bytes
from nnet3tools.io.reader import Reader
from nnet3tools.io.sparse import SparseMatrix, rows_of_sparse
from nnet3tools.io.table import SequentialTableReader, TableWriter


@dataclass(frozen=True, eq=False)
class ObjectRun:
    """Objects of successive entries: object i is rows `ends[i - 1]` to `ends[i]` - 1 of `rows`.

    `rows` are integers (N,), pairs of integers (N, 2), the frames of a Posterior or the rows of a
    SparseMatrix.
    """

    keys: Sequence[str]
    rows: Any
    ends: NDArray[np.int64]

    def objects(self) -> Iterator[ObjectRun]:
        """Each object as a run of its own."""
        spans = itertools.pairwise([0, *self.ends.tolist()])
        for key, (begin, end) in zip(self.keys, spans, strict=True):
            yield ObjectRun((key,), self.rows[begin:end], np.array([end - begin]))

    def write(self, writer: TableWriter[Any]) -> None:
        """Write all objects to a table."""
        encoded = self._encoded() if len(self.keys) > 1 else None
        if encoded is None or not writer.write_encoded(self.keys, encoded):
            for one in self.objects():
                writer.write(one.keys[0], one.rows)

    def _encoded(self) -> list[bytes] | None:
        """The binary form of each object; None if there is a sparse matrix without rows."""
        rows, ends, prefix = self.rows, self.ends, b""
        counts = np.diff(ends, prepend=0).astype(np.int32)
        if isinstance(rows, SparseMatrix):
            if not counts.all():
                return None
            prefix, data = b"SM ", rows_of_sparse(rows)
            ends = 13 * ends + np.int64(10) * rows.row_offsets[ends]
        elif isinstance(rows, Posterior):
            data, ends = bytes_of_frames(rows), 5 * (ends + np.int64(2) * rows.offsets[ends])
        else:
            data, ends = bytes_of_numbers(rows), 5 * ends * (rows.size // max(len(rows), 1))
        heads = bytes_of_numbers(counts)
        spans = itertools.pairwise([0, *ends.tolist()])
        return [prefix + heads[5 * i : 5 * i + 5] + data[a:b] for i, (a, b) in enumerate(spans)]


def converted_runs(
    items: Iterable[tuple[str, Any]],
    convert: Callable[[ObjectRun], ObjectRun],
    where: Callable[[str], str],
) -> Iterator[ObjectRun]:
    """Yield what `convert` makes of each of `items`, whose values are objects or ObjectRuns.

    An object is given to it as a run of one. A user error names the object at fault: `where(key)`.
    """
    for key, value in items:
        run = value
        if not isinstance(value, ObjectRun):
            run = ObjectRun((key,), value, np.array([len(value)]))
        try:
            converted = [convert(run)]
        except UserError:
            converted = []
        yield from converted
        # Converted alone, the object at fault gives an error that names it.
        for one in () if converted else run.objects():
            with naming(where(one.keys[0])):
                alone = convert(one)
            yield alone


def convert_runs(
    rspecifier: str,
    wspecifier: str,
    holders: tuple[Holder[Any], Holder[Any]],
    convert: Callable[[ObjectRun], ObjectRun],
) -> int:
    """Convert the objects of a table by `convert`, and write them; returns their number.

    `holders`: of input, which may give ObjectRuns, and output. User errors name table and key.
    """
    num_done = 0
    with (
        TableWriter(wspecifier, holders[1]) as writer,
        SequentialTableReader(rspecifier, holders[0]) as reader,
    ):
        for run in converted_runs(reader, convert, lambda key: f"{rspecifier}: key '{key}'"):
            run.write(writer)
            num_done += len(run.keys)
    return num_done


def _int32_runs(reader: Reader) -> Iterator[tuple[str, ObjectRun]]:
    if found := list(encoded_entries(reader, find_int32_vector)):
        keys, vectors = zip(*found, strict=True)
        ends = np.cumsum([len(vector) // 5 for vector in vectors])
        yield keys[-1], ObjectRun(keys, numbers_of_bytes(b"".join(vectors), np.int32), ends)


def _posterior_runs(reader: Reader) -> Iterator[tuple[str, ObjectRun]]:
    if found := list(encoded_entries(reader, find_even_frames)):
        keys, posteriors = zip(*found, strict=True)
        frames, counts = zip(*posteriors, strict=True)
        num_frames = [
            len(some) // (5 + 10 * count) for some, count in zip(frames, counts, strict=True)
        ]
        rows = frames_of_bytes(b"".join(frames), np.repeat(counts, num_frames))
        yield keys[-1], ObjectRun(keys, rows, np.cumsum(num_frames))


INT32_VECTOR_RUNS: Holder[Any] = replace(cast(Holder[Any], INT32_VECTOR), entries=_int32_runs)
"""Tables of integer vectors, of which binary archives give a run under the last one's key."""

POSTERIOR_RUNS: Holder[Any] = replace(cast(Holder[Any], POSTERIOR), entries=_posterior_runs)
"""Tables of posteriors, of which binary archives give a run under the last one's key."""

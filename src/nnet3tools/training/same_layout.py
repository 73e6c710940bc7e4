"""Records of one layout, decoded together.

The matrices of records of one layout have the same form, mostly at the same
place in every record, so that one array, or one decompression, covers all of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.compressed import decompress_all
from nnet3tools.io.encoded import EncodedRecord, Layout
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.io.holders import Holder
from nnet3tools.io.matrix_forms import FULL_HEAD, SPARSE_HEAD, AnyBytes, MatrixForm
from nnet3tools.io.sparse import SparseMatrix, sparse_of_rows
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import EncodedExample, NnetExample, NnetIo
from nnet3tools.training.example_format import ENCODED_EXAMPLES, EXAMPLE_LAYOUTS


class SameLayoutMatrices:
    """The encoded matrices that all records of a batch have at one place of the record.

    Matrix i is `data[starts[i]:ends[i]]`.
    """

    def __init__(
        self,
        form: MatrixForm | AnyBytes,
        data: bytes,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        self._form, self._data, self._starts, self._ends = form, data, starts, ends

    def __len__(self) -> int:
        """The number of matrices."""
        return len(self._starts)

    @property
    def form(self) -> MatrixForm:
        """The encoded form (token and size) that all these matrices have."""
        assert isinstance(self._form, MatrixForm)
        return self._form

    @property
    def encoded(self) -> list[bytes]:
        """The bytes of each matrix."""
        return self._slices(0)

    def features(self, weights: NDArray[np.float32] | None = None) -> GeneralMatrix:
        """One decoded matrix with the rows of all matrices, each multiplied by its weight."""
        num, rows, cols = len(self), self.form.num_rows, self.form.num_cols
        if self.form.token == "SM":
            sparse = sparse_of_rows(b"".join(self._slices(SPARSE_HEAD)), num * rows)
            return sparse if weights is None else _weighted(sparse, np.repeat(weights, rows))
        if self.form.token == "FM":
            elements = b"".join(self._slices(FULL_HEAD))
            dense = np.frombuffer(elements, "<f4").reshape(num, rows, cols)
            return (dense if weights is None else dense * weights[:, None, None]).reshape(-1, cols)
        return self._decompressed(weights).reshape(-1, cols)

    def ranges(self, weights: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Minimum and range (N, 2) of N compressed matrices, times each matrix's weight."""
        begin = len(self.form.token) + 1
        ranges = np.frombuffer(b"".join(self._slices(begin, begin + 8)), "<f4").reshape(-1, 2)
        return ranges if weights is None else ranges * weights[:, None]

    def _slices(self, begin: int, end: int | None = None) -> list[bytes]:
        """Bytes `begin` to `end` (None: to the last) of each encoded matrix."""
        ends = self._ends if end is None else self._starts + end
        spans = zip((self._starts + begin).tolist(), ends.tolist(), strict=True)
        return [self._data[a:b] for a, b in spans]

    def _decompressed(self, weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
        token, rows, cols = self.form.token, self.form.num_rows, self.form.num_cols
        begin = len(token) + 1
        if _pays_to_compile(len(self) * rows * cols):
            # Here, as it takes 20 ms to load.
            from nnet3tools.tensor.operators.compress.kaldi import decompress

            starts = self._starts + begin
            if (found := decompress(token, self._data, starts, (rows, cols), weights)) is not None:
                return found
        low, extent = np.ascontiguousarray(self.ranges(weights).T)
        begin += 16
        elements = begin + 8 * cols if token == "CM" else begin
        percentiles = np.frombuffer(b"".join(self._slices(begin, elements)), "<u2")
        codes = np.frombuffer(
            b"".join(self._slices(elements)), "<u2" if token == "CM2" else np.uint8
        )
        shape = (cols, rows) if token == "CM" else (rows, cols)
        return decompress_all(
            low, extent, percentiles.reshape(len(self), -1, 4), codes.reshape(-1, *shape)
        )


_num_decompressed = 0
_WORTH_COMPILING = 1_500_000
"""Elements that NumPy decompresses in 90 ms, the time it takes to load the compiled kernel."""


def _pays_to_compile(num_elements: int) -> bool:
    """Count elements to decompress; returns whether all so far justify loading a kernel."""
    global _num_decompressed
    _num_decompressed += num_elements
    return _num_decompressed > _WORTH_COMPILING


def _weighted(sparse: SparseMatrix, weights: NDArray[np.float32]) -> SparseMatrix:
    """A copy of `sparse` whose row i is multiplied by `weights[i]`."""
    values = sparse.values * weights[sparse.row_numbers]
    return SparseMatrix(sparse.row_offsets, sparse.indices, values, sparse.num_cols)


@dataclass(frozen=True, eq=False)
class SameLayoutBatch:
    """The bytes of N records of one layout: all bytes between their matrices and numbers are equal.

    `spans` (N, 1 + M, 2) has the begin and the end in `data` of each record (the part that the
    layout describes) and of each of its M matrices and numbers. `entries`, if the batch is from an
    archive, are the archive's entries as matches of `layout.entry`.
    """

    layout: Layout
    data: bytes
    spans: NDArray[np.int64]
    entries: Sequence[re.Match[bytes]] = ()

    def __len__(self) -> int:
        """The number of records."""
        return len(self.spans)

    @classmethod
    def of(cls, layout: Layout, records: Iterable[EncodedRecord[Any]]) -> SameLayoutBatch:
        """Join the first bytes of each of `records`, which `layout` describes, to one batch."""
        covered = [record.covered for record in records]
        sizes = np.fromiter(map(len, covered), np.int64, len(covered))
        data = b"".join(covered)
        return cls(layout, data, _spans(layout, data, sizes.cumsum() - sizes, sizes))

    @classmethod
    def joined(cls, batches: Sequence[SameLayoutBatch]) -> SameLayoutBatch:
        """One batch with the records of several batches of one layout, in order."""
        if len(batches) == 1:
            return batches[0]
        begins = itertools.accumulate((len(batch.data) for batch in batches), initial=0)
        spans = [batch.spans + begin for batch, begin in zip(batches, begins, strict=False)]
        data = b"".join(batch.data for batch in batches)
        return cls(batches[0].layout, data, np.concatenate(spans))

    def keys(self) -> list[str]:
        """The keys of the `entries`."""
        return [match.group(1).decode() for match in self.entries]

    def records(self) -> Iterator[tuple[str, EncodedRecord[Any]]]:
        """The key and the record of each of the `entries`."""
        for key, match in zip(self.keys(), self.entries, strict=True):
            yield key, EncodedRecord(match.group(2), self.layout)

    def part(self, begin: int, end: int) -> SameLayoutBatch:
        """A new batch with the records number `begin` to `end` - 1 and their bytes only."""
        first, last = int(self.spans[begin, 0, 0]), int(self.spans[end - 1, 0, 1])
        return SameLayoutBatch(self.layout, self.data[first:last], self.spans[begin:end] - first)

    def prototype(self) -> Any:
        """An object with the names, indexes and dimensions that all records have."""
        return self.layout.prototype(self.data[slice(*self.spans[0, 0].tolist())])

    def matrices(self) -> list[SameLayoutMatrices]:
        """For each matrix or number of a record, a SameLayoutMatrices with that of every record."""
        places = zip(self.layout.forms, self.spans[:, 1:].transpose(1, 2, 0), strict=True)
        return [SameLayoutMatrices(form, self.data, *span) for form, span in places]


def _spans(
    layout: Layout, data: bytes, begins: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """(N, 1 + M, 2): begin and end in `data` of each record and of its M matrices and numbers."""
    # If the sizes of all holes but one are fixed, records of equal sizes have equal holes.
    is_even = (sizes == sizes[0]).all() and sum(form.most > 0 for form in layout.forms) <= 1
    matched = begins[:1] if is_even else begins
    regs = [layout.pattern.match(data, at).regs for at in matched.tolist()]  # type: ignore[union-attr]
    offsets = np.array(regs, np.int64) - matched[:, None, None]
    return offsets + begins[:, None, None]


# -- frame-level examples


DecodableExample = NnetExample | EncodedExample | SameLayoutBatch
"""An example, or encoded ones whose layout is common."""


def prototype(example: DecodableExample) -> NnetExample:
    """An example with the names, indexes and dimensions of `example` and arbitrary elements."""
    return example if isinstance(example, NnetExample) else example.prototype()


def _decodable(example: NnetExample | EncodedExample) -> NnetExample | EncodedExample:
    """The example, decoded if few examples have its structure (layout)."""
    is_rare = isinstance(example, EncodedRecord) and not example.layout.is_common
    return example.whole() if is_rare else example  # type: ignore[union-attr]


def _adopt(value: object) -> NnetExample | EncodedExample | None:
    assert ENCODED_EXAMPLES.adopt is not None
    adopted = ENCODED_EXAMPLES.adopt(value)
    return None if adopted is None else _decodable(adopted)


def _entries(reader: Reader) -> Iterator[tuple[str, NnetExample | EncodedExample]]:
    assert ENCODED_EXAMPLES.entries is not None
    return ((key, _decodable(example)) for key, example in ENCODED_EXAMPLES.entries(reader))


DECODABLE_EXAMPLES: Holder[NnetExample | EncodedExample] = replace(
    ENCODED_EXAMPLES,
    read=lambda reader: _decodable(ENCODED_EXAMPLES.read(reader)),
    entries=_entries,
    adopt=_adopt,
)
"""The holder of tables of frame-level examples that are decoded together if they can be."""


def _batches(reader: Reader) -> Iterator[tuple[str, SameLayoutBatch]]:
    for layout, run in EXAMPLE_LAYOUTS.runs(reader):
        begins, ends = np.array([match.span(2) for match in run], np.int64).T
        data = run[0].string[begins[0] : ends[-1]]
        spans = _spans(layout, data, begins - begins[0], ends - begins)
        yield run[-1].group(1).decode(), SameLayoutBatch(layout, data, spans, run)


BATCHED_EXAMPLES: Holder[Any] = replace(cast(Holder[Any], DECODABLE_EXAMPLES), entries=_batches)
"""The same, successive examples of one layout as a SameLayoutBatch, under the last one's key."""


# -- examples of any kind

E = TypeVar("E")


def merged_by_layout(
    examples: Sequence[Any], ios_of: Callable[[Any], list[NnetIo]]
) -> Iterator[tuple[int, list[NnetIo]]]:
    """For each run of examples of equal structure: (their number, joined inputs and outputs).

    An input or output has the rows of one example after another; the sequence numbers n are those
    of each example. `ios_of` returns the inputs and outputs of an object that was read in full.
    """
    for layout, run in itertools.groupby(
        examples, lambda example: getattr(example, "layout", None)
    ):
        if layout is None:
            yield from ((1, ios_of(example)) for example in run)
            continue
        of_layout = list(run)
        ios = ios_of(of_layout[0].prototype())
        batch = SameLayoutBatch.joined(list(_in_batches(layout, of_layout)))
        yield (
            len(batch),
            [
                NnetIo(io.name, np.tile(io.indexes, (len(batch), 1)), matrices.features())
                for io, matrices in zip(ios, batch.matrices(), strict=False)
            ],
        )


def _in_batches(layout: Layout, examples: Iterable[Any]) -> Iterator[SameLayoutBatch]:
    """Batches of encoded examples: batches unchanged, successive single examples as one batch."""
    for is_batch, run in itertools.groupby(examples, lambda e: isinstance(e, SameLayoutBatch)):
        if is_batch:
            yield from run
        else:
            yield SameLayoutBatch.of(layout, run)

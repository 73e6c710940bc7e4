"""Examples of one layout, taken apart many at a time.

Their bytes are known to be sound (`example_layout`), so that the matrices of all of them are one
view, or one decompression, and no example is read by itself.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.compressed import decompress_all
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.io.holders import Holder
from nnet3tools.io.index_vector import read_index_vector
from nnet3tools.io.matrix_forms import (
    COMPRESSED_SIZES,
    FULL_HEAD,
    SPARSE_HEAD,
    AnyBytes,
    MatrixForm,
)
from nnet3tools.io.sparse import SparseMatrix, sparse_of_rows
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.example_bytes import (
    EXAMPLE_BYTES,
    ExampleBytes,
    recognised,
    runs_of_known,
)
from nnet3tools.training.example_layout import Layout

__all__ = [
    "LIKE_BLOCKS",
    "LIKE_EXAMPLES",
    "LikeBlock",
    "LikeExample",
    "LikeMatrices",
    "prototype",
    "runs_of_like",
]

LikeExample = NnetExample | ExampleBytes
"""An example that was read, or the bytes of one that has a layout."""


def _read(reader: Reader) -> LikeExample:
    example = EXAMPLE_BYTES.read(reader)
    if isinstance(example, ExampleBytes) and example.layout is None:
        return example.whole()
    return example


def _adopt(value: object) -> LikeExample | None:
    if isinstance(value, ExampleBytes) and value.layout is None:
        value = recognised(value)
        return value if value.layout is not None else value.whole()
    return value if isinstance(value, (NnetExample, ExampleBytes)) else None


LIKE_EXAMPLES: Holder[LikeExample] = Holder(
    "an example", _read, EXAMPLE_BYTES.write, entries=EXAMPLE_BYTES.entries, adopt=_adopt
)
"""The holder of tables of examples that are taken apart many at a time where they are alike."""


def _runs(reader: Reader) -> Iterator[tuple[str, LikeExample | LikeBlock]]:
    for key, layout, data, places in runs_of_known(reader):
        starts, ends = np.array(places, np.int64).T
        yield key, LikeBlock(layout, data, starts, ends)


LIKE_BLOCKS: Holder[LikeExample | LikeBlock] = Holder(
    "an example", _read, cast("Any", EXAMPLE_BYTES.write), entries=_runs, adopt=_adopt
)
"""The same, with examples of one layout that follow one another as one LikeBlock, under the last
one's key."""


def prototype(example: LikeExample | LikeBlock) -> NnetExample:
    """An example with the same names, indexes and dimensions; its elements are any."""
    return example if isinstance(example, NnetExample) else prototype_of(example.layout)


@lru_cache(maxsize=64)
def prototype_of(layout: Layout) -> NnetExample:
    """An example of a layout, without elements: its features are sparse."""
    ios = []
    for fixed, form in zip(layout.fixed, layout.forms, strict=False):
        assert isinstance(form, MatrixForm)
        reader = Reader(io.BytesIO(fixed[fixed.index(b"<NnetIo> ") :]), binary=True)
        reader.expect_token("<NnetIo>")
        name, indexes = reader.read_token(), read_index_vector(reader)
        nothing = SparseMatrix.from_counts([0] * form.num_rows, [], [], form.num_cols)
        ios.append(NnetIo(name, indexes, nothing))
    return NnetExample(ios)


class LikeMatrices:
    """A matrix of each of several like examples: what they are in one piece of bytes."""

    def __init__(
        self,
        form: MatrixForm | AnyBytes,
        data: bytes,
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        self._form, self._data, self._starts, self._ends = form, data, starts, ends

    def __len__(self) -> int:
        """How many matrices there are."""
        return len(self._starts)

    @property
    def form(self) -> MatrixForm:
        """What they are stored as."""
        assert isinstance(self._form, MatrixForm)
        return self._form

    @property
    def whole(self) -> list[bytes]:
        """All bytes of each matrix."""
        return self._pieces(0)

    def features(self, weights: NDArray[np.float32] | None = None) -> GeneralMatrix:
        """The rows of all matrices, each times its weight; compressed ones come decompressed."""
        num, rows, cols = len(self), self.form.num_rows, self.form.num_cols
        if self.form.token == "SM":
            sparse = sparse_of_rows(b"".join(self._pieces(SPARSE_HEAD)), num * rows)
            return sparse if weights is None else _weighted(sparse, np.repeat(weights, rows))
        if self.form.token == "FM":
            elements = b"".join(self._pieces(FULL_HEAD))
            dense = np.frombuffer(elements, "<f4").reshape(num, rows, cols)
            return (dense if weights is None else dense * weights[:, None, None]).reshape(-1, cols)
        return self._decompressed(weights).reshape(-1, cols)

    def ranges(self, weights: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Minimum and range of compressed matrices, times their weights, (N, 2)."""
        begin = len(self.form.token) + 1
        ranges = np.frombuffer(b"".join(self._pieces(begin, begin + 8)), "<f4").reshape(-1, 2)
        return ranges if weights is None else ranges * weights[:, None]

    def _pieces(self, begin: int, end: int | None = None) -> list[bytes]:
        """These bytes of each matrix."""
        ends = self._ends if end is None else self._starts + end
        places = zip((self._starts + begin).tolist(), ends.tolist(), strict=True)
        return [self._data[a:b] for a, b in places]

    def _decompressed(self, weights: NDArray[np.float32] | None) -> NDArray[np.float32]:
        token, rows, cols = self.form.token, self.form.num_rows, self.form.num_cols
        begin = len(token) + 1
        if _pays_to_compile(len(self) * rows * cols):
            # Here, as it takes 20 ms to load.
            from nnet3tools.tensor.operators.compress.kaldi import decompress

            starts = self._starts + begin
            found = decompress(token, self._data, starts, (rows, cols), weights)
            if found is not None:
                return found
        low, extent = np.ascontiguousarray(self.ranges(weights).T)
        of_column, _ = COMPRESSED_SIZES[token]
        begin += 16
        elements = begin + of_column * cols
        percentiles = b"".join(self._pieces(begin, elements)) if of_column else b""
        codes = np.frombuffer(
            b"".join(self._pieces(elements)), "<u2" if token == "CM2" else np.uint8
        )
        return decompress_all(
            low,
            extent,
            np.frombuffer(percentiles, "<u2").reshape(len(self), -1, 4),
            codes.reshape((len(self), cols, rows) if of_column else (len(self), rows, cols)),
        )


_num_decompressed = 0
_WORTH_COMPILING = 8_000_000
"""Elements, which NumPy takes 60 ms to decompress; compiled code is there in as much time."""


def _pays_to_compile(num_elements: int) -> bool:
    """Whether this process has decompressed so much that more of it is likely."""
    global _num_decompressed
    _num_decompressed += num_elements
    return _num_decompressed > _WORTH_COMPILING


def _weighted(sparse: SparseMatrix, weights: NDArray[np.float32]) -> SparseMatrix:
    """Each row times its weight."""
    values = sparse.values * weights[sparse.row_numbers]
    return SparseMatrix(sparse.row_offsets, sparse.indices, values, sparse.num_cols)


@dataclass(frozen=True, eq=False)
class LikeBlock:
    """Examples of one layout in one piece of bytes, where each has its start and its end."""

    layout: Layout
    data: bytes
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        """How many examples there are."""
        return len(self.starts)

    @classmethod
    def of(cls, layout: Layout, examples: Sequence[bytes]) -> LikeBlock:
        """Of examples that stand by themselves."""
        ends = np.cumsum(np.fromiter(map(len, examples), np.int64, len(examples)), dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        return cls(layout, b"".join(examples), starts, ends)

    @classmethod
    def joined(cls, blocks: Sequence[LikeBlock]) -> LikeBlock:
        """The examples of blocks of one layout."""
        if len(blocks) == 1:
            return blocks[0]
        sizes = np.array([len(block.data) for block in blocks], np.int64)
        shifts = np.repeat(sizes.cumsum() - sizes, [len(block) for block in blocks])
        # NumPy 1.26 says of sums of what it does not know the type of that they are of bool.
        starts: NDArray[np.int64] = np.concatenate([block.starts for block in blocks])
        ends: NDArray[np.int64] = np.concatenate([block.ends for block in blocks])
        data = b"".join(block.data for block in blocks)
        return cls(blocks[0].layout, data, starts + shifts, ends + shifts)

    def part(self, begin: int, end: int) -> LikeBlock:
        """The examples from `begin` to `end`, without the bytes of the others."""
        first, last = int(self.starts[begin]), int(self.ends[end - 1])
        starts, ends = self.starts[begin:end] - first, self.ends[begin:end] - first
        return LikeBlock(self.layout, self.data[first:last], starts, ends)

    def matrices(self) -> list[LikeMatrices]:
        """The matrices of all examples, input by input and output by output."""
        layout = self.layout
        found = []
        if (self.ends - self.starts == layout.longest).all():
            begins = self.starts
            for fixed, form in zip(layout.fixed, layout.forms, strict=False):
                begins = begins + len(fixed)
                ends = begins + form.longest
                found.append(LikeMatrices(form, self.data, begins, ends))
                begins = ends
            return found
        places = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        spans = [layout.pattern.fullmatch(self.data, a, b).regs for a, b in places]  # type: ignore[union-attr]
        for form, place in zip(layout.forms, np.array(spans).transpose(1, 2, 0)[1:], strict=True):
            found.append(LikeMatrices(form, self.data, *place))
        return found


def runs_of_like(examples: Sequence[LikeExample | LikeBlock]) -> Iterator[tuple[int, list[NnetIo]]]:
    """Stretches of examples of one layout: how many they are, and the inputs and outputs of all.

    Each has the rows of one example after another; their sequence numbers n are those of a single
    example.
    """
    for layout, some in itertools.groupby(examples, _layout_of):
        if layout is None:
            yield from ((1, example.io) for example in some)  # type: ignore[union-attr]
        else:
            block = LikeBlock.joined(list(_blocks(layout, some)))
            yield len(block), _ios_of_all(block)


def _layout_of(example: LikeExample | LikeBlock) -> Layout | None:
    return None if isinstance(example, NnetExample) else example.layout


def _blocks(layout: Layout, examples: Iterable[LikeExample | LikeBlock]) -> Iterator[LikeBlock]:
    """Blocks as they are, and examples that stand by themselves in as few as possible."""
    for is_block, some in itertools.groupby(examples, lambda e: isinstance(e, LikeBlock)):
        if is_block:
            yield from some  # type: ignore[misc]
        else:
            yield LikeBlock.of(layout, [example.data for example in some])  # type: ignore[union-attr]


def _ios_of_all(block: LikeBlock) -> list[NnetIo]:
    return [
        NnetIo(like.name, np.tile(like.indexes, (len(block), 1)), some.features())
        for like, some in zip(prototype_of(block.layout).io, block.matrices(), strict=True)
    ]

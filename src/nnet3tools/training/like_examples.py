"""Examples of one layout, taken apart many at a time.

Their bytes are known to be sound (`example_layout`), so that the matrices of all of them are one
view, or one decompression, and no example is read by itself.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.compressed import decompress_all
from nnet3tools.io.general_matrix import GeneralMatrix
from nnet3tools.io.holders import Holder
from nnet3tools.io.index_vector import read_index_vector
from nnet3tools.io.matrix_forms import MatrixForm
from nnet3tools.io.sparse import SparseMatrix, sparse_of_rows
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.example_bytes import EXAMPLE_BYTES, ExampleBytes, recognised
from nnet3tools.training.example_layout import Layout

__all__ = [
    "LIKE_EXAMPLES",
    "LikeExample",
    "LikeMatrices",
    "like_matrices",
    "prototype",
    "runs_of_like",
]

LikeExample = NnetExample | ExampleBytes
"""An example that was read, or the bytes of one that has a layout."""


def _read(reader: Reader) -> LikeExample:
    example = EXAMPLE_BYTES.read(reader)
    if isinstance(example, ExampleBytes) and example.layout is None:
        return example.example()
    return example


def _adopt(value: object) -> LikeExample | None:
    if isinstance(value, ExampleBytes) and value.layout is None:
        value = recognised(value)
        return value if value.layout is not None else value.example()
    return value if isinstance(value, (NnetExample, ExampleBytes)) else None


LIKE_EXAMPLES: Holder[LikeExample] = Holder(
    "an example", _read, EXAMPLE_BYTES.write, entries=EXAMPLE_BYTES.entries, adopt=_adopt
)
"""The holder of tables of examples that are taken apart many at a time where they are alike."""


def prototype(example: LikeExample) -> NnetExample:
    """An example with the same names, indexes and dimensions; its elements are any."""
    return example if isinstance(example, NnetExample) else prototype_of(example.layout)


@lru_cache(maxsize=64)
def prototype_of(layout: Layout) -> NnetExample:
    """An example of a layout, without elements: its features are sparse."""
    ios = []
    for fixed, form in zip(layout.fixed, layout.forms, strict=False):
        reader = Reader(io.BytesIO(fixed[fixed.index(b"<NnetIo> ") :]), binary=True)
        reader.expect_token("<NnetIo>")
        name, indexes = reader.read_token(), read_index_vector(reader)
        nothing = SparseMatrix.from_counts([0] * form.num_rows, [], [], form.num_cols)
        ios.append(NnetIo(name, indexes, nothing))
    return NnetExample(ios)


class LikeMatrices:
    """A matrix of each of several like examples, as bytes and as arrays."""

    def __init__(self, form: MatrixForm, whole: Sequence[bytes], parts: list[bytes]) -> None:
        self.form = form
        self.whole = whole
        """All bytes of each matrix."""
        self.parts = parts
        """The parts of the form's pattern, each of all matrices one after another."""

    def features(self, weights: NDArray[np.float32] | None = None) -> GeneralMatrix:
        """The rows of all matrices, each times its weight; compressed ones come decompressed."""
        num, rows, cols = len(self.whole), self.form.num_rows, self.form.num_cols
        if self.form.token == "SM":
            sparse = sparse_of_rows(self.parts[0], num * rows)
            return sparse if weights is None else _weighted(sparse, np.repeat(weights, rows))
        if self.form.token == "FM":
            dense = np.frombuffer(self.parts[0], "<f4").reshape(num, rows, cols)
            return (dense if weights is None else dense * weights[:, None, None]).reshape(-1, cols)
        low, extent = np.ascontiguousarray(self.ranges(weights).T)
        by_columns = self.form.token == "CM"
        percentiles = self.parts[1] if by_columns else b""
        codes = np.frombuffer(self.parts[-1], "<u2" if self.form.token == "CM2" else np.uint8)
        return decompress_all(
            low,
            extent,
            np.frombuffer(percentiles, "<u2").reshape(num, -1, 4),
            codes.reshape((num, cols, rows) if by_columns else (num, rows, cols)),
        ).reshape(-1, cols)

    def ranges(self, weights: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Minimum and range of compressed matrices, times their weights, (N, 2)."""
        ranges = np.frombuffer(self.parts[0], "<f4").reshape(-1, 2)
        return ranges if weights is None else ranges * weights[:, None]


def _weighted(sparse: SparseMatrix, weights: NDArray[np.float32]) -> SparseMatrix:
    """Each row times its weight."""
    values = sparse.values * weights[sparse.row_numbers]
    return SparseMatrix(sparse.row_offsets, sparse.indices, values, sparse.num_cols)


def like_matrices(layout: Layout, examples: Sequence[bytes]) -> list[LikeMatrices]:
    """The matrices of examples of a layout, input by input and output by output."""
    found = [layout.pattern.fullmatch(example).groups() for example in examples]  # type: ignore[union-attr]
    columns = iter(list(zip(*found, strict=True)))
    matrices = []
    for form in layout.forms:
        whole = next(columns)
        parts = [b"".join(column) for column in itertools.islice(columns, form.num_parts)]
        matrices.append(LikeMatrices(form, whole, parts))
    return matrices


def runs_of_like(examples: Sequence[LikeExample]) -> Iterator[tuple[int, list[NnetIo]]]:
    """Stretches of examples of one layout: how many they are, and the inputs and outputs of all.

    Each has the rows of one example after another; their sequence numbers n are those of a single
    example.
    """
    for layout, some in itertools.groupby(examples, _layout_of):
        if layout is None:
            yield from ((1, example.io) for example in some)  # type: ignore[union-attr]
        else:
            run = [example.data for example in some]  # type: ignore[union-attr]
            yield len(run), _ios_of_all(layout, run)


def _layout_of(example: LikeExample) -> Layout | None:
    return example.layout if isinstance(example, ExampleBytes) else None


def _ios_of_all(layout: Layout, examples: Sequence[bytes]) -> list[NnetIo]:
    matrices = like_matrices(layout, examples)
    return [
        NnetIo(like.name, np.tile(like.indexes, (len(examples), 1)), some.features())
        for like, some in zip(prototype_of(layout).io, matrices, strict=True)
    ]

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

__all__ = ["LIKE_EXAMPLES", "LikeExample", "like_ios", "prototype", "runs_of_like"]

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
    if isinstance(example, NnetExample):
        return example
    assert example.layout is not None
    return _prototype_of(example.layout)


@lru_cache(maxsize=64)
def _prototype_of(layout: Layout) -> NnetExample:
    ios = []
    for fixed, form in zip(layout.fixed, layout.forms, strict=False):
        reader = Reader(io.BytesIO(fixed[fixed.index(b"<NnetIo> ") :]), binary=True)
        reader.expect_token("<NnetIo>")
        name, indexes = reader.read_token(), read_index_vector(reader)
        nothing = SparseMatrix.from_counts([0] * form.num_rows, [], [], form.num_cols)
        ios.append(NnetIo(name, indexes, nothing))
    return NnetExample(ios)


def runs_of_like(examples: Sequence[LikeExample]) -> Iterator[tuple[int, list[NnetIo]]]:
    """Stretches of examples of one layout: how many they are, and the inputs and outputs of all."""
    for layout, some in itertools.groupby(examples, _layout_of):
        if layout is None:
            yield from ((1, example.io) for example in some)  # type: ignore[union-attr]
        else:
            run = [example.data for example in some]  # type: ignore[union-attr]
            yield len(run), like_ios(layout, run)


def _layout_of(example: LikeExample) -> Layout | None:
    return example.layout if isinstance(example, ExampleBytes) else None


def like_ios(layout: Layout, examples: Sequence[bytes]) -> list[NnetIo]:
    """The inputs and outputs of all examples; each has the rows of one after another.

    Compressed features come decompressed. The sequence numbers n are those of a single example.
    """
    found = [layout.pattern.fullmatch(example).groups() for example in examples]  # type: ignore[union-attr]
    parts = iter([b"".join(part) for part in zip(*found, strict=True)])
    num = len(examples)
    ios = []
    for like, form in zip(_prototype_of(layout).io, layout.forms, strict=True):
        indexes = np.tile(like.indexes, (num, 1))
        ios.append(NnetIo(like.name, indexes, _features(form, num, parts)))
    return ios


def _features(form: MatrixForm, num: int, parts: Iterator[bytes]) -> GeneralMatrix:
    """The rows of `num` matrices of a form, of what the groups of its pattern matched in each."""
    rows, cols = form.num_rows, form.num_cols
    if form.token == "FM":
        return np.frombuffer(next(parts), "<f4").reshape(-1, cols)
    if form.token == "SM":
        return sparse_of_rows(next(parts), num * rows)
    low, extent = np.ascontiguousarray(np.frombuffer(next(parts), "<f4").reshape(num, 2).T)
    by_columns = form.token == "CM"
    percentiles = np.frombuffer(next(parts) if by_columns else b"", "<u2").reshape(num, -1, 4)
    codes = np.frombuffer(next(parts), "<u2" if form.token == "CM2" else np.uint8)
    codes = codes.reshape((num, cols, rows) if by_columns else (num, rows, cols))
    return decompress_all(low, extent, percentiles, codes).reshape(-1, cols)

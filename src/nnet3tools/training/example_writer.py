"""Writing the frame-level examples of an utterance together."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnet3tools.io.compressed import compressed_bytes
from nnet3tools.io.encoded import Layout
from nnet3tools.io.general_matrix import (
    GeneralMatrix,
    SparseMatrix,
    encode,
    encoded_parts,
    read_general_matrix,
)
from nnet3tools.io.general_matrix import compress as compress_one
from nnet3tools.io.reader import Reader
from nnet3tools.io.table import TableWriter
from nnet3tools.nnet.indexes import IndexArray
from nnet3tools.training.example import NnetExample, NnetIo, frame_indexes
from nnet3tools.training.example_format import EXAMPLE_LAYOUTS

_MOST = 64
Matrices = Sequence[GeneralMatrix] | SparseMatrix | np.ndarray
"""A matrix per example: a list, sparse matrices joined by rows, or an array (N, rows, columns)."""


class EncodedIos(NamedTuple):
    """An input or output of several examples: name, indexes, and the encoded matrix of each."""

    name: str
    indexes: IndexArray
    matrices: Sequence[bytes]


def encoded_ios(
    name: str, t_begin: int, t_stride: int, matrices: Matrices, num: int, compress: bool
) -> EncodedIos:
    """An input or output `name` of `num` examples of one sequence, whose rows have the same t.

    Row i has t = t_begin + i * t_stride. With `compress`, full matrices are compressed.
    """
    if isinstance(matrices, SparseMatrix):
        num_rows, encoded = matrices.num_rows // num, encoded_parts(matrices, num)
    elif isinstance(matrices, np.ndarray) and matrices.size:
        dense = matrices.astype(np.float32, copy=False)
        num_rows, joined = dense.shape[1], dense.reshape(-1, dense.shape[2])
        encoded = compressed_bytes(dense) if compress else encoded_parts(joined, num)
    else:
        num_rows = matrices[0].shape[0]
        encoded = [encode(compress_one(one) if compress else one) for one in matrices]
    return EncodedIos(name, frame_indexes(t_begin, num_rows, t_stride), encoded)


class ExampleGroup(NamedTuple):
    """Examples with the same inputs, outputs and indexes, and their places among all examples."""

    places: Sequence[int]
    ios: Sequence[EncodedIos]

    def example(self, number: int) -> NnetExample:
        """Decode example `number` of the group."""
        found = []
        for name, indexes, matrices in self.ios:
            reader = Reader(io.BytesIO(matrices[number]), binary=True)
            found.append(NnetIo(name, indexes, read_general_matrix(reader)))
        return NnetExample(found)


class ExampleWriter:
    """Writes examples to a table whose holder is ENCODED_EXAMPLES."""

    def __init__(self, table: TableWriter[Any]) -> None:
        self._table = table
        self._layouts: dict[tuple[object, ...], Layout | None] = {}

    def write(self, keys: Sequence[str], groups: Sequence[ExampleGroup]) -> None:
        """Write the examples of `groups` in the order of their `keys`, which must be valid."""
        found: list[Any] = [None] * len(keys)
        for group in groups:
            layout = self._layout(group)
            objects: Iterable[bytes | NnetExample] = (
                map(group.example, range(len(group.places)))
                if layout is None
                else layout.filled([matrices for _, _, matrices in group.ios])
            )
            for place, one in zip(group.places, objects, strict=True):
                found[place] = one
        self._table.write_all(keys, found)

    def _layout(self, group: ExampleGroup) -> Layout | None:
        """The layout (fields' sizes and offsets) of the encoded group; None: cannot be encoded."""
        key = tuple([part for name, indexes, _ in group.ios for part in (name, indexes.tobytes())])
        if key not in self._layouts:
            if len(self._layouts) >= _MOST:
                self._layouts.clear()
            encoded = EXAMPLE_LAYOUTS.encode(group.example(0))
            self._layouts[key] = None if encoded is None else encoded.layout
        return self._layouts[key]

"""Changes that copying makes to examples of one layout, made to many of them at a time.

What becomes of the rows of an example depends on its layout and on the frames chosen of it, so it
is found out once (`held_changes`).
"""

from __future__ import annotations

import io
import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.held_bytes import HeldBytes
from nnet3tools.io.index_vector import write_index_vector
from nnet3tools.io.sparse import SparseMatrix, rows_of_sparse
from nnet3tools.io.stream import Writer
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.example_bytes import ExampleBytes
from nnet3tools.training.example_layout import Layout
from nnet3tools.training.held_changes import Changed, HeldChanges, Target
from nnet3tools.training.like_examples import (
    LikeBlock,
    LikeMatrices,
    prototype_of,
)
from nnet3tools.training.selection import FrameSelection, rename_output, scale_supervision

__all__ = [
    "LikeChanges",
    "changed_matrices",
    "head_of_io",
    "with_row_numbers",
]


class _Target(Target[NnetExample]):
    """That of frame-level examples."""

    @cached_property
    def beginnings(self) -> list[bytes]:
        """What goes before each matrix."""
        start = b"<Nnet3Eg> <NumIo> \4" + struct.pack("<i", len(self.example.io))
        found = []
        for like in self.example.io:
            found.append(start + head_of_io("<NnetIo>", like.name, like.indexes))
            start = b"</NnetIo> "
        return found


def with_row_numbers(ios: Iterable[NnetIo]) -> list[NnetIo]:
    """Inputs or outputs whose features are the numbers of their rows."""
    return [replace(io, features=np.arange(len(io.indexes))[:, None]) for io in ios]


def head_of_io(token: str, name: str, indexes: NDArray[np.int32]) -> bytes:
    """The bytes of an input or output in binary up to what its indexes belong to."""
    file = io.BytesIO()
    writer = Writer(file)
    writer.write_token(token)
    writer.write_token(name)
    write_index_vector(writer, indexes)
    return file.getvalue()


Changeable = NnetExample | HeldBytes[NnetExample] | Changed


class LikeChanges(HeldChanges[NnetExample]):
    """The changes of nnet3-copy-egs, which `finish` makes to what has a layout."""

    def __init__(self, selection: FrameSelection) -> None:
        super().__init__()
        self._selection = selection
        self._labelled: dict[Target[NnetExample], tuple[int, int]] = {}

    def select(self, example: Changeable, key: str) -> Changeable | None:
        """As FrameSelection.apply."""
        if isinstance(example, NnetExample):
            return self._selection.apply(example, key)
        changed = self._changed(example)
        target = changed.target
        if self._selection.does_nothing:
            return changed
        if (labelled := self._labelled.get(target)) is None:
            labelled = self._selection.labelled_frames(target.example, key)
            self._labelled[target] = labelled
        if (frames := self._selection.choose(*labelled)) is None:
            return None
        if (selected := self._targets.get((target, frames))) is None:
            rows = self._selection.cut(target.example, key, *frames)
            selected = self._become(target, frames, rows)
        return changed._replace(target=selected)

    def _layout_of(self, held: ExampleBytes) -> Layout:
        assert held.layout is not None
        return held.layout

    def _target(self, layout: Layout, example: NnetExample | None = None) -> _Target:
        return _Target(layout, example or NnetExample(with_row_numbers(prototype_of(layout).io)))

    def _scaled(self, example: NnetExample, key: str, weight: float) -> NnetExample:
        return scale_supervision(example, key, weight)

    def _renamed(self, example: NnetExample, key: str, name: str) -> NnetExample:
        return rename_output(example, key, name)

    def _ios(self, example: NnetExample) -> list[NnetIo]:
        return example.io

    def _forget(self) -> None:
        super()._forget()
        self._labelled.clear()

    def _made(self, target: _Target, examples: list[Changed]) -> Iterator[ExampleBytes]:
        return (ExampleBytes(data, None) for data in _made(target, examples))


def _made(target: _Target, examples: list[Changed]) -> list[bytes]:
    """The bytes of what examples of one layout become."""
    layout = target.layout
    weights = np.array([example.weight for example in examples], np.float32)
    columns = []
    for like, become, beginning, matrices in zip(
        prototype_of(layout).io,
        target.example.io,
        target.beginnings,
        LikeBlock.of(layout, [example.held.data for example in examples]).matrices(),
        strict=True,
    ):
        scales = weights if like.name == "output" and (weights != 1.0).any() else None
        rows = to_dense(become.features)[:, 0].astype(np.intp)
        columns += [[beginning] * len(examples), changed_matrices(matrices, rows, scales)]
    columns.append([b"</NnetIo> </Nnet3Eg> "] * len(examples))
    return list(map(b"".join, zip(*columns, strict=True)))


def changed_matrices(
    matrices: LikeMatrices, rows: NDArray, weights: NDArray[np.float32] | None = None
) -> Sequence[bytes]:
    """These rows of each of the matrices, times its weight, as bytes."""
    form = matrices.form
    if len(rows) == form.num_rows:
        if weights is None:
            return matrices.whole
        if form.token.startswith("CM"):
            return _with_ranges(matrices, weights)
    num = len(matrices)
    places = (form.num_rows * np.arange(num)[:, None] + rows).ravel()
    features = matrices.features(weights)
    if isinstance(features, SparseMatrix):
        picked = features.select_rows(places)
        ends = 13 * np.arange(num + 1) * len(rows) + 10 * picked.row_offsets[:: len(rows)]
        head = b"SM \4" + struct.pack("<i", len(rows))
        return _pieces(head, rows_of_sparse(picked), ends.tolist())
    assert isinstance(features, np.ndarray)
    head = b"FM " + struct.pack("<cici", b"\4", len(rows), b"\4", form.num_cols)
    size = 4 * len(rows) * form.num_cols
    return _pieces(head, features[places].tobytes(), range(0, size * num + 1, size))


def _pieces(head: bytes, data: bytes, ends: Sequence[int]) -> list[bytes]:
    """The stretches of the data between `ends`, each with `head` before it."""
    return [head + data[a:b] for a, b in itertools.pairwise(ends)]


def _with_ranges(matrices: LikeMatrices, weights: NDArray[np.float32]) -> list[bytes]:
    """Compressed matrices times their weights: only minimum and range change."""
    begin = len(matrices.form.token) + 1
    ranges = matrices.ranges(weights).tobytes()
    return [
        whole[:begin] + ranges[8 * i : 8 * i + 8] + whole[begin + 8 :]
        for i, whole in enumerate(matrices.whole)
    ]

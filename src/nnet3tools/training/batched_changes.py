"""Changes to encoded examples, made to all examples of one layout together.

Where the rows of a changed example come from depends only on its layout and on the change. So each
change is made once, to a dummy example whose features are its own row numbers.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.io.encoded import EncodedRecord, Layout, LayoutTable
from nnet3tools.io.general_matrix import to_dense
from nnet3tools.io.matrix_forms import AnyBytes, MatrixForm
from nnet3tools.io.sparse import SparseMatrix, rows_of_sparse
from nnet3tools.training.encoded_examples import EXAMPLE_LAYOUTS
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.same_layout import SameLayoutBatch, SameLayoutMatrices
from nnet3tools.training.selection import rename_output, scale_supervision

E = TypeVar("E")
_MAX_ROW_MAPS = 1000


class Selection(Protocol[E]):
    """Chooses the part of each example that a copying program keeps."""

    @property
    def does_nothing(self) -> bool:
        """Whether examples pass through unchanged."""

    def apply(self, example: E, key: str) -> E | None:
        """The selected part of an example; None if it has none."""

    def bounds(self, example: E, key: str) -> tuple[int, ...]:
        """The range of parts that `choose` takes; it depends only on the example's layout."""

    def choose(self, bounds: tuple[int, ...]) -> tuple[int, ...] | None:
        """One part of the range, perhaps drawn at random; None if no part is to be kept."""

    def cut(self, example: E, key: str, chosen: tuple[int, ...]) -> E:
        """The chosen part of an example."""


@dataclass(frozen=True)
class ChangesOfKind(Generic[E]):
    """The functions that change one kind of examples.

    `ios` returns the inputs and outputs that have matrices; `with_ios` returns a copy with others.
    """

    layouts: LayoutTable
    ios: Callable[[E], list[NnetIo]]
    with_ios: Callable[[E, list[NnetIo]], E]
    scale: Callable[[E, str, float], E]
    rename: Callable[[E, str, str], E]


FRAME_CHANGES: ChangesOfKind[NnetExample] = ChangesOfKind(
    EXAMPLE_LAYOUTS,
    lambda example: example.io,
    lambda example, ios: NnetExample(ios),
    scale_supervision,
    rename_output,
)


@dataclass(frozen=True, eq=False)
class RowMap(Generic[E]):
    """For the examples of `layout`, the source row of every row after a change.

    `dummy` is the changed example whose features are its source rows; `rows` are these for each
    input or output. `new_layout` is the layout of the changed examples.
    """

    layout: Layout
    new_layout: Layout
    dummy: E
    rows: list[NDArray[np.intp]]


class PendingChange(NamedTuple):
    """An encoded example with the changes that are still to be made to it."""

    example: EncodedRecord[Any]
    row_map: RowMap[Any]
    weight: float = 1.0


class BatchedChanges(Generic[E]):
    """The changes of a copying program.

    An example that was read in full is changed at once, an encoded one by `finish`, together with
    others of its layout. All errors are raised, and all random numbers drawn, before `finish`.
    """

    def __init__(self, kind: ChangesOfKind[E], selection: Selection[E]) -> None:
        self._kind, self._selection = kind, selection
        self._row_maps: dict[tuple[Layout | RowMap[E], Hashable], RowMap[E] | None] = {}
        self._bounds: dict[RowMap[E], tuple[int, ...]] = {}

    @property
    def num_kept(self) -> int:
        """The number of row maps that are kept in memory."""
        return len(self._row_maps)

    def scale(self, example: Any, key: str, weight: float) -> E | PendingChange:
        """The example with its supervision multiplied by the weight."""
        pending = self._pending(example)
        if not isinstance(pending, PendingChange):
            return self._kind.scale(pending, key, weight)
        self._kind.scale(pending.row_map.dummy, key, weight)
        return pending._replace(weight=weight)

    def rename(self, example: Any, key: str, name: str) -> E | PendingChange:
        """The example with another name of its output."""
        pending = self._pending(example)
        if not isinstance(pending, PendingChange):
            return self._kind.rename(pending, key, name)
        return self._changed(pending, name, lambda one: self._kind.rename(one, key, name))

    def select(self, example: Any, key: str) -> E | PendingChange | None:
        """The selected part of the example; None if it has none."""
        pending = self._pending(example)
        if not isinstance(pending, PendingChange):
            return self._selection.apply(pending, key)
        if self._selection.does_nothing:
            return pending
        row_map = pending.row_map
        if (bounds := self._bounds.get(row_map)) is None:
            bounds = self._bounds[row_map] = self._selection.bounds(row_map.dummy, key)
        if (chosen := self._selection.choose(bounds)) is None:
            return None
        return self._changed(pending, chosen, lambda one: self._selection.cut(one, key, chosen))

    def _pending(self, example: Any) -> E | PendingChange:
        """The example as PendingChange, if it is encoded."""
        if not isinstance(example, EncodedRecord):
            return example
        # Checked for each example: one layout may get many new names.
        if len(self._row_maps) > _MAX_ROW_MAPS:
            self._row_maps.clear()
            self._bounds.clear()
        layout = example.layout
        row_map = self._row_maps.get((layout, ""))
        if row_map is None:
            prototype: E = example.prototype()
            ios = [
                replace(io, features=np.arange(len(io.indexes))[:, None])
                for io in self._kind.ios(prototype)
            ]
            dummy = self._kind.with_ios(prototype, ios)
            row_map = RowMap(layout, layout, dummy, self._rows(dummy))
            self._row_maps[layout, ""] = row_map
        return PendingChange(example, row_map)

    def _changed(
        self, pending: PendingChange, what: Hashable, change: Callable[[E], E]
    ) -> E | PendingChange:
        """The pending example after one more change; `what` identifies the change."""
        place = pending.row_map, what
        if place not in self._row_maps:
            self._row_maps[place] = self._mapped(
                pending.row_map.layout, change(pending.row_map.dummy)
            )
        if (row_map := self._row_maps[place]) is not None:
            return pending._replace(row_map=row_map)
        (example,) = self.finish([pending])
        return change(example.whole())

    def _mapped(self, layout: Layout, dummy: E) -> RowMap[E] | None:
        """The row map of a change; None if the changed examples cannot pass as bytes."""
        if (encoded := self._kind.layouts.encode(dummy)) is None:
            return None
        rows = self._rows(dummy)
        forms = list(layout.forms)
        for i, kept in enumerate(rows):
            form = forms[i]
            if isinstance(form, MatrixForm) and len(kept) != form.num_rows:
                token = "SM" if form.token == "SM" else "FM"
                forms[i] = replace(form, token=token, num_rows=len(kept))
        new_layout = self._kind.layouts.changed(layout, encoded.layout.fixed, tuple(forms))
        return RowMap(layout, new_layout, dummy, rows)

    def _rows(self, dummy: E) -> list[NDArray[np.intp]]:
        return [to_dense(io.features)[:, 0].astype(np.intp) for io in self._kind.ios(dummy)]

    # -- applying the changes

    def num_bytes(self, example: Any) -> int:
        """The approximate memory in bytes of an example that waits for `finish`."""
        if isinstance(example, PendingChange):
            return len(example.example.data)
        ios = self._kind.ios(example)
        return sum(4 * io.features.shape[0] * io.features.shape[1] for io in ios)

    def finish(self, examples: Sequence[Any]) -> Iterator[Any]:
        """The examples in order, changed; those with one row map together."""
        groups: dict[RowMap[E], list[PendingChange]] = {}
        for example in examples:
            if isinstance(example, PendingChange):
                groups.setdefault(example.row_map, []).append(example)
        finished = {row_map: self._finished(row_map, group) for row_map, group in groups.items()}
        for example in examples:
            is_pending = isinstance(example, PendingChange)
            yield next(finished[example.row_map]) if is_pending else example

    def _finished(
        self, row_map: RowMap[E], group: Sequence[PendingChange]
    ) -> Iterator[EncodedRecord[E]]:
        layout, new_layout = row_map.layout, row_map.new_layout
        given = [pending.example for pending in group]
        weights = np.array([pending.weight for pending in group], np.float32)
        ios = iter(zip(self._kind.ios(given[0].prototype()), row_map.rows, strict=True))
        has_weight = any(isinstance(form, AnyBytes) for form in layout.forms)
        columns: list[Sequence[bytes]] = []
        for form, matrices in zip(
            layout.forms, SameLayoutBatch.of(layout, given).matrices(), strict=True
        ):
            if isinstance(form, AnyBytes):
                columns.append(_numbers(matrices.encoded, weights))
                continue
            io, rows = next(ios)
            is_scaled = not has_weight and io.name == "output" and (weights != 1.0).any()
            columns.append(_changed_matrices(matrices, rows, weights if is_scaled else None))
        parts: list[Iterable[bytes]] = []
        for fixed, column in zip(new_layout.fixed, [*columns, None], strict=True):
            parts += [itertools.repeat(fixed, len(given)), *([] if column is None else [column])]
        for example, covered in zip(given, map(b"".join, zip(*parts, strict=True)), strict=True):
            yield example.with_covered(covered, new_layout)


def _numbers(encoded: list[bytes], weights: NDArray[np.float32]) -> list[bytes]:
    """The float32 numbers times the weights."""
    products = np.frombuffer(b"".join(encoded), "<f4") * weights
    return [products[i : i + 1].tobytes() for i in range(len(products))]


def _changed_matrices(
    matrices: SameLayoutMatrices, rows: NDArray, weights: NDArray[np.float32] | None = None
) -> Sequence[bytes]:
    """The bytes of each matrix reduced to `rows` and multiplied by its weight."""
    form = matrices.form
    if len(rows) == form.num_rows:
        if weights is None:
            return matrices.encoded
        if form.token.startswith("CM"):
            return _with_ranges(matrices, weights)
    num = len(matrices)
    sources = (form.num_rows * np.arange(num)[:, None] + rows).ravel()
    features = matrices.features(weights)
    if isinstance(features, SparseMatrix):
        picked = features.select_rows(sources)
        ends = 13 * np.arange(num + 1) * len(rows) + 10 * picked.row_offsets[:: len(rows)]
        head = b"SM \4" + struct.pack("<i", len(rows))
        return _sliced(head, rows_of_sparse(picked), ends.tolist())
    assert isinstance(features, np.ndarray)
    head = b"FM " + struct.pack("<cici", b"\4", len(rows), b"\4", form.num_cols)
    size = 4 * len(rows) * form.num_cols
    return _sliced(head, features[sources].tobytes(), range(0, size * num + 1, size))


def _sliced(head: bytes, data: bytes, ends: Sequence[int]) -> list[bytes]:
    """The bytes of the data between successive `ends`, each with `head` before it."""
    return [head + data[a:b] for a, b in itertools.pairwise(ends)]


def _with_ranges(matrices: SameLayoutMatrices, weights: NDArray[np.float32]) -> list[bytes]:
    """Compressed matrices times their weights: only minimum and range change."""
    begin = len(matrices.form.token) + 1
    ranges = matrices.ranges(weights).tobytes()
    return [
        whole[:begin] + ranges[8 * i : 8 * i + 8] + whole[begin + 8 :]
        for i, whole in enumerate(matrices.encoded)
    ]

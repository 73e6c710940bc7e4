"""Changes to encoded examples, made to all examples of one layout together.

The source row of each row of a changed example depends only on the example's layout and on the
change. So each change is made once, to a dummy example whose features are its row numbers.
"""

import io
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.encoded import EncodedRecord, Layout, LayoutTable
from nnet3tools.io.general_matrix import encoded_parts, to_dense
from nnet3tools.io.matrix_forms import AnyBytes, MatrixForm
from nnet3tools.io.sparse import SparseMatrix
from nnet3tools.io.stream import Reader
from nnet3tools.training.example import NnetExample, NnetIo
from nnet3tools.training.example_format import EXAMPLE_LAYOUTS
from nnet3tools.training.same_layout import SameLayoutBatch, SameLayoutMatrices
from nnet3tools.training.selection import rename_output, scale_supervision

E = TypeVar("E")
_MAX_ROW_MAPS = 1000


class Selection(Protocol[E]):
    """Chooses the part of each example that a copying program keeps, such as one labelled frame."""

    @property
    def does_nothing(self) -> bool:
        """Whether the selection keeps every example unchanged."""

    def apply(self, example: E, key: str) -> E | None:
        """The selected part of an example; None if it has no such part. Errors name the `key`."""

    def bounds(self, example: E, key: str) -> tuple[int, ...]:
        """The range of random choices for `example` with key `key`, such as (first t, last t)."""

    def choose(self, bounds: tuple[int, ...]) -> tuple[int, ...] | None:
        """Choose, perhaps at random, what `cut` keeps within `bounds`; None drops the example."""

    def cut(self, example: E, key: str, chosen: tuple[int, ...]) -> E:
        """A copy of the example that has only the part `chosen`, a result of `choose`."""


@dataclass(frozen=True)
class ChangesOfKind(Generic[E]):
    """The functions that change examples of one kind (frame-level, chain, ...).

    `ios(example)` returns the inputs and outputs that have matrices; `with_ios(example, ios)`
    returns a copy of the example with `ios` in their place. `scale(example, key, weight)`
    multiplies the supervision, `rename(example, key, name)` renames the output; `key` is for
    messages. `layouts` encodes examples.
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
    """The source row of every row of a changed example, for encoded examples of one `layout`.

    These differ only in matrices and numbers. `rows` has the source rows of each input or output.
    `dummy` is a changed example whose features are these row numbers, `new_layout` its layout.
    """

    layout: Layout
    new_layout: Layout
    dummy: E
    rows: list[NDArray[np.intp]]


class PendingChange(NamedTuple):
    """An encoded example to change: rows and names as in `row_map`, supervision times `weight`."""

    example: EncodedRecord[Any]
    row_map: RowMap[Any]
    weight: float = 1.0


class BatchedChanges(Generic[E]):
    """Scales, renames and selects parts of examples for the programs that copy examples.

    An example that was read in full is changed at once. Encoded examples are changed by `finish`,
    together if they differ only in matrices and numbers. All errors are raised, and all random
    numbers drawn, before `finish`.
    """

    def __init__(self, kind: ChangesOfKind[E], selection: Selection[E]) -> None:
        self._kind, self._selection = kind, selection
        self._row_maps: dict[tuple[Layout | RowMap[E], Hashable], RowMap[E] | None] = {}
        self._bounds: dict[RowMap[E], tuple[int, ...]] = {}

    @property
    def num_kept(self) -> int:
        """The number of row maps (RowMap) in memory."""
        return len(self._row_maps)

    def scale(self, example: Any, key: str, weight: float) -> E | PendingChange:
        """The example with its supervision times `weight`; a PendingChange if it is encoded."""
        pending = self._pending(example)
        if not isinstance(pending, PendingChange):
            return self._kind.scale(pending, key, weight)
        self._kind.scale(pending.row_map.dummy, key, weight)
        return pending._replace(weight=weight)

    def rename(self, example: Any, key: str, name: str) -> E | PendingChange:
        """The example with its output renamed; a PendingChange if encoded. Errors name `key`."""
        pending = self._pending(example)
        if not isinstance(pending, PendingChange):
            return self._kind.rename(pending, key, name)
        return self._changed(pending, name, lambda one: self._kind.rename(one, key, name))

    def select(self, example: Any, key: str) -> E | PendingChange | None:
        """The selected part of the example (PendingChange if encoded); None to drop the example."""
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
        """An encoded example as a PendingChange without changes yet; other examples unchanged."""
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
        """Return `pending` with `change` (key `what`) added, or a decoded, changed example."""
        place = pending.row_map, what
        if place not in self._row_maps:
            dummy = change(pending.row_map.dummy)
            self._row_maps[place] = self._mapped(pending.row_map.layout, dummy)
        if (row_map := self._row_maps[place]) is not None:
            return PendingChange(pending.example, row_map, pending.weight)
        (data,) = self.finish([pending])
        return change(pending.example.RECORD.read(Reader(io.BytesIO(data), binary=True)))

    def _mapped(self, layout: Layout, dummy: E) -> RowMap[E] | None:
        """The RowMap from examples of `layout` to `dummy`; None if `dummy` cannot be encoded."""
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
        """The approximate size in bytes of an example, or of the example in a PendingChange."""
        if isinstance(example, PendingChange):
            return len(example.example.data)
        ios = self._kind.ios(example)
        return sum(4 * io.features.shape[0] * io.features.shape[1] for io in ios)

    def finish(self, examples: Sequence[Any]) -> Iterator[Any]:
        """Make the pending changes, together for examples with one RowMap; yield all in order.

        Encoded examples are yielded as bytes.
        """
        groups: dict[RowMap[E], list[PendingChange]] = {}
        for example in examples:
            if isinstance(example, PendingChange):
                groups.setdefault(example.row_map, []).append(example)
        finished = {row_map: self._finished(row_map, group) for row_map, group in groups.items()}
        for example in examples:
            is_pending = isinstance(example, PendingChange)
            yield next(finished[example.row_map]) if is_pending else example

    def _finished(self, row_map: RowMap[E], group: Sequence[PendingChange]) -> Iterator[bytes]:
        layout = row_map.layout
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
        changed = row_map.new_layout.filled(columns)
        if not layout.rest:
            return changed
        rests = [example.data[len(example.covered) :] for example in given]
        return map(bytes.__add__, changed, rests)


def _numbers(encoded: list[bytes], weights: NDArray[np.float32]) -> list[bytes]:
    """The bytes of each encoded float32 number multiplied by its weight."""
    products = np.frombuffer(b"".join(encoded), "<f4") * weights
    return [products[i : i + 1].tobytes() for i in range(len(products))]


def _changed_matrices(
    matrices: SameLayoutMatrices, rows: NDArray, weights: NDArray[np.float32] | None = None
) -> Sequence[bytes]:
    """The bytes of each matrix, only its rows `rows`, times its number in `weights`, if given."""
    form = matrices.form
    if len(rows) == form.num_rows:
        if weights is None:
            return matrices.encoded
        if form.token.startswith("CM"):
            begin = len(matrices.form.token) + 1
            ranges = matrices.ranges(weights).tobytes()
            return [
                whole[:begin] + ranges[8 * i : 8 * i + 8] + whole[begin + 8 :]
                for i, whole in enumerate(matrices.encoded)
            ]
    num = len(matrices)
    sources = (form.num_rows * np.arange(num)[:, None] + rows).ravel()
    features = matrices.features(weights)
    if isinstance(features, SparseMatrix):
        return encoded_parts(features.select_rows(sources), num)
    assert isinstance(features, np.ndarray)
    return encoded_parts(features[sources], num)

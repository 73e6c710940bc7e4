"""Changes to encoded examples, made to all examples of one layout together.

The source row of each row of a changed example depends only on the example's layout and on the
change. So each change is made once, to a dummy example whose features are its row numbers.
"""

import io
import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnet3tools import draws
from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.io.encoded import EncodedRecord, Layout, LayoutTable, filled
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
_FEWEST = 16
"""The fewest examples for which selecting all of them together pays."""


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

    @cached_property
    def kind(self) -> tuple[Hashable, ...]:
        """The layout and the number of `rows`; equal for examples that can be changed together."""
        return self.layout, *map(len, self.rows)


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
        if (chosen := self._selection.choose(self._bounds_of(pending.row_map, key))) is None:
            return None
        return self._changed(pending, chosen, lambda one: self._selection.cut(one, key, chosen))

    def select_all(self, batch: SameLayoutBatch) -> tuple[list[str], list[bytes]] | None:
        """The keys and the bytes of the selected parts of all examples of a batch from an archive.

        None, with no number drawn, for few examples, an error, or a part that cannot be encoded.
        """
        if len(batch) < _FEWEST:
            return None
        state, identity, keys = draws.get_state(), self._identity(batch), batch.keys()
        try:
            bounds = self._bounds_of(identity, keys[0])
            choices = [self._selection.choose(bounds) for _ in keys]
            maps = {c: self._map_of_cut(identity, keys[0], c) for c in {*choices} - {None}}
        except DataError:
            maps = {}
        kinds = {row_map and row_map.kind for row_map in maps.values()}
        if len(kinds) != 1 or None in kinds:
            draws.set_state(state)
            return None
        kept = [chosen is not None for chosen in choices]
        part = SameLayoutBatch(batch.layout, batch.data, batch.spans[kept])
        row_maps = [*filter(None, map(maps.get, choices))]
        found = self._covered(row_maps, part, np.ones(len(part), np.float32))
        return list(itertools.compress(keys, kept)), list(found)

    def _map_of_cut(self, row_map: RowMap[E], key: str, chosen: Any) -> RowMap[E] | None:
        return self._map(row_map, chosen, lambda one: self._selection.cut(one, key, chosen))

    def _bounds_of(self, row_map: RowMap[E], key: str) -> tuple[int, ...]:
        if (bounds := self._bounds.get(row_map)) is None:
            bounds = self._bounds[row_map] = self._selection.bounds(row_map.dummy, key)
        return bounds

    def _pending(self, example: Any) -> E | PendingChange:
        """An encoded example as a PendingChange without changes yet; other examples unchanged."""
        is_encoded = isinstance(example, EncodedRecord)
        return PendingChange(example, self._identity(example)) if is_encoded else example

    def _identity(self, example: EncodedRecord[Any] | SameLayoutBatch) -> RowMap[E]:
        """The RowMap of unchanged examples of the layout of `example`."""
        # Checked for each example: one layout may get many new names.
        if len(self._row_maps) > _MAX_ROW_MAPS:
            self._row_maps.clear()
            self._bounds.clear()
        layout = example.layout
        if (row_map := self._row_maps.get((layout, ""))) is None:
            prototype: E = example.prototype()
            ios = [
                replace(io, features=np.arange(len(io.indexes))[:, None])
                for io in self._kind.ios(prototype)
            ]
            dummy = self._kind.with_ios(prototype, ios)
            row_map = RowMap(layout, layout, dummy, self._rows(dummy))
            self._row_maps[layout, ""] = row_map
        return row_map

    def _changed(
        self, pending: PendingChange, what: Hashable, change: Callable[[E], E]
    ) -> E | PendingChange:
        """Return `pending` with `change` (key `what`) added, or a decoded, changed example."""
        if (row_map := self._map(pending.row_map, what, change)) is not None:
            return PendingChange(pending.example, row_map, pending.weight)
        (data,) = self.finish([pending])
        return change(pending.example.RECORD.read(Reader(io.BytesIO(data), binary=True)))

    def _map(
        self, row_map: RowMap[E], what: Hashable, change: Callable[[E], E]
    ) -> RowMap[E] | None:
        """The RowMap of `row_map` and then `change` (key `what`); None if it cannot be encoded."""
        place = row_map, what
        if place not in self._row_maps:
            self._row_maps[place] = self._mapped(row_map.layout, change(row_map.dummy))
        return self._row_maps[place]

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
        groups: dict[Hashable, list[PendingChange]] = {}
        for example in examples:
            if isinstance(example, PendingChange):
                groups.setdefault(example.row_map.kind, []).append(example)
        finished = {kind: self._finished(group) for kind, group in groups.items()}
        for example in examples:
            is_pending = isinstance(example, PendingChange)
            yield next(finished[example.row_map.kind]) if is_pending else example

    def _finished(self, group: Sequence[PendingChange]) -> Iterator[bytes]:
        given, row_maps, factors = zip(*group, strict=True)
        batch = SameLayoutBatch.of(row_maps[0].layout, given)
        changed = self._covered(row_maps, batch, np.array(factors, np.float32))
        if not batch.layout.rest:
            return changed
        return map(bytes.__add__, changed, [one.data[len(one.covered) :] for one in given])

    def _covered(
        self, row_maps: Sequence[RowMap[E]], batch: SameLayoutBatch, weights: NDArray[np.float32]
    ) -> Iterator[bytes]:
        """The bytes of each changed example of a batch, up to the first field of varying size.

        Example i has row_maps[i], all of one `kind`, and weights[i].
        """
        numbers = {row_map: number for number, row_map in enumerate(dict.fromkeys(row_maps))}
        number_of = [numbers[row_map] for row_map in row_maps]
        rows_of_ios = zip(*[row_map.rows for row_map in numbers], strict=True)
        ios = iter(zip(self._kind.ios(batch.prototype()), rows_of_ios, strict=True))
        has_weight = any(isinstance(form, AnyBytes) for form in batch.layout.forms)
        columns: list[Sequence[bytes]] = []
        for form, matrices in zip(batch.layout.forms, batch.matrices(), strict=True):
            if isinstance(form, AnyBytes):
                columns.append(_numbers(matrices.encoded, weights))
                continue
            io, choices = next(ios)
            rows = np.stack(choices)[number_of]
            is_scaled = not has_weight and io.name == "output" and (weights != 1.0).any()
            columns.append(_changed_matrices(matrices, rows, weights if is_scaled else None))
        return filled(zip(*[one.new_layout.fixed for one in row_maps], strict=True), columns)


def _numbers(encoded: list[bytes], weights: NDArray[np.float32]) -> list[bytes]:
    """The bytes of each encoded float32 number multiplied by its weight."""
    products = np.frombuffer(b"".join(encoded), "<f4") * weights
    return [products[i : i + 1].tobytes() for i in range(len(products))]


def _changed_matrices(
    matrices: SameLayoutMatrices, rows: NDArray, weights: NDArray[np.float32] | None = None
) -> Sequence[bytes]:
    """The bytes of rows rows[i] of each matrix i, times its number in `weights`, if given."""
    form = matrices.form
    if rows.shape[1] == form.num_rows:
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

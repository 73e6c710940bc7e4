"""Cutting shapes into tiles, and handing out scratch registers to the values of a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.plain.lowering import Value
from nnet3tools.tensor.plain.threads import TILE_BYTES

__all__ = ["Layout", "Shape", "Slices", "broadcast_shape", "splat", "tile_slices"]

_SPREAD_UP_TO, _SPREAD_FROM = 768, 8
"""Rows up to this length are spread, for at least this many tiles."""

Shape = tuple[int, ...]
Slices = tuple[slice, ...]


def broadcast_shape(shapes: Sequence[Shape]) -> Shape:
    """The common shape of shapes with equal numbers of axes; ProgramError if there is none."""
    out = []
    for sizes in zip(*shapes, strict=True):
        larger = {n for n in sizes if n != 1}
        if len(larger) > 1:
            raise ProgramError(
                "operands do not broadcast: shapes " + ", ".join(str(s) for s in shapes)
            )
        out.append(larger.pop() if larger else 1)
    return tuple(out)


def tile_slices(shape: Shape, max_elements: int, whole_rows: bool = False) -> list[Slices]:
    """Cut a shape into tiles of at most `max_elements`, as one slice an axis, in memory order.

    With `whole_rows` the last axis is not cut: a tile has at least one row.
    """
    if 0 in shape:
        return []
    if whole_rows:
        row = (slice(0, shape[-1]),)
        return [(*at, *row) for at in tile_slices(shape[:-1], max(1, max_elements // shape[-1]))]
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= max_elements:
        inner *= shape[axis]
        axis -= 1
    step = max(1, max_elements // inner)
    rest = tuple(slice(0, n) for n in shape[axis + 1 :])
    chunks = [slice(b, min(b + step, shape[axis])) for b in range(0, shape[axis], step)]
    outer = np.ndindex(*shape[:axis])
    return [(*(slice(i, i + 1) for i in at), chunk, *rest) for at in outer for chunk in chunks]


@lru_cache(maxsize=16)
def splat(data: bytes, dtype: np.dtype) -> np.ndarray:
    """A constant as a whole register, read-only."""
    out = np.empty(TILE_BYTES // dtype.itemsize, dtype)
    out[...] = np.frombuffer(data, dtype)[0]
    out.setflags(write=False)
    return out


@dataclass
class Layout:
    """When each step of a formula runs and which register holds its value.

    `values` are the steps in order, `shapes` those of the operands (all with the same number of
    axes), `direct` the values that are written straight into an operand, `keep` the values needed
    after the last step. Tiles to be `reduced` are half as large: the fewer numbers are added up in
    float32, the better. With `whole_rows` rows are not cut, as some steps reduce them.
    """

    values: Sequence[Value]
    shapes: Mapping[int, Shape]
    full: Shape
    direct: Mapping[Value, int] = field(default_factory=dict)
    keep: Sequence[Value] = ()
    reduced: bool = False
    whole_rows: bool = False

    def __post_init__(self) -> None:
        itemsizes = [v.dtype.itemsize for v in (*self.values, *self.keep)]
        size = TILE_BYTES // 2 if self.reduced else TILE_BYTES
        most = size // max(itemsizes, default=4)
        self.tiles = tile_slices(self.full, most, self.whole_rows)
        first = self.tiles[0] if self.tiles else ()
        self._cut = [s.stop - s.start != n for s, n in zip(first, self.full, strict=False)]
        self._step_shapes: dict[Value, Shape] = {}
        self.bound: list[Value] = []
        """Steps of plain numbers and constants only: run when operands are bound."""
        self.once: list[Value] = []
        """Steps that depend on no tile: run once, before the tiles."""
        self.each: list[Value] = []
        """Steps run for every tile."""
        self.spread: dict[Value, int] = {}
        """Rows that meet whole tiles, and the registers in which they stand once for every row."""
        self.registers: dict[Value, int] = {}
        self.num_registers = 0
        for value in self.values:
            self._place(value)
        self._allocate()

    def shape(self, value: Value) -> Shape:
        """Shape of a value over the whole, 1 on axes that it does not vary over."""
        if value.kind == "operand":
            return self.shapes[value.number]
        return self._step_shapes.get(value, (1,) * len(self.full))

    def varies(self, value: Value) -> bool:
        """Whether the value differs from tile to tile."""
        return any(c and n > 1 for c, n in zip(self._cut, self.shape(value), strict=False))

    def tile_shape(self, value: Value, tile: Slices) -> Shape:
        """Shape of a value within a tile."""
        sizes = zip(self.shape(value), tile, strict=True)
        return tuple(1 if n == 1 else s.stop - s.start for n, s in sizes)

    def _place(self, value: Value) -> None:
        if all(v.kind in ("number", "constant") or v in self.bound for v in value.inputs):
            self.bound.append(value)
            return
        shape = broadcast_shape([self.shape(v) for v in value.inputs])
        if value.reduces:
            if shape[-1] != self.full[-1]:
                raise ProgramError("a formula reduces rows of an operand that has none")
            shape = (*shape[:-1], 1)
        self._step_shapes[value] = shape
        untiled = len(self.tiles) > 1 and not self.varies(value)
        (self.once if untiled and value not in self.direct else self.each).append(value)

    def _allocate(self) -> None:
        for value in self.once:
            self.registers[value] = self._new_register()
        self.spread.update((v, self._new_register()) for v in self._rows_to_spread())
        last_use = {v: at for at, value in enumerate(self.each) for v in value.inputs}
        last_use.update((v, len(self.each)) for v in self.keep)
        owned: set[Value] = set()
        free: list[int] = []
        for at, value in enumerate(self.each):
            inputs = dict.fromkeys(value.inputs)
            dying = [v for v in inputs if v in owned and last_use[v] == at]
            taken = None
            if value not in self.direct:
                taken = self._take_over(value, dying)
                if taken is None:
                    taken = free.pop() if free else self._new_register()
                self.registers[value] = taken
                owned.add(value)
                if value not in last_use:
                    raise ProgramError("a lowered formula has a step without use")
            free.extend(self.registers[v] for v in dying if self.registers[v] != taken)

    def _rows_to_spread(self) -> list[Value]:
        """Short rows that full tiles are combined with: NumPy spends 20 ns on every row of a
        broadcast, which a copy of the row for each row of a tile saves.
        """
        short = len(self.full) == 2 and self.full[1] <= _SPREAD_UP_TO and not any(self._cut[1:2])
        if not short or len(self.tiles) < _SPREAD_FROM:
            return []
        meets = [(v, step) for step in self.each for v in step.inputs]
        row, whole = (1, self.full[1]), self.full
        found = [v for v, s in meets if self.shape(v) == row and self.shape(s) == whole]
        return list(dict.fromkeys(found))

    def _new_register(self) -> int:
        self.num_registers += 1
        return self.num_registers - 1

    def _take_over(self, value: Value, dying: Sequence[Value]) -> int | None:
        """The register of a dying input that the step may write over: element for element."""
        if value.function is None:
            return None
        for v in dying:
            alike = v.dtype.itemsize == value.dtype.itemsize
            if alike and self._step_shapes[v] == self._step_shapes[value]:
                return self.registers[v]
        return None

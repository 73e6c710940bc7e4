"""From a layout and actual arrays to the ufunc calls of every tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np

from nnet3tools.tensor.plain.lowering import Value, maximum, minimum
from nnet3tools.tensor.plain.operands import is_number
from nnet3tools.tensor.plain.threads import TILE_BYTES, Call, register
from nnet3tools.tensor.plain.tiles import Layout, Shape, Slices, splat

__all__ = ["Tile", "TileCalls", "add_to", "convert", "split_groups"]

_T = TypeVar("_T")

_SPLAT_AT = 2048
"""From this many elements on, max and min take a constant as an array: for these two, NumPy's loops
over a repeated scalar are three times slower."""

_THREAD_AT = 1 << 20
"""Work (elements times steps) from which a second thread pays."""

_FOUR_GROUPS_FROM = 16
"""Tiles from which there are four groups: each has scratch registers of its own."""


def convert(source: np.ndarray, out: np.ndarray) -> None:
    """out = source, converted as C does."""
    np.copyto(out, source, casting="unsafe")


def add_to(source: np.ndarray, out: np.ndarray) -> None:
    """out += source, of the same kind of numbers."""
    np.add(out, source, out=out)


def split_groups(tiles: Sequence[_T], work: int) -> list[Sequence[_T]]:
    """Tiles as one group, two or four, by their number and the amount of work only.

    Four, so that a thread that was held up leaves the other one more than half of them.
    """
    if work < _THREAD_AT or len(tiles) < 2:
        return [tiles]
    parts = 4 if len(tiles) >= _FOUR_GROUPS_FROM else 2
    cuts = [len(tiles) * n // parts for n in range(parts + 1)]
    return [tiles[b:e] for b, e in itertools.pairwise(cuts)]


_Step = tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]], np.dtype | None]
"""A step's function, what picks its arguments (the output last) from all that a tile has to do
with, and the type they are viewed as, if any."""


class Tile(NamedTuple):
    """One tile of bound operands."""

    parts: Sequence[Any]
    """The operands' parts (plain numbers as they are)."""
    calls: list[Call]
    """The calls that compute the values, in order."""
    kept: list[Any]
    """Where the layout's `keep` values are."""


@dataclass
class _Frame:
    """The common part of all tiles of one shape in one group."""

    fixed: tuple[Any, ...]
    """Registers and constants; a tile's arguments are picked from parts + numbers + fixed."""
    steps: list[Call | _Step]
    """Finished calls of steps that touch only registers and constants, and the others."""
    kept: list[int]


class TileCalls:
    """Makes the calls of a layout for arrays.

    Operators are called unbound on matrices of many tiles, so that binding one more tile must cost
    far less than the work on it: all that does not depend on the arrays is found out once.
    """

    def __init__(self, layout: Layout, groups: Sequence[Sequence[Slices]]) -> None:
        """`groups`: the layout's tiles, in order, as lists for one thread each."""
        self.layout = layout
        outside = self._find_outside()
        self._plain = [v for v in outside if v.kind != "operand" and v not in layout.direct]
        self._numbers = [v for v in self._plain if v.kind == "number"]
        self._groups = groups
        self._frames: list[list[_Frame]] | None = None
        self._large: dict[tuple[int, int], np.ndarray] = {}
        first = layout.tiles[0] if layout.tiles else ()
        sizes = [s.stop - s.start for s in first]
        self._rows = sizes[0] if sizes and sizes[1:] == list(layout.full[1:]) else 0
        """Rows of a tile, if only rows are cut."""

    def _find_outside(self) -> dict[Value, None]:
        """Values that arrays or numbers of the caller stand behind: not the same at every bind."""
        outside = {v: None for s in self.layout.values for v in s.inputs if v.kind != "step"}
        outside = {v: None for v in outside if v.kind in ("operand", "number")}
        outside.update(dict.fromkeys(self.layout.bound))
        outside.update(dict.fromkeys(self.layout.direct))
        return outside

    def bind_numbers(self, operands: Sequence[Any]) -> dict[Value, Any]:
        """Values that are plain numbers, or follow from plain numbers and constants alone."""
        made: dict[Value, Any] = {}
        if not self._plain:
            return made
        for value in self._numbers:
            number = operands[value.number]
            made[value] = np.asarray(number.value() if is_number(number) else number, value.dtype)
        for value in self.layout.bound:
            made[value] = np.empty((), value.dtype)
            function, arguments = self._bound_call(value, made)
            with np.errstate(all="ignore"):
                function(*arguments)
        return made

    @staticmethod
    def _bound_call(value: Value, numbers: Mapping[Value, Any]) -> Call:
        inputs = [v.constant if v.kind == "constant" else numbers[v] for v in value.inputs]
        return _call(value, [*inputs, numbers[value]])

    def _renewals(self, operands: Sequence[Any], numbers: Mapping[Value, Any]) -> list[Call]:
        """Calls that look again at numbers that are in memory."""
        found: list[Call] = [
            (convert, (operands[v.number].array[0:1].reshape(()), numbers[v]))
            for v in self._numbers
            if is_number(operands[v.number])
        ]
        if found:
            found += [self._bound_call(v, numbers) for v in self.layout.bound]
        return found

    def once(self, operands: Sequence[Any], numbers: Mapping[Value, Any]) -> list[Call]:
        """Calls to make before the tiles; their results are in group 0's registers."""
        calls = self._renewals(operands, numbers)
        if not (self.layout.once or self.layout.spread):
            return calls
        env = dict(numbers)
        for value in self.layout.once:
            inputs = [self._whole(v, operands, env) for v in value.inputs]
            env[value] = out = self._register(value, self.layout.shape(value), 0)
            calls.append(_call(value, [*inputs, out]))
        for value, index in self.layout.spread.items():
            out = self._spread_view(value, index, self.layout.tiles[0])
            calls.append((convert, (self._whole(value, operands, env), out)))
        return calls

    def _spread_view(self, value: Value, index: int, tile: Slices) -> np.ndarray:
        shape = (tile[0].stop - tile[0].start, self.layout.full[1])
        size = math.prod(shape) * value.dtype.itemsize
        return register(0, index)[:size].view(value.dtype).reshape(shape)

    @staticmethod
    def _whole(value: Value, operands: Sequence[Any], env: Mapping[Value, Any]) -> Any:
        if value.kind == "operand":
            return operands[value.number]
        return value.constant if value.kind == "constant" else env[value]

    def _register(self, value: Value, shape: Shape, group: int) -> np.ndarray:
        size = math.prod(shape) * value.dtype.itemsize
        buffer = self._buffer(group, self.layout.registers[value], size)
        return buffer[:size].view(value.dtype).reshape(shape)

    def _buffer(self, group: int, index: int, size: int) -> np.ndarray:
        """A register, or where that is too small for a row, memory of this formula's own."""
        if size <= TILE_BYTES:
            return register(group, index)
        if (group, index) not in self._large:
            self._large[group, index] = np.empty(size, np.uint8)
        return self._large[group, index]

    def _make_frame(self, tile: Slices, group: int, num_operands: int) -> _Frame:
        layout = self.layout
        at = {v: num_operands + n for n, v in enumerate(self._plain)}
        base = num_operands + len(self._plain)
        fixed: list[Any] = []

        def place(array: np.ndarray) -> int:
            fixed.append(array)
            return base + len(fixed) - 1

        for value in layout.once:
            at[value] = place(self._register(value, layout.shape(value), 0))
        for value in (*layout.each, *layout.keep):
            if value in layout.registers and value not in at:
                at[value] = place(self._register(value, layout.tile_shape(value, tile), group))
            for v in (*value.inputs, value):
                if v.kind == "operand":
                    at[v] = v.number
                elif v.kind == "constant" and v not in at:
                    at[v] = place(v.constant)
        at.update(layout.direct)
        at.update((v, place(self._spread_view(v, r, tile))) for v, r in layout.spread.items())
        steps: list[Call | _Step] = []
        for value in layout.each:
            arguments = [at[v] for v in value.inputs]
            if (splatted := self._splat(value, tile)) is not None:
                arguments[-1] = place(splatted)
            arguments.append(at[value])
            if min(arguments) >= base:
                steps.append(_call(value, [fixed[n - base] for n in arguments]))
            else:
                view = value.view if value.function else None
                steps.append((value.function or convert, itemgetter(*arguments), view))
        return _Frame(tuple(fixed), steps, [at[v] for v in layout.keep])

    def _splat(self, value: Value, tile: Slices) -> np.ndarray | None:
        """The constant of a max or min as an array, where that pays."""
        if value.function not in (maximum, minimum) or value.inputs[-1].kind != "constant":
            return None
        shape = self.layout.tile_shape(value, tile)
        size = math.prod(shape)
        if size < _SPLAT_AT or size * value.dtype.itemsize > TILE_BYTES:
            return None
        constant = value.inputs[-1].constant
        return splat(constant.tobytes(), constant.dtype)[:size].reshape(shape)

    def _make_frames(self, num_operands: int) -> list[list[_Frame]]:
        """The frame of every tile of every group."""
        made = []
        for group, tiles in enumerate(self._groups):
            of_shape: dict[Shape, _Frame] = {}
            frames = []
            for tile in tiles:
                shape = tuple(s.stop - s.start for s in tile)
                if shape not in of_shape:
                    of_shape[shape] = self._make_frame(tile, group, num_operands)
                frames.append(of_shape[shape])
            made.append(frames)
        return made

    def tiles(
        self, operands: Sequence[Any], numbers: Mapping[Value, Any]
    ) -> Iterator[Iterator[Tile]]:
        """For each group, for each of its tiles, the calls that compute every value of it."""
        if self._frames is None:
            self._frames = self._make_frames(len(operands))
        plain = tuple([numbers[v] for v in self._plain])
        parts: Iterable[Sequence[Any]] = (operands,)
        if len(self.layout.tiles) > 1:
            parts = zip(*[self._parts(i, o) for i, o in enumerate(operands)], strict=True)
        parts = iter(parts)
        for frames in self._frames:
            yield (_bind(frame, part, plain) for frame, part in zip(frames, parts, strict=False))

    def _parts(self, number: int, operand: Any) -> list[Any]:
        """An operand's part of each tile, in order."""
        tiles, full = self.layout.tiles, self.layout.full
        shape = self.layout.shapes.get(number)
        if shape is None:
            return [operand] * len(tiles)
        if self._rows:
            if shape[0] == 1 < full[0]:
                return [operand] * len(tiles)
            count, rest = divmod(full[0], self._rows)
            # splitting an axis never copies, and one iteration is cheaper than many slices
            whole = operand[: full[0] - rest].reshape(count, self._rows, *operand.shape[1:])
            return [*whole, operand[full[0] - rest :]] if rest else list(whole)
        if 1 not in shape:
            return [operand[tile] for tile in tiles]
        every = slice(None)
        wide = [n == 1 for n in shape]
        return [
            operand[tuple([every if w else s for w, s in zip(wide, tile, strict=True)])]
            for tile in tiles
        ]


def _bind(frame: _Frame, parts: Sequence[Any], plain: tuple[Any, ...]) -> Tile:
    everything = (*parts, *plain, *frame.fixed)
    calls = [
        step
        if len(step) == 2
        else (step[0], step[1](everything))
        if step[2] is None
        else (step[0], tuple([a.view(step[2]) for a in step[1](everything)]))
        for step in frame.steps
    ]
    return Tile(parts, calls, [everything[n] for n in frame.kept])


def _call(value: Value, arguments: Sequence[Any]) -> Call:
    """A step's call; the output is the last argument."""
    if value.function is None:
        return convert, tuple(arguments)
    if value.view is not None:
        return value.function, tuple([a.view(value.view) for a in arguments])
    return value.function, tuple(arguments)

"""From a layout and actual arrays to the ufunc calls of every tile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.numpy_backend.lowering import Value, maximum, minimum
from nnet3tools.tensor.numpy_backend.threads import Call, register
from nnet3tools.tensor.numpy_backend.tiles import Layout, Shape, Slices, splat

__all__ = ["Tile", "TileCalls", "convert", "split_groups"]

_SPLAT_AT = 2048
"""From this many elements on, max and min take a constant as an array: NumPy's loops over a
repeated scalar are three times slower for these two."""

_THREAD_AT = 1 << 20
"""Work (elements times steps) from which a second thread pays."""


def convert(source: np.ndarray, out: np.ndarray) -> None:
    """out = source, converted as C does."""
    np.copyto(out, source, casting="unsafe")


def split_groups(tiles: Sequence[Slices], work: int) -> list[Sequence[Slices]]:
    """Tiles as one group or two, by the amount of work only."""
    if work < _THREAD_AT or len(tiles) < 4:
        return [tiles]
    middle = (len(tiles) + 1) // 2
    return [tiles[:middle], tiles[middle:]]


@dataclass
class _Frame:
    """What all tiles of one shape in one group share."""

    arrays: dict[Value, np.ndarray]
    """Registers and constants."""
    calls: list[Call | None]
    """Calls of the steps that touch registers and constants only; None for the others."""


@dataclass
class Tile:
    """One tile of bound operands."""

    parts: list[Any]
    """The operands' parts (plain numbers as they are)."""
    arrays: dict[Value, Any]
    """Where each value is."""
    calls: list[Call]
    """What computes the values, in order."""


class TileCalls:
    """Makes the calls of a layout for arrays; frames are kept from one set of arrays to the next."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._frames: dict[tuple[Shape, int], _Frame] = {}
        self._outside = self._find_outside()
        self._single = len(layout.tiles) == 1

    def _find_outside(self) -> set[Value]:
        """Values that arrays or numbers of the caller stand behind: not the same at every bind."""
        outside = {v for step in self.layout.values for v in step.inputs if v.kind != "step"}
        outside = {v for v in outside if v.kind in ("operand", "number")}
        outside.update(self.layout.bound)
        outside.update(self.layout.direct)
        return outside

    def bind_numbers(self, operands: Sequence[Any]) -> dict[Value, Any]:
        """Values that are plain numbers, or follow from plain numbers and constants alone."""
        made: dict[Value, Any] = {}
        for value in self._outside:
            if value.kind == "number":
                made[value] = np.asarray(operands[value.number], value.dtype)
        for value in self.layout.bound:
            inputs = [v.constant if v.kind == "constant" else made[v] for v in value.inputs]
            made[value] = out = np.empty((), value.dtype)
            function, arguments = _call(value, inputs, out)
            with np.errstate(all="ignore"):
                function(*arguments)
        return made

    def once(self, operands: Sequence[Any], numbers: Mapping[Value, Any]) -> list[Call]:
        """Calls to make before the tiles; their results are in group 0's registers."""
        env = dict(numbers)
        calls: list[Call] = []
        for value in self.layout.once:
            inputs = [self._whole(v, operands, env) for v in value.inputs]
            env[value] = out = self._register(value, self.layout.shape(value), 0)
            calls.append(_call(value, inputs, out))
        return calls

    @staticmethod
    def _whole(value: Value, operands: Sequence[Any], env: Mapping[Value, Any]) -> Any:
        if value.kind == "operand":
            return operands[value.number]
        return value.constant if value.kind == "constant" else env[value]

    def _register(self, value: Value, shape: Shape, group: int) -> np.ndarray:
        buffer = register(group, self.layout.registers[value])
        size = math.prod(shape) * value.dtype.itemsize
        return buffer[:size].view(value.dtype).reshape(shape)

    def _frame(self, tile: Slices, group: int) -> _Frame:
        key = (tuple(s.stop - s.start for s in tile), group)
        if (frame := self._frames.get(key)) is None:
            frame = self._frames[key] = self._make_frame(tile, group)
        return frame

    def _make_frame(self, tile: Slices, group: int) -> _Frame:
        layout = self.layout
        frame = _Frame({}, [])
        for value in layout.once:
            frame.arrays[value] = self._register(value, layout.shape(value), 0)
        for value in (*layout.each, *layout.keep):
            if value in layout.registers and value not in frame.arrays:
                shape = layout.tile_shape(value, tile)
                frame.arrays[value] = self._register(value, shape, group)
            for v in (*value.inputs, value):
                if v.kind == "constant":
                    frame.arrays[v] = v.constant
        for value in layout.each:
            fixed = value not in self._outside and self._outside.isdisjoint(value.inputs)
            frame.calls.append(self._step_call(value, frame.arrays, tile) if fixed else None)
        return frame

    def _step_call(self, value: Value, env: Mapping[Value, Any], tile: Slices) -> Call:
        inputs = [env[v] for v in value.inputs]
        if value.function in (maximum, minimum) and value.inputs[-1].kind == "constant":
            shape = self.layout.tile_shape(value, tile)
            if (size := math.prod(shape)) >= _SPLAT_AT:
                constant = value.inputs[-1].constant
                inputs[-1] = splat(constant.tobytes(), constant.dtype)[:size].reshape(shape)
        return _call(value, inputs, env[value])

    def tile(
        self, tile: Slices, group: int, operands: Sequence[Any], numbers: Mapping[Value, Any]
    ) -> Tile:
        """Where every value of a tile is, and the calls that compute them."""
        layout, frame = self.layout, self._frame(tile, group)
        parts = list(operands)
        if not self._single:
            for number, shape in layout.shapes.items():
                sizes = zip(tile, shape, strict=True)
                parts[number] = parts[number][tuple(s if n != 1 else slice(None) for s, n in sizes)]
        arrays = frame.arrays | numbers
        for value in (*self._outside, *layout.keep):
            if value.kind == "operand":
                arrays[value] = parts[value.number]
        for value, number in layout.direct.items():
            arrays[value] = parts[number]
        calls = [
            ready if ready is not None else self._step_call(value, arrays, tile)
            for value, ready in zip(layout.each, frame.calls, strict=True)
        ]
        return Tile(parts, arrays, calls)


def _call(value: Value, inputs: Sequence[Any], out: np.ndarray) -> Call:
    if value.function is None:
        return convert, (inputs[0], out)
    if value.view is not None:
        inputs = [v.view(value.view) for v in inputs]
        out = out.view(value.view)
    return value.function, (*inputs, out)

"""From a layout and actual arrays to the ufunc calls of every tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnet3tools.tensor.numpy_backend.lowering import Value, maximum, minimum
from nnet3tools.tensor.numpy_backend.threads import Call, register
from nnet3tools.tensor.numpy_backend.tiles import Layout, Shape, Slices, splat

__all__ = ["Tile", "TileCalls", "convert", "split_groups"]

_SPLAT_AT = 2048
"""From this many elements on, max and min take a constant as an array: for these two, NumPy's loops
over a repeated scalar are three times slower."""

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


_Reference = Any
"""Where an argument of a step comes from: an int is an operand's number, a Value a plain number
known at bind, anything else the array itself."""

_Template = tuple[Callable[..., Any], np.dtype | None, list[_Reference]]
"""A step's function, the type its arguments are viewed as, and its arguments, the output last."""


@dataclass
class Tile:
    """One tile of bound operands."""

    parts: Sequence[Any]
    """The operands' parts (plain numbers as they are)."""
    calls: list[Call]
    """What computes the values, in order."""
    kept: list[Any]
    """Where the layout's `keep` values are."""


@dataclass
class _Frame:
    """What all tiles of one shape in one group share."""

    steps: list[Call | _Template]
    """Finished calls of steps that touch only registers and constants; templates of the others."""
    kept: list[_Reference]


class TileCalls:
    """Makes the calls of a layout for arrays; frames are kept from one bind to the next."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._frames: dict[tuple[Shape, int], _Frame] = {}
        self._outside = self._find_outside()
        self._single = len(layout.tiles) == 1
        self._broadcast = {
            number: [n == 1 for n in shape] if 1 in shape else None
            for number, shape in layout.shapes.items()
        }

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
        buffer = register(group, self.layout.registers[value])
        size = math.prod(shape) * value.dtype.itemsize
        return buffer[:size].view(value.dtype).reshape(shape)

    def _make_frame(self, tile: Slices, group: int) -> _Frame:
        layout = self.layout
        found: dict[Value, _Reference] = {v: v for v in self._outside}
        found.update((v, v.number) for v in self._outside if v.kind == "operand")
        for value in layout.once:
            found[value] = self._register(value, layout.shape(value), 0)
        for value in (*layout.each, *layout.keep):
            if value in layout.registers and value not in found:
                found[value] = self._register(value, layout.tile_shape(value, tile), group)
            for v in (*value.inputs, value):
                if v.kind == "constant":
                    found[v] = v.constant
                elif v.kind == "operand":
                    found[v] = v.number
        found.update(layout.direct)
        found.update((v, self._spread_view(v, r, tile)) for v, r in layout.spread.items())
        steps = [self._template(value, found, tile) for value in layout.each]
        return _Frame(steps, [found[v] for v in layout.keep])

    def _template(
        self, value: Value, found: Mapping[Value, _Reference], tile: Slices
    ) -> Call | _Template:
        references = [found[v] for v in value.inputs]
        if value.function in (maximum, minimum) and value.inputs[-1].kind == "constant":
            shape = self.layout.tile_shape(value, tile)
            if (size := math.prod(shape)) >= _SPLAT_AT:
                constant = value.inputs[-1].constant
                references[-1] = splat(constant.tobytes(), constant.dtype)[:size].reshape(shape)
        references.append(found[value])
        if all(isinstance(r, np.ndarray) for r in references):
            return _call(value, references[:-1], references[-1])
        return value.function or convert, value.view, references

    def tile(
        self, tile: Slices, group: int, operands: Sequence[Any], numbers: Mapping[Value, Any]
    ) -> Tile:
        """The calls that compute every value of a tile."""
        key = (tuple([s.stop - s.start for s in tile]), group)
        if (frame := self._frames.get(key)) is None:
            frame = self._frames[key] = self._make_frame(tile, group)
        parts = operands if self._single else self._cut(tile, operands)
        calls = [step if len(step) == 2 else _fill(step, parts, numbers) for step in frame.steps]
        return Tile(parts, calls, [_resolve(r, parts, numbers) for r in frame.kept])

    def _cut(self, tile: Slices, operands: Sequence[Any]) -> list[Any]:
        """The operands' parts within a tile."""
        parts = list(operands)
        for number, broadcast in self._broadcast.items():
            if broadcast is None:
                parts[number] = parts[number][tile]
            else:
                at = [slice(None) if one else s for s, one in zip(tile, broadcast, strict=True)]
                parts[number] = parts[number][tuple(at)]
        return parts


def _resolve(reference: _Reference, parts: Sequence[Any], numbers: Mapping[Value, Any]) -> Any:
    if reference.__class__ is int:
        return parts[reference]
    return numbers[reference] if reference.__class__ is Value else reference


def _fill(template: _Template, parts: Sequence[Any], numbers: Mapping[Value, Any]) -> Call:
    function, view, references = template
    arguments = [
        parts[r] if r.__class__ is int else numbers[r] if r.__class__ is Value else r
        for r in references
    ]
    if view is not None:
        arguments = [a.view(view) for a in arguments]
    return function, tuple(arguments)


def _call(value: Value, inputs: Sequence[Any], out: np.ndarray) -> Call:
    if value.function is None:
        return convert, (inputs[0], out)
    if value.view is not None:
        inputs = [v.view(value.view) for v in inputs]
        out = out.view(value.view)
    return value.function, (*inputs, out)

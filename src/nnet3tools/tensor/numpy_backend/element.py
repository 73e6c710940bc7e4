"""Element on NumPy: a formula as ufunc calls tile by tile."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.element import ELEMENT_BACKENDS
from nnet3tools.tensor.functional import Assignments, Type, simplify
from nnet3tools.tensor.numpy_backend.calls import TileCalls, convert, split_groups
from nnet3tools.tensor.numpy_backend.lowering import Lowering, Value
from nnet3tools.tensor.numpy_backend.operands import collapse, operand_types, overlap, with_axes
from nnet3tools.tensor.numpy_backend.threads import Call, run_calls
from nnet3tools.tensor.numpy_backend.tiles import Layout, Shape, broadcast_shape

Aliases = frozenset[tuple[int, int]]
"""(target, other operand) that share memory element for element."""


class _Lowered:
    """A formula's assignments lowered for operands of given types."""

    def __init__(self, assignments: Assignments, types: Sequence[Type]) -> None:
        self.targets = [n - 1 for n in assignments.targets]
        for target in self.targets:
            if types[target].is_weak:
                raise ProgramError(
                    f"element({assignments.text()}) assigns to a plain number, _{target + 1}"
                )
        lowering = Lowering(types)
        self.roots = [lowering.lower(simplify(value)) for _, value in assignments.items]
        self.values = used_values(lowering.values, self.roots)
        self._plans: dict[tuple[tuple[Shape | None, ...], Aliases], _Plan] = {}

    def plan(self, operands: Sequence[Any], aliases: Aliases) -> _Plan:
        """The plan for operands of these shapes (equal numbers of axes)."""
        shapes = tuple(getattr(o, "shape", None) for o in operands)
        if (found := self._plans.get((shapes, aliases))) is None:
            found = self._plans[shapes, aliases] = _Plan(self, operands, aliases)
        return found


def used_values(values: Sequence[Value], roots: Sequence[Value]) -> list[Value]:
    """Steps that some root needs, in order."""
    needed = set(roots)
    for value in reversed(values):
        if value in needed:
            needed.update(value.inputs)
    return [v for v in values if v in needed]


class _Plan:
    """A lowered formula for operands of given shapes."""

    def __init__(self, lowered: _Lowered, operands: Sequence[Any], aliases: Aliases) -> None:
        self._lowered = lowered
        arrays = {i: o for i, o in enumerate(operands) if isinstance(o, np.ndarray)}
        shapes = {i: a.shape for i, a in arrays.items()}
        full = shapes[lowered.targets[0]]
        if broadcast_shape(list(shapes.values())) != full or any(
            shapes[t] != full for t in lowered.targets
        ):
            raise ProgramError(
                f"an assigned operand must have the full shape; shapes: {list(shapes.values())}"
            )
        dtypes = {i: a.dtype for i, a in arrays.items()}
        direct = self._direct(shapes, dtypes, aliases)
        self._stores = [
            (root, target)
            for root, target in zip(lowered.roots, lowered.targets, strict=True)
            if direct.get(root) != target
        ]
        keep = [root for root, _ in self._stores]
        self._layout = Layout(lowered.values, shapes, full, direct, keep)
        self._tile_calls = TileCalls(self._layout)
        self._empty = 0 in full
        steps = len(lowered.values) + len(self._stores)
        self._groups = split_groups(self._layout.tiles, steps * math.prod(full))

    def _direct(
        self, shapes: dict[int, Shape], dtypes: dict[int, np.dtype], aliases: Aliases
    ) -> dict[Value, int]:
        """Values that their step may write straight into their target.

        The step must have the target's type and shape, and nothing may read the target's old
        contents (under whatever operand) after it.
        """
        lowered, direct = self._lowered, dict[Value, int]()
        probe = Layout(lowered.values, shapes, shapes[lowered.targets[0]], keep=lowered.roots)
        for root, target in zip(lowered.roots, lowered.targets, strict=True):
            fits = root.kind == "step" and root.dtype == dtypes[target] and root not in direct
            if not fits or root in probe.bound or probe.shape(root) != shapes[target]:
                continue
            later = lowered.values[lowered.values.index(root) + 1 :]
            read_later = {v.number for s in later for v in s.inputs if v.kind == "operand"}
            read_later.update(r.number for r in lowered.roots if r.kind == "operand")
            if not any(n == target or (target, n) in aliases for n in read_later):
                direct[root] = target
        return direct

    def bind(self, operands: Sequence[Any]) -> tuple[list[Call], list[list[Call]]]:
        """Calls before the tiles, and the calls of each group of tiles."""
        if self._empty:
            return [], []
        tile_calls = self._tile_calls
        numbers = tile_calls.bind_numbers(operands)
        groups = []
        for group, tiles in enumerate(self._groups):
            calls: list[Call] = []
            for slices in tiles:
                tile = tile_calls.tile(slices, group, operands, numbers)
                calls.extend(tile.calls)
                for root, target in self._stores:
                    value = root.constant if root.kind == "constant" else tile.arrays[root]
                    calls.append((convert, (value, tile.parts[target])))
            groups.append(calls)
        return tile_calls.once(operands, numbers), groups


class _NumpyElement:
    """Binds operands to a formula; lowerings are kept by types, plans by shapes."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._lowered: dict[tuple[Type, ...], _Lowered] = {}

    def __call__(self, *operands: Any) -> Callable[[], None]:
        types = operand_types(operands)
        lowered = self._lowered.get(types)
        if lowered is None:
            lowered = self._lowered[types] = _Lowered(self._assignments, types)
        given = list(operands)
        copies, aliases = _resolve_overlaps(given, lowered.targets)
        full = given[lowered.targets[0]].shape
        prepared = collapse(given, full)
        if prepared is None:
            axes = len(full)
            prepared = [with_axes(o, axes) if isinstance(o, np.ndarray) else o for o in given]
        first, groups = lowered.plan(prepared, aliases).bind(prepared)
        return functools.partial(run_calls, [*copies, *first], groups)


def _resolve_overlaps(operands: list[Any], targets: Sequence[int]) -> tuple[list[Call], Aliases]:
    """Find operands that share memory with a target; those that do so askew are copied first.

    Replaces such operands in the list by private arrays, and returns the calls that fill these.
    """
    copies: list[Call] = []
    aliases = set()
    for target in targets:
        for number, other in enumerate(operands):
            if number == target or not isinstance(other, np.ndarray):
                continue
            kind = overlap(operands[target], other)
            if kind == "same":
                aliases.add((target, number))
            elif kind == "partial" and number not in targets:
                operands[number] = np.empty_like(other)
                copies.append((convert, (other, operands[number])))
    return copies, frozenset(aliases)


ELEMENT_BACKENDS["numpy"] = _NumpyElement

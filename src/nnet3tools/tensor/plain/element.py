"""Element on NumPy: a formula as ufunc calls tile by tile."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import may_share_memory

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.element import ELEMENT_BACKENDS
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.plain.addresses import address
from nnet3tools.tensor.plain.calls import TileCalls, convert, split_groups
from nnet3tools.tensor.plain.fusion import fuse
from nnet3tools.tensor.plain.lowering import Steps, Value
from nnet3tools.tensor.plain.operands import collapse, operand_types, overlap, with_axes
from nnet3tools.tensor.plain.threads import Call, run_calls
from nnet3tools.tensor.plain.tiles import Layout, Shape, broadcast_shape

MAX_PLANS = 512
"""Kinds of operands remembered a formula; when there are more, all are forgotten."""

Aliases = frozenset[tuple[int, int]]
"""(target, other operand) that share memory element for element."""
_NO_ALIASES: Aliases = frozenset()


class _Lowered:
    """A formula's assignments lowered for operands of given types."""

    def __init__(self, assignments: Assignments, types: Sequence[Type]) -> None:
        self.targets = [n - 1 for n in assignments.targets]
        self.whole_rows = assignments.reduces_rows
        for target in self.targets:
            if types[target].is_weak:
                raise ProgramError(
                    f"element({assignments.text()}) assigns to a plain number, _{target + 1}"
                )
        steps = Steps(types)
        self.roots = [steps.lower(value) for _, value in assignments.items]
        if len(self.roots) > 1:
            # the operand might be overwritten by another assignment before it is stored
            self.roots = [
                steps.step(None, [r], r.dtype) if r.kind == "operand" else r for r in self.roots
            ]
        self.values = steps.values
        self._plans: dict[tuple[tuple[Shape | None, ...], Aliases], _Plan] = {}

    def plan(self, operands: Sequence[Any], aliases: Aliases) -> _Plan:
        """The plan for operands of these shapes (equal numbers of axes)."""
        shapes = tuple(getattr(o, "shape", None) for o in operands)
        if (found := self._plans.get((shapes, aliases))) is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            found = self._plans[shapes, aliases] = _Plan(self, operands, aliases)
        return found


class _Plan:
    """A lowered formula for operands of given shapes."""

    def __init__(self, lowered: _Lowered, operands: Sequence[Any], aliases: Aliases) -> None:
        self._targets = lowered.targets
        arrays = {i: o for i, o in enumerate(operands) if isinstance(o, np.ndarray)}
        shapes = {i: a.shape for i, a in arrays.items()}
        self._whole_rows = lowered.whole_rows
        full = broadcast_shape(list(shapes.values()))
        allowed = {full, (*full[:-1], 1)} if self._whole_rows else {full}
        if any(shapes[t] not in allowed for t in lowered.targets):
            raise ProgramError(
                f"an assigned operand must have the full shape; shapes: {list(shapes.values())}"
            )
        dtypes = {i: a.dtype for i, a in arrays.items()}
        self._values, self._roots = fuse(lowered.values, lowered.roots, shapes)
        direct = self._direct(shapes, dtypes, full, aliases)
        pairs = zip(self._roots, self._targets, strict=True)
        stored = [(root, target) for root, target in pairs if direct.get(root) != target]
        self._stores = [target for _, target in stored]
        keep = [root for root, _ in stored]
        self._layout = Layout(self._values, shapes, full, direct, keep, whole_rows=self._whole_rows)
        self._empty = 0 in full
        steps = len(self._values) + len(self._stores)
        groups = split_groups(self._layout.tiles, steps * math.prod(full))
        self._tile_calls = TileCalls(self._layout, groups)

    def _direct(
        self, shapes: dict[int, Shape], dtypes: dict[int, np.dtype], full: Shape, aliases: Aliases
    ) -> dict[Value, int]:
        """Values that their step may write straight into their target.

        The step must have the target's type and shape, and nothing may read the target's old
        contents (under whatever operand) after it.
        """
        direct = dict[Value, int]()
        probe = Layout(self._values, shapes, full, keep=self._roots, whole_rows=self._whole_rows)
        for root, target in zip(self._roots, self._targets, strict=True):
            if broadcast_shape([probe.shape(root), shapes[target]]) != shapes[target]:
                raise ProgramError("a whole row is assigned to an operand of one column")
            fits = root.kind == "step" and root.dtype == dtypes[target] and root not in direct
            if not fits or root in probe.bound or probe.shape(root) != shapes[target]:
                continue
            later = self._values[self._values.index(root) + 1 :]
            read_later = {v.number for s in later for v in s.inputs if v.kind == "operand"}
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
        for tiles in tile_calls.tiles(operands, numbers):
            calls: list[Call] = []
            for parts, steps, kept in tiles:
                calls += steps
                for value, target in zip(kept, self._stores, strict=True):
                    calls.append((convert, (value, parts[target])))
            groups.append(calls)
        return tile_calls.once(operands, numbers), groups


class _Signature:
    """How operands of given types, shapes and strides are prepared, and the plans for them."""

    def __init__(self, lowered: _Lowered, operands: Sequence[Any]) -> None:
        self._lowered = lowered
        self.targets = lowered.targets
        self._arrays = [i for i, o in enumerate(operands) if isinstance(o, np.ndarray)]
        full = operands[self.targets[0]].shape
        self._flat = not lowered.whole_rows and collapse(operands, full) is not None
        self._axes = len(full)
        if lowered.whole_rows:
            self._axes = max(2, *(operands[i].ndim for i in self._arrays))
        self._pairs = [(t, i) for t in self.targets for i in self._arrays if i != t]
        self._many = len(self._pairs) > 2 * len(self._arrays)
        """Whether looking up all addresses is cheaper than asking for every pair."""
        self._shared: dict[tuple[int, ...], tuple[list[int], Aliases]] = {}
        """Addresses -> operands to copy first, and operands that are a target."""
        self._plans: dict[Aliases, _Plan] = {}

    def bind(self, given: tuple[Any, ...]) -> Callable[[], None]:
        """The formula bound to these operands."""
        operands, copies, aliases = list(given), list[Call](), _NO_ALIASES
        if self._many or any(may_share_memory(operands[t], operands[i]) for t, i in self._pairs):
            copies, aliases = self._resolve_overlaps(operands)
        for i in self._arrays:
            if self._flat:
                operands[i] = operands[i].reshape(-1)
            elif operands[i].ndim < self._axes:
                operands[i] = with_axes(operands[i], self._axes)
        if (plan := self._plans.get(aliases)) is None:
            plan = self._plans[aliases] = self._lowered.plan(operands, aliases)
        first, groups = plan.bind(operands)
        return functools.partial(run_calls, [*copies, *first], groups)

    def _resolve_overlaps(self, operands: list[Any]) -> tuple[list[Call], Aliases]:
        """Find operands that share memory with a target; those that do so askew are copied first.

        Replaces such operands in the list by private arrays, and returns the calls that fill these.
        """
        key = tuple([address(operands[i]) for i in self._arrays])
        if (found := self._shared.get(key)) is None:
            if len(self._shared) >= MAX_PLANS:
                self._shared.clear()
            found = self._shared[key] = _find_shared(operands, self._pairs, self.targets)
        copies = []
        for number in found[0]:
            given = operands[number]
            operands[number] = np.empty_like(given)
            copies.append((convert, (given, operands[number])))
        return copies, found[1]


class _NumpyElement:
    """Binds operands to a formula; lowerings are kept by types, plans by shapes."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._lowered: dict[tuple[Type, ...], _Lowered] = {}
        self._signatures: dict[tuple[Any, ...], _Signature] = {}

    def __call__(self, *operands: Any) -> Callable[[], None]:
        key = tuple(
            [
                (o.dtype, o.shape, o.strides) if o.__class__ is np.ndarray else o.__class__
                for o in operands
            ]
        )
        if (signature := self._signatures.get(key)) is None:
            signature = self._signatures[key] = self._sign(operands)
        return signature.bind(operands)

    def _sign(self, operands: tuple[Any, ...]) -> _Signature:
        types = operand_types(operands)
        lowered = self._lowered.get(types)
        if lowered is None:
            lowered = self._lowered[types] = _Lowered(self._assignments, types)
        if len(self._signatures) >= MAX_PLANS:
            self._signatures.clear()
        return _Signature(lowered, operands)


def _find_shared(
    operands: Sequence[Any], pairs: Sequence[tuple[int, int]], targets: Sequence[int]
) -> tuple[list[int], Aliases]:
    """Operands that share memory with a target askew, and (target, operand) that are the same."""
    copied: dict[int, None] = {}
    aliases = set()
    for target, number in pairs:
        if number in copied:
            continue
        kind = overlap(operands[target], operands[number])
        if kind == "same":
            aliases.add((target, number))
        elif kind == "partial" and number not in targets:
            copied[number] = None
    return list(copied), frozenset(a for a in aliases if a[1] not in copied)


ELEMENT_BACKENDS["numpy"] = _NumpyElement

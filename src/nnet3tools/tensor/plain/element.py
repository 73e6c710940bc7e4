"""Element on NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.element import FORMULA_BACKENDS
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.operands import (
    broadcast_shape,
    checked_arrays,
    collapse,
    operand_types,
    remembered,
    with_axes,
)
from nnet3tools.tensor.plain.blocks import BlockPlan
from nnet3tools.tensor.plain.functions import convert
from nnet3tools.tensor.plain.threads import Call, run_calls


class _Plan:
    """How a formula is computed for operands of given types, shapes, strides and common memory.

    `shared` maps pairs (target, other operand) of numbers to how the two share memory: ""
    (not), "same" (element for element) or "partial".
    """

    def __init__(
        self, assignments: Assignments, operands: Sequence[Any], shared: dict[tuple[int, int], str]
    ) -> None:
        targets = [n - 1 for n in assignments.targets]
        types = operand_types(operands)
        checked_arrays(assignments, operands)
        self._targets = targets
        self._copied = {n for (_, n), how in shared.items() if how == "partial"} - {*targets}
        aliases = [pair for pair, how in shared.items() if how == "same"]
        arrays = [i for i, o in enumerate(operands) if isinstance(o, np.ndarray)]
        reduces = assignments.reduces_rows or assignments.reduces_columns
        self._flat = not reduces and collapse(operands, operands[targets[0]].shape) is not None
        self._axes = max([2 if reduces else 1, *(operands[i].ndim for i in arrays)])
        self._arrays = arrays
        given = self._prepared(operands)
        shapes = {i: given[i].shape for i in arrays}
        exprs = [value for _, value in assignments.items]
        dtypes = {t: given[t].dtype for t in targets}
        self._blocks = BlockPlan(exprs, types, shapes, targets=dtypes, aliases=aliases)
        for root, target in zip(self._blocks.roots, targets, strict=True):
            shape = self._blocks.shape(root)
            if broadcast_shape([shape, shapes[target]]) != shapes[target]:
                raise ProgramError(
                    f"a value of shape {shape} is assigned to an operand of one column or row"
                )

    def _prepared(self, operands: Sequence[Any]) -> list[Any]:
        """The operands as vectors, if all arrays are contiguous and of one shape (`_flat`).

        Otherwise axes of size 1 are put in front, so that all arrays have the same number of axes.
        """
        given = list(operands)
        for i in self._arrays:
            given[i] = given[i].reshape(-1) if self._flat else with_axes(given[i], self._axes)
        return given

    def bind(self, operands: Sequence[Any]) -> Callable[[], None]:
        """A callable that computes the formula for operands with this plan's types and shapes."""
        given, calls = list(operands), list[Call]()
        for number in self._copied:
            given[number] = np.empty_like(operands[number])
            calls.append((convert, (operands[number], given[number])))
        given = self._prepared(given)
        sinks = [functools.partial(_stored, given[t]) for t in self._targets]
        return functools.partial(run_calls, calls + self._blocks.bind(given, sinks))


def _stored(target: np.ndarray, value: np.ndarray, rows: slice) -> Call:
    return convert, (value, target if len(target) == 1 else target[rows])


class _NumpyElement:
    """Called with operands, returns a callable that does a formula's assignments by NumPy calls."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._targets = [n - 1 for n in assignments.targets]
        self._plans: dict[tuple[Any, ...], _Plan] = {}

    def __call__(self, *operands: Any) -> Callable[[], None]:
        arrays = [i for i, o in enumerate(operands) if isinstance(o, np.ndarray)]
        pairs = [(t, i) for t in self._targets for i in arrays if i != t]
        key: tuple[Any, ...] = tuple(
            [
                (o.dtype, o.shape, o.strides) if isinstance(o, np.ndarray) else o.__class__
                for o in operands
            ]
        )
        near = any(
            isinstance(operands[t], np.ndarray) and np.may_share_memory(operands[t], operands[i])
            for t, i in pairs
        )
        if near:  # how arrays share memory follows from their distances
            first = address(operands[arrays[0]])
            key += tuple([address(operands[i]) - first for i in arrays])
        shares = pairs if near else []
        return remembered(self._plans, key, lambda: self._plan(key, operands, shares)).bind(
            operands
        )

    def _plan(
        self, key: tuple[Any, ...], operands: Sequence[Any], pairs: Sequence[tuple[int, int]]
    ) -> _Plan:
        """The plan for operands of layout `key`; other distances may share memory in the same way.

        `pairs` are the (target, other operand) of which each two may share memory.
        """
        shared = {(t, i): overlap(operands[t], operands[i]) for t, i in pairs}
        layout = (*key[: len(operands)], *shared.values())
        return remembered(self._plans, layout, lambda: _Plan(self._assignments, operands, shared))


FORMULA_BACKENDS["element", "numpy"] = _NumpyElement

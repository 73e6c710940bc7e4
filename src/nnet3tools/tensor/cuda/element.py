"""Formulas on CUDA: binds operands to the kernel of a formula, types and layout.

Kernels are made by tensor/emit. Four elements a thread are taken at once where all operands are
contiguous and aligned along the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.basics import copy
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import get_device
from nnet3tools.tensor.cuda.launches import Launch, Step, arguments, grid_for
from nnet3tools.tensor.cuda.reducing import bind_columns, bind_rows
from nnet3tools.tensor.element import FORMULA_BACKENDS
from nnet3tools.tensor.emit.cuda import VECTOR_TYPES, element_kernel
from nnet3tools.tensor.emit.walk import Access, Walk, merged_strides, walk_of
from nnet3tools.tensor.formulas import Assignments
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.operands import checked_arrays, is_array, remembered


class ElementKernel:
    """Returns, when called with operands, a callable that computes the formula of `assignments`."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments
        self._targets = [n - 1 for n in assignments.targets]
        self._plans: dict[Any, Any] = {}

    def __call__(self, *operands: Any) -> Step:
        given, copies = list(operands), list[Step]()
        if any(isinstance(operand, Number) for operand in given):
            given = with_device_numbers(given, copies)
        arrays = [i for i, operand in enumerate(given) if is_array(operand)]
        for target in (i for i in arrays if i in self._targets):
            for i in (i for i in arrays if i not in self._targets):
                if overlap(given[target], other := given[i]) == "partial":
                    given[i] = get_device().empty(other.shape, other.dtype)
                    copies.append(copy.bind(given[i], other))
        return in_turn([*copies, self._bind(given)])

    def _bind(self, operands: list[Any]) -> Step:
        if self._assignments.reduces_columns:
            return bind_columns(self._assignments, operands)
        if self._assignments.reduces_rows:
            return bind_rows(self._assignments, operands)
        device = get_device()
        key = (id(device), *map(signature, operands))
        if (plan := remembered(self._plans, key, lambda: self._plan(operands))) is None:
            return in_turn([])
        kernel, found, grid, block, walk, sizes, strides, space = plan
        args = arguments([*sizes, *walk.arguments(operands, strides)])
        arrays = [o for o in operands if is_array(o)]
        written = [operands[t] for t in self._targets]
        return Launch(
            kernel, found[0], found[1], grid, block, args, arrays, written, loops=True, space=space,
            size=math.prod(space), points=[a for a in arrays if a.shape == written[0].shape],
        )  # fmt: skip

    def _plan(self, operands: list[Any]) -> Any:
        arrays, full, _ = checked_arrays(self._assignments, operands)
        if 0 in full:
            return None
        device = get_device()
        sizes, strides = merged_strides(arrays, full)
        walk = walk_of(operands, strides, exact=len(sizes))
        is_vector = sizes[-1] % 4 == 0 and fits_vector(walk, operands, strides)
        found = element_kernel(self._assignments, walk, is_vector)
        rows = math.prod(sizes[:-1])
        items = sizes[-1] // 4 if is_vector else sizes[-1]
        grid, block = grid_for(items, rows, device.num_processors)
        numbers = [*sizes, rows] if len(sizes) > 1 else sizes
        space = items, rows, 4 if is_vector else 1
        return device.kernel(*found), found, grid, block, walk, numbers, strides, space


def fits_vector(walk: Walk, operands: Sequence[Any], strides: Sequence[Sequence[int]]) -> bool:
    """Whether each array can be accessed by 4 elements at a time along the last axis.

    By `walk`, it is constant, or contiguous and aligned, along this axis. `strides` has one
    sequence for each array, in elements.
    """
    walked = iter(strides)
    for i, operand in enumerate(operands):
        if not walk.is_array(i):
            continue
        steps = next(walked)
        if walk.accesses[i][-1] is Access.REPEATED:
            continue
        aligned = address(operand) % 16 == 0 and all(s % 4 == 0 for s in steps[:-1])
        if not (walk.is_contiguous(i) and aligned and walk.types[i] in VECTOR_TYPES):
            return False
    return True


def with_device_numbers(operands: Sequence[Any], before: list[Step]) -> list[Any]:
    """The operands, with each Number (a float64 in memory) replaced by an array of one element.

    The element has the float type of the other arrays. `before` gets the steps that make them.
    """
    types = {o.dtype for o in operands if is_array(o) and o.dtype.kind == "f"}
    wanted = np.dtype(np.float64 if np.dtype(np.float64) in types else np.float32)
    return [as_typed_number(o, wanted, before) if isinstance(o, Number) else o for o in operands]


def as_typed_number(number: Number, dtype: Any, before: list[Step]) -> Any:
    """A float in memory as a device array (1,) of `dtype`; `before` gets a step that converts."""
    if number.array.dtype == dtype:
        return number.array
    made = get_device().empty((1,), dtype)
    before.append(copy.bind(made, number.array))
    return made


def signature(operand: Any) -> Any:
    if is_array(operand):
        return operand.dtype, operand.shape, operand.strides, address(operand) % 16
    return operand.__class__


FORMULA_BACKENDS["element", "cupy"] = ElementKernel

"""Formulas that reduce rows, on CUDA: a block of threads for each row.

Each stage of reductions is one loop over the row, and so is the map at the end; a loop computes
again what it needs of the row's elements. Values that are one number a row are computed between the
loops, by every thread.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.formula import C_TYPES, Body, load, stored
from nnet3tools.tensor.cuda.operands import broadcast_shape, is_array, operand_type
from nnet3tools.tensor.cuda.strided import block_step
from nnet3tools.tensor.formulas import Assignments, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, used
from nnet3tools.tensor.formulas.stages import RowStages, varying

__all__ = ["bind_row_formula"]

_REDUCERS = {"row_sum": "nn_Sum", "row_mean": "nn_Sum", "row_max": "nn_Max", "row_min": "nn_Min"}
_AXES = 3
_LOOP = "for (long long c = threadIdx.x; c < width; c += blockDim.x) {"

Sizes = tuple[int, ...]


def bind_row_formula(assignments: Assignments, operands: Sequence[Any]) -> Callable[[], None]:
    """The bound formula; operands have at most three axes."""
    arrays = {f"p{i}": _with_axes(a) for i, a in enumerate(operands, 1) if is_array(a)}
    full = broadcast_shape([a.shape for a in arrays.values()])
    for target in assignments.targets:
        if arrays[f"p{target}"].shape not in (full, (*full[:-1], 1)):
            shapes = [a.shape for a in arrays.values()]
            raise ProgramError(f"an assigned operand must have the full shape; shapes: {shapes}")
    if 0 in full:
        return lambda: None
    types = tuple(operand_type(o) for o in operands)
    repeated = tuple(
        tuple(n == 1 < m for n, m in zip(arrays[f"p{i}"].shape, full, strict=True))
        if is_array(o)
        else ()
        for i, o in enumerate(operands, 1)
    )
    columns = tuple(arrays[f"p{n}"].shape[-1] == full[-1] for n in assignments.targets)
    body = _source(assignments, types, repeated, columns)
    numbers: dict[str, Any] = {
        f"x{i}": (np.float64 if types[i - 1] is Type.WEAK_FLOAT else np.int64)(o)
        for i, o in enumerate(operands, 1)
        if not is_array(o)
    }
    space = {"i": full[0], "j": full[1]}
    return block_step("rows", space, full[-1], arrays, body, width=np.int64(full[-1]), **numbers)


def _with_axes(array: Any) -> Any:
    if array.ndim > _AXES:
        raise ProgramError(f"rows of an array of {array.ndim} axes")
    return array[(None,) * (_AXES - array.ndim)] if array.ndim < _AXES else array


@functools.lru_cache(maxsize=256)
def _source(
    assignments: Assignments, types: tuple[Type, ...], repeated: tuple[tuple[bool, ...], ...],
    whole_targets: tuple[bool, ...],
) -> str:  # fmt: skip
    """The body of the kernel.

    `repeated`: along which axes an operand is repeated; `whole_targets`: which targets are assigned
    whole rows.
    """
    return _Rows(types, repeated).source(assignments, whole_targets)


class _Rows:
    """Collects the lines of a kernel's body."""

    def __init__(self, types: Sequence[Type], repeated: Sequence[tuple[bool, ...]]) -> None:
        self._repeated, self._types = repeated, types
        self._body = Body(types)
        self._varying: Collection[Instruction] = ()
        self.lines: list[str] = []

    def source(self, assignments: Assignments, whole_targets: Sequence[bool]) -> str:
        """The whole body."""
        roots = [self._body.lower(value) for _, value in assignments.items]
        instructions = used(self._body.instructions, roots)
        stages = RowStages(instructions, varying(instructions, self._differs))
        self._varying = stages.varying
        for stage in range(stages.last):
            self._add_once(stages, stage)
            self._reduce(stages.reductions(stage))
        self._add_once(stages, stages.last)
        # no barrier: what is the same for a row was read before the reductions, which have theirs
        pairs = list(zip(assignments.targets, roots, whole_targets, strict=True))
        self._loop(
            [root for _, root, whole in pairs if whole],
            [self._store(n, root, "c") for n, root, whole in pairs if whole],
        )
        columns = [self._store(n, root, "0") for n, root, whole in pairs if not whole]
        if columns:
            self.lines += ["if (threadIdx.x == 0) {", *columns, "}"]
        return "\n".join(self.lines)

    def _differs(self, number: int) -> bool:
        """Whether an operand does within a row."""
        return not self._repeated[number][-1]

    def _add_once(self, stages: RowStages, stage: int) -> None:
        """The values of a stage that are the same for the whole row."""
        for v in stages.once(stage):
            self.lines += self._lines_of(v)

    def _reduce(self, reductions: Sequence[Instruction]) -> None:
        """One loop that makes some reductions."""
        for v in reductions:
            state, name = f"{_REDUCERS[v.name]}<{C_TYPES[v.type]}>", self._body.name(v)
            self.lines += [f"__shared__ {state} part_{name}[9];", f"{state} acc_{name};"]
            self.lines.append(f"acc_{name}.init();")
        inputs = [v.inputs[0] for v in reductions]
        self._loop(
            inputs,
            [f"acc_{self._body.name(v)}.add({self._body.name(v.inputs[0])});" for v in reductions],
        )
        for v in reductions:
            name, held_in = self._body.name(v), C_TYPES[v.type]
            total = f"nn_block(acc_{name}, part_{name}).a"
            total += f" / ({held_in})width" if v.name == "row_mean" else ""
            self.lines.append(f"const {held_in} {name} = {total};")

    def _loop(self, roots: Sequence[Instruction], last: Sequence[str]) -> None:
        """A loop over the row that computes what varies, then does the last lines."""
        if not last:
            return
        needed: dict[Instruction, None] = {}
        stack = [v for v in roots if v in self._varying]
        while stack:
            v = stack.pop()
            needed[v] = None
            stack += [i for i in v.inputs if i in self._varying and i not in needed]
        self.lines.append(_LOOP)
        for v in used(self._body.instructions, list(needed)):
            if v in needed:
                self.lines += [f"  {line}" for line in self._lines_of(v)]
        self.lines += [*(f"  {line}" for line in last), "}"]

    def _place(self, number: int, column: str) -> str:
        indexes = ("i", "j", column)
        at = ("0" if r else i for i, r in zip(indexes, self._repeated[number], strict=True))
        return f"p{number + 1}[[{', '.join(at)}]]"

    def _lines_of(self, v: Instruction) -> list[str]:
        if v.kind is not Kind.OPERAND:
            return self._body.emit(v)
        if v.type.is_weak:
            return []
        place = self._place(v.number, "c" if v in self._varying else "0")
        return [load(v.number, self._types[v.number], place)]

    def _store(self, number: int, root: Instruction, column: str) -> str:
        place = self._place(number - 1, column)
        value = stored(self._types[number - 1], self._body.name(root), C_TYPES[root.type])
        return f"{place} = {value};"

"""Expressions evaluated with NumPy: lists of calls, block of rows by block of rows.

A block's temporaries are scratch registers that all formulas share and that stay in the cache.
Blocks depend on shapes only.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nnet3tools.fast_dataclasses import replace
from nnet3tools.tensor.formulas import Expr, Type
from nnet3tools.tensor.formulas.lowered import Instruction, Kind, Lowering, used
from nnet3tools.tensor.formulas.stages import Pass, passes
from nnet3tools.tensor.operands import broadcast_shape, is_number
from nnet3tools.tensor.plain.functions import TARGET, convert, function_of
from nnet3tools.tensor.plain.threads import REGISTER_BYTES, Call, register

Shape = tuple[int, ...]
Arrays = Mapping[Instruction, np.ndarray]
Sink = Callable[[np.ndarray, slice], Call]
"""Function of a value and its rows: the call that stores or reduces the value."""

_ADDED_ROWS = {False: 64, True: 16}
"""Rows that are added up in float32 before the sums are added in float64; fewer for float64."""

_SPLAT_FROM = 2048
"""Elements from which maxima and minima take a constant as an array. NumPy's loop over a repeated
number takes 5 times as long."""


def sum_of_rows(rows: np.ndarray, into_float64: bool) -> np.ndarray:
    """The sum over the first axis, (1, ...) float64, to be stored in float64 if `into_float64`.

    Of float32 rows, 64 (16 with `into_float64`) are added in float32, then the sums in float64.
    """
    if rows.dtype != np.float32:
        return np.add.reduce(rows, axis=0, dtype=np.float64, keepdims=True)
    size = _ADDED_ROWS[into_float64]
    whole = len(rows) // size * size
    parts = np.add.reduce(rows[:whole].reshape(-1, size, *rows.shape[1:]), axis=1)
    total: np.ndarray = np.add.reduce(parts, axis=0, dtype=np.float64, keepdims=True)
    return total if whole == len(rows) else total + np.add.reduce(rows[whole:], axis=0)


def _add_columns(part: np.ndarray, total: np.ndarray) -> None:
    """Add the sums over all axes of `part` but the last to `total`, in float64."""
    rows = part.reshape(-1, part.shape[-1])
    total += sum_of_rows(rows, into_float64=True).reshape(total.shape)


@functools.lru_cache(maxsize=16)
def repeated_constant(data: bytes, dtype: np.dtype) -> np.ndarray:
    """An array of REGISTER_BYTES in which each element is the constant `data`; read-only."""
    out = np.full(REGISTER_BYTES // dtype.itemsize, np.frombuffer(data, dtype)[0], dtype)
    out.setflags(write=False)
    return out


class _Pass(NamedTuple):
    """The values that one pass over all blocks of rows computes, and the arrays it reads.

    `columns` are computed before the blocks, `steps` for each block, in order. `operands` are the
    arrays that each block reads. `registers` has the number of the scratch buffer of each step's
    value, unless an operand takes it. `totals` are column reductions, to which blocks are added.
    """

    columns: Sequence[Instruction]
    steps: Sequence[Instruction]
    operands: Sequence[Instruction]
    registers: Mapping[Instruction, int]
    totals: Sequence[Instruction]


class BlockPlan:
    """Makes calls of NumPy functions that compute expressions, block of rows by block of rows."""

    def __init__(
        self,
        exprs: Sequence[Expr],
        types: Sequence[Type],
        shapes: Mapping[int, Shape],
        *,
        aligned_rows: int = 1,
        targets: Mapping[int, np.dtype] | None = None,
        aliases: Collection[tuple[int, int]] = (),
    ) -> None:
        """Plan calls that compute `exprs`; operand i has types[i] and, if an array, shapes[i].

        Shapes have equal numbers of axes. Blocks have a multiple of `aligned_rows` rows if a
        scratch register holds so many. `targets` are the numbers of the operands that take the
        expressions' values, with their element types; without them all values are wanted block by
        block. `aliases` are pairs (target, other operand) that have the same elements.
        """
        roots, lowered = _lowered(tuple(exprs), tuple(types))
        self.shapes = shapes
        self.full = broadcast_shape(list(shapes.values()))
        self._value_shapes: dict[Instruction, Shape] = {}
        self.roots, instructions = self._quotients(lowered, roots)
        if len(roots) > 1:  # an operand might be overwritten before it is stored elsewhere
            copies = [
                Instruction(Kind.CAST, r.type, (r,)) if r.kind is Kind.OPERAND else r
                for r in self.roots
            ]
            instructions += [r for r in copies if r not in self.roots]
            self.roots = copies
        self._given = [v for v in instructions if v.kind is Kind.CONSTANT or _is_number(v)]
        width = max([v.type.held.itemsize for v in instructions], default=8)
        most = REGISTER_BYTES // max(1, width * math.prod(self.full[1:]))
        self._block_rows = max(1, most // aligned_rows * aligned_rows or most)
        one_row = math.prod(self.full[:-1]) == 1 or targets is None
        found = passes(
            instructions,
            self.roots,
            lambda i: shapes[i][-1] == self.full[-1],
            lambda i: one_row or math.prod(shapes[i][:-1]) != 1,
        )
        self._targets: list[int | None] = list(targets or {}) or [None] * len(roots)
        self._direct = self._find_direct(found[-1], targets or {}, aliases)
        self._passes = [self._pass(each) for each in found]
        self._frames: dict[tuple[int, int], dict[Instruction, np.ndarray]] = {}

    # -- preparation

    def shape(self, v: Instruction) -> Shape:
        """The shape of a value; 1 along axes along which all elements are equal."""
        if v.kind is Kind.OPERAND and not v.type.is_weak:
            return self.shapes[v.number]
        if (found := self._value_shapes.get(v)) is None:
            found = (1,) * len(self.full)
            if v.inputs:
                found = broadcast_shape([self.shape(i) for i in v.inputs])
            if v.kind is Kind.REDUCE_ROW:
                found = (*found[:-1], 1)
            elif v.kind is Kind.REDUCE_COLUMN:
                found = (*(1,) * (len(found) - 1), found[-1])
            self._value_shapes[v] = found
        return found

    def _quotients(
        self, instructions: Sequence[Instruction], roots: Sequence[Instruction]
    ) -> tuple[list[Instruction], list[Instruction]]:
        """(new roots, new instructions): x * (1 / y) is x / y, if y has the product's shape.

        This saves a pass where the reciprocal has no other use, as in `sigmoid(x) * y`.
        """
        uses = Counter(i for v in instructions for i in v.inputs)
        uses.update(roots)
        made: dict[Instruction, Instruction] = {}
        for v in instructions:
            inputs, name = tuple(made[i] for i in v.inputs), v.name
            if v.kind is Kind.APPLY and name == "mul":
                for x, y in (v.inputs, v.inputs[::-1]):
                    reciprocal = y.name == "div" and y.inputs[0].kind is Kind.CONSTANT
                    if reciprocal and y.inputs[0].value == 1 and uses[y] == 1:
                        if self.shape(y) == self.shape(v):
                            inputs, name = (made[x], made[y.inputs[1]]), "div"
                            break
            is_same = inputs == v.inputs and name == v.name
            made[v] = v if is_same else replace(v, inputs=inputs, name=name)
        new_roots = [made[v] for v in roots]
        return new_roots, used(list(made.values()), new_roots)

    def _find_direct(
        self, last: Pass, targets: Mapping[int, np.dtype], aliases: Collection[tuple[int, int]]
    ) -> dict[Instruction, int]:
        """For each root that can be computed directly in its target: root -> operand number.

        `targets` are in the order of the roots, which need their types and shapes. After a root's
        step no instruction of the `last` pass may read its target, under its number or in a pair in
        `aliases`.
        """
        direct: dict[Instruction, int] = {}
        order = list(last.rows.instructions)
        for root, (target, dtype) in zip(self.roots, targets.items(), strict=False):
            if not _is_step(root) or root in direct or root not in order:
                continue
            if root.type.held != dtype or self.shape(root) != self.shapes[target]:
                continue
            later = {i for v in order[order.index(root) + 1 :] for i in v.inputs}
            numbers = {v.number for v in later if v.kind is Kind.OPERAND}
            if not any(n == target or (target, n) in aliases for n in numbers):
                direct[root] = target
        return direct

    def _pass(self, found: Pass) -> _Pass:
        """`found` with the numbers of scratch buffers for its steps, which are reused when free."""
        steps = [v for v in found.rows.instructions if _is_step(v)]
        last_use = {i: at for at, v in enumerate(steps) for i in v.inputs}
        kept = self.roots if not found.reductions else [v.inputs[0] for v in found.reductions]
        last_use.update((v, len(steps)) for v in kept)
        registers: dict[Instruction, int] = {}
        num_registers, free = 0, list[int]()
        for at, v in enumerate(steps):
            dying = [i for i in dict.fromkeys(v.inputs) if i in registers and last_use[i] == at]
            if v not in self._direct:
                alike = [registers[i] for i in dying if self._may_replace(i, v)]
                registers[v] = alike[0] if alike else free.pop() if free else num_registers
                num_registers = max(num_registers, registers[v] + 1)
            free += {registers[i] for i in dying} - {registers.get(v)}
        arrays = [
            v for v in found.rows.instructions if v.kind is Kind.OPERAND and not v.type.is_weak
        ]
        columns = [v for v in found.columns if v not in self._given]
        return _Pass(columns, steps, arrays, registers, found.reductions)

    def _may_replace(self, given: Instruction, v: Instruction) -> bool:
        """Whether the step that computes `v` may write its result over its input `given`."""
        has_same_size = given.type.held.itemsize == v.type.held.itemsize
        return v.kind is Kind.APPLY and has_same_size and self.shape(given) == self.shape(v)

    # -- calls

    def bind(self, operands: Sequence[Any], sinks: Sequence[Sink]) -> list[Call]:
        """Calls that evaluate the plan's expressions for these operands.

        `sinks[i](block, rows)` returns the call that stores or uses the array `block`: the values
        of expression i for the slice `rows`. If all rows have one value, there is one call for all.
        """
        calls: list[Call] = []
        known: dict[Instruction, np.ndarray] = {}
        for v in self._given:
            operand: Any = v.value if v.kind is Kind.CONSTANT else operands[v.number]
            if is_number(operand):
                known[v] = np.empty((), v.type.held)
                calls.append((convert, (operand.array[0:1].reshape(()), known[v])))
            else:
                known[v] = np.asarray(operand, v.type.held)
        last: set[Instruction] = set()
        for number, each in enumerate(self._passes):
            for v in each.columns:
                if v.kind is Kind.OPERAND:
                    known[v] = operands[v.number]
                else:
                    known[v] = np.empty(self.shape(v), v.type.held)
                    calls.append(_call(v, known, known[v]))
            totals = {v: np.zeros(self.shape(v)) for v in each.totals}
            calls += [(total.fill, (0.0,)) for total in totals.values()]
            last = {*each.steps, *each.operands}
            for start in range(0, self.full[0] if 0 not in self.full else 0, self._block_rows):
                rows = slice(start, min(start + self._block_rows, self.full[0]))
                values = self._block(number, rows, operands, known)
                calls += [_call(v, values, values[v]) for v in each.steps]
                for v, total in totals.items():
                    shape = (rows.stop - start, *self.full[1:-1], total.shape[-1])
                    calls.append((_add_columns, (_broadcast(values[v.inputs[0]], shape), total)))
                if not totals:
                    calls += self._taken(values, rows, sinks, last)
            for v, total in totals.items():
                if v.name == "col_mean":
                    count = max(1, math.prod(self.full[:-1]))
                    calls.append((np.divide, (total, count, total)))
                known[v] = total
        whole = slice(0, self.full[0])
        return calls + self._taken(known, whole, sinks, set(self.roots) - last)

    def _taken(
        self, values: Arrays, rows: slice, sinks: Sequence[Sink], wanted: Collection[Instruction]
    ) -> list[Call]:
        return [
            sink(values[root], rows)
            for root, target, sink in zip(self.roots, self._targets, sinks, strict=True)
            if root in wanted and (target is None or self._direct.get(root) != target)
        ]

    def _block(
        self, number: int, rows: slice, operands: Sequence[Any], known: Arrays
    ) -> dict[Instruction, np.ndarray]:
        """The array of each value in block `rows` of pass `number`: a scratch buffer or a view.

        `known` has the arrays of values that are computed before the blocks.
        """
        each = self._passes[number]
        size = rows.stop - rows.start
        if (frame := self._frames.get((number, size))) is None:
            frame = {v: self._register(v, size, n) for v, n in each.registers.items()}
            self._frames[number, size] = frame
        values = {**known, **frame}
        for v in each.operands:
            array = operands[v.number]
            values[v] = array[rows] if len(array) == self.full[0] else array
        for v, target in self._direct.items():
            values[v] = operands[target][rows]
        return values

    def _register(self, v: Instruction, rows: int, index: int) -> np.ndarray:
        shape, dtype = self.shape(v), v.type.held
        shape = (min(rows, shape[0]), *shape[1:])
        size = math.prod(shape) * dtype.itemsize
        if size > REGISTER_BYTES:
            return np.empty(shape, dtype)
        return register(index)[:size].view(dtype).reshape(shape)


@functools.lru_cache(maxsize=1024)
def _lowered(
    exprs: tuple[Expr, ...], types: tuple[Type, ...]
) -> tuple[Sequence[Instruction], Sequence[Instruction]]:
    """(instruction of each of `exprs`, all that they need); types[n - 1] is the type of _n."""
    lowering = Lowering(types, TARGET)
    roots = [lowering.lower(expr) for expr in exprs]
    return roots, used(lowering.instructions, roots)


def _is_number(v: Instruction) -> bool:
    return v.kind is Kind.OPERAND and v.type.is_weak


def _is_step(v: Instruction) -> bool:
    return v.kind in (Kind.CAST, Kind.APPLY, Kind.REDUCE_ROW)


def _broadcast(part: np.ndarray, shape: Shape) -> np.ndarray:
    return part if part.shape == shape else np.broadcast_to(part, shape)


def _call(v: Instruction, values: Arrays, out: np.ndarray) -> Call:
    """The NumPy call that computes value `v` into `out`; `values` has the arrays of its inputs."""
    arguments = [values[i] for i in v.inputs]
    if v.name in ("max", "min") and v.inputs[-1].kind is Kind.CONSTANT:
        if out.size >= _SPLAT_FROM and out.nbytes <= REGISTER_BYTES:
            constant = arguments[-1]
            whole = repeated_constant(constant.tobytes(), constant.dtype)
            arguments[-1] = whole[: out.size].reshape(out.shape)
    return function_of(v), (*arguments, out)

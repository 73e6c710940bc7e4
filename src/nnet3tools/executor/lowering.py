"""Lowering of commands to steps: callables whose operands are views of the arena.

A table gives the lowering function of each command class. Classes without work at run time have
`HAS_WORK = False` and no lowering function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.executor.bound_program import BoundProgram, Step
from nnet3tools.nnet.components.base import Array, BackpropArgs, Component, Properties
from nnet3tools.program.command import Command
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Backprop,
    BackpropNoModelUpdate,
    CompressMatrix,
    CopyRows,
    CopyRowsMulti,
    CopyToRowsMulti,
    DecompressMatrix,
    MatrixAdd,
    MatrixCopy,
    MultiCommand,
    Propagate,
    SetConst,
)
from nnet3tools.tensor import recording
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.operators.compress import compress, decompress

C = TypeVar("C", bound=Command)

_scaled = tensor.element("_1 = _2 * _3")

Lowering = Callable[[BoundProgram, int, C], Step | None]

_LOWERINGS: dict[type[Command], Callable[..., Step | None]] = {}


def lowers(cls: type[C]) -> Callable[[Lowering[C]], Lowering[C]]:
    """Decorator that registers the function which makes steps to run commands of class `cls`."""

    def register(function: Lowering[C]) -> Lowering[C]:
        _LOWERINGS[cls] = function
        return function

    return register


def lower_command(program: BoundProgram, c: int) -> Step | None:
    """The step that runs command number `c` of a program; None if the command has no work.

    ProgramError if the command has work, but no function makes steps for its class.
    """
    command = program.computation.commands[c]
    if not command.HAS_WORK:
        return None
    if (function := _LOWERINGS.get(type(command))) is None:
        raise ProgramError(f"command c{c}, {command!r}, has work but no lowering")
    return function(program, c, command)


def lower_moves(program: BoundProgram) -> list[Step]:
    """Steps that copy a looped program's matrices to where the next round of the loop has them.

    The result is the same as if all copies were made at once.
    """
    pairs = [(program.block(m.source), program.block(m.dest)) for m in program.plan.moves]
    overwritten = {m.dest for m in program.plan.moves}
    copies: list[tuple[Array, Array]] = [(dest, source) for source, dest in pairs]
    if not overwritten.isdisjoint(m.source for m in program.plan.moves):
        saved = [tensor.empty(source.shape, like=source) for source, _ in pairs]
        first = [(place, source) for place, (source, _) in zip(saved, pairs, strict=True)]
        copies = [*first, *((dest, s) for s, (_, dest) in zip(saved, pairs, strict=True))]
    return [_call(tensor.copy, dest, source) for dest, source in copies]


def _call(operator: Any, *operands: Any) -> Step:
    """A step that calls an operator; UnsupportedOperator if the device has no such operator."""
    if hasattr(operator, "binder"):
        operator.binder(operands[0])
    return partial(operator, *operands)


def _then_scale(step: Step, dest: Array, alpha: float) -> Step:
    if alpha == 1.0:
        return step

    def run() -> None:
        step()
        tensor.scale(dest, alpha)

    return run


# -- components


@lowers(Propagate)
def _propagate(program: BoundProgram, c: int, command: Propagate) -> Step:
    component = program.nnet.component(command.component)
    indexes = program.precomputed(command.precomputed)
    in_value = program.optional_view(c, command.input)
    out_value = program.view(c, command.output)
    stats: Component | None = None
    if command.store_stats and program.nnet_to_store_stats is not None:
        stats = program.nnet_to_store_stats.component(command.component)
    if stats is None and not command.memo:
        return partial(component.infer, indexes, in_value, out_value)
    # After an in-place Propagate the input is overwritten, so statistics get None.
    stats_input = None if command.input == command.output else in_value
    memos, memo_number = program.memos, command.memo

    def propagate() -> None:
        memo = component.propagate(indexes, in_value, out_value)
        if stats is not None:
            stats.store_stats(stats_input, out_value, memo)
        if memo_number:
            recording.act(partial(memos.__setitem__, memo_number, memo))

    return propagate


@lowers(BackpropNoModelUpdate)
@lowers(Backprop)
def _backprop(program: BoundProgram, c: int, command: Backprop) -> Step:
    component = program.nnet.component(command.component)
    update = program.parts.get(c, c)
    is_first_part = update != c and update not in program.sums
    if is_first_part:
        program.sums[update] = tensor.empty(component.sums_shape, program.arena, np.float64)
    sums = program.sums.get(update)
    args = BackpropArgs(
        program.nnet.component_names[command.component],
        program.precomputed(command.precomputed),
        program.optional_view(c, command.in_value),
        program.optional_view(c, command.out_value),
        program.view(c, command.out_deriv),
        sums,
        _component_to_update(program, command),
        program.optional_view(c, command.in_deriv),
    )
    if is_first_part:
        return in_turn([partial(tensor.fill, sums, 0.0), partial(component.backprop, args)])
    if not command.memo:
        return partial(component.backprop, args)
    memos, memo_number = program.memos, command.memo

    def backprop() -> None:
        component.backprop(args._replace(memo=memos.pop(memo_number)))

    return backprop


def _component_to_update(program: BoundProgram, command: Backprop) -> Component | None:
    if not command.UPDATES:
        return None
    properties = program.nnet.component(command.component).properties
    if not properties & Properties.UPDATABLE:
        # Some components without parameters store statistics in backprop.
        nnet = program.nnet_to_store_stats
    elif program.computation.need_model_derivative:
        if program.nnet_to_update is None:
            raise ProgramError(
                "the program computes a model derivative: a network for it is needed"
            )
        nnet = program.nnet_to_update
    else:
        nnet = None
    return None if nnet is None else nnet.component(command.component)


# -- matrices


@lowers(SetConst)
def _set_const(program: BoundProgram, c: int, command: SetConst) -> Step:
    return _call(tensor.fill, program.view(c, command.submatrix), command.value)


@lowers(MatrixCopy)
def _matrix_copy(program: BoundProgram, c: int, command: MatrixCopy) -> Step:
    dest, src = program.view(c, command.dest), program.view(c, command.src)
    submatrices = program.computation.submatrices
    if submatrices[command.dest] == submatrices[command.src]:
        return _call(tensor.scale, dest, command.alpha)
    if command.alpha != 1.0:
        return _call(_scaled, dest, src, command.alpha)
    return _call(tensor.copy, dest, src)


@lowers(MatrixAdd)
def _matrix_add(program: BoundProgram, c: int, command: MatrixAdd) -> Step:
    dest, src = program.view(c, command.dest), program.view(c, command.src)
    return _call(tensor.add, dest, src, command.alpha)


# -- rows


@lowers(CopyRows)
def _copy_rows(program: BoundProgram, c: int, command: CopyRows) -> Step:
    dest, src = program.view(c, command.dest), program.view(c, command.src)
    rows = program.computation.indexes[command.indexes]
    return _then_scale(_call(tensor.copy_rows, dest, src, rows), dest, command.alpha)


@lowers(AddRows)
def _add_rows(program: BoundProgram, c: int, command: AddRows) -> Step:
    dest, src = program.view(c, command.dest), program.view(c, command.src)
    rows = program.computation.indexes[command.indexes]
    return _call(tensor.add_rows, dest, src, rows, command.alpha)


_MULTI_OPERATORS: dict[type[MultiCommand], Any] = {
    CopyRowsMulti: tensor.copy_rows_multi,
    AddRowsMulti: tensor.add_rows_multi,
    CopyToRowsMulti: tensor.copy_to_rows_multi,
    AddToRowsMulti: tensor.add_to_rows_multi,
}


def _multi(program: BoundProgram, c: int, command: MultiCommand) -> Step:
    pairs = program.computation.indexes_multi[command.indexes_multi]
    distinct, which = np.unique(pairs[:, 0], return_inverse=True)
    missing = int((distinct < 0).sum())  # -1, where present, sorts first
    others = [program.view(c, s) for s in distinct[missing:].tolist()]
    indexes = (which - missing).astype(np.int32), np.ascontiguousarray(pairs[:, 1])
    own = program.view(c, getattr(command, command.OWN))
    operator = _MULTI_OPERATORS[type(command)]
    if command.ADDS:
        return _call(operator, own, others, *indexes, command.alpha)
    return _then_scale(_call(operator, own, others, *indexes), own, command.alpha)


_LOWERINGS |= dict.fromkeys(_MULTI_OPERATORS, _multi)


@lowers(AddRowRanges)
def _add_row_ranges(program: BoundProgram, c: int, command: AddRowRanges) -> Step:
    dest, src = program.view(c, command.dest), program.view(c, command.src)
    ranges = program.computation.indexes_ranges[command.indexes_ranges]
    return _call(tensor.add_row_ranges, dest, src, ranges, command.alpha)


# -- compression


def _recoding(program: BoundProgram, c: int, submatrix: int) -> tuple[Array, Array] | None:
    """(matrix before, matrix after) command `c`, which compresses or decompresses `submatrix`.

    None if the memory plan ignores this command, as it may if compressing loses precision.
    """
    matrix = program.computation.matrix_of(submatrix)
    before, after = program.plan.before(c, matrix), program.plan.after(c, matrix)
    return None if before == after else (program.block(before), program.block(after))


@lowers(CompressMatrix)
def _compress(program: BoundProgram, c: int, command: CompressMatrix) -> Step | None:
    if (found := _recoding(program, c, command.submatrix)) is None:
        return None
    return _call(compress, found[1], found[0], command.range)


@lowers(DecompressMatrix)
def _decompress(program: BoundProgram, c: int, command: DecompressMatrix) -> Step | None:
    if (found := _recoding(program, c, command.submatrix)) is None:
        return None
    matrix = program.computation.matrix_of(command.submatrix)
    compressed = next(
        other
        for other in reversed(program.computation.commands[:c])
        if isinstance(other, CompressMatrix)
        and program.computation.matrix_of(other.submatrix) == matrix
    )
    return _call(decompress, found[1], found[0], compressed.range)

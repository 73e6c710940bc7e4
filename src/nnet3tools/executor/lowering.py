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
from nnet3tools.executor.binding import Binding
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Properties,
)
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
    Propagate,
    SetConst,
)
from nnet3tools.tensor import recording
from nnet3tools.tensor.operators.compress import compress, decompress

Step = Callable[[], object]
C = TypeVar("C", bound=Command)

_scaled = tensor.element("_1 = _2 * _3")

Lowering = Callable[[Binding, int, C], Step | None]

_LOWERINGS: dict[type[Command], Callable[..., Step | None]] = {}


def lowers(cls: type[C]) -> Callable[[Lowering[C]], Lowering[C]]:
    """Decorator that registers the lowering function of a command class."""

    def register(function: Lowering[C]) -> Lowering[C]:
        _LOWERINGS[cls] = function
        return function

    return register


def lower_command(binding: Binding, c: int) -> Step | None:
    """The step that runs command `c`; None if it has no work.

    ProgramError if its class has work but no lowering function.
    """
    command = binding.computation.commands[c]
    if not command.HAS_WORK:
        return None
    if (function := _LOWERINGS.get(type(command))) is None:
        raise ProgramError(f"command c{c}, {command!r}, has work but no lowering")
    return function(binding, c, command)


def lower_moves(binding: Binding) -> list[Step]:
    """Steps that move matrices at the goto of a looped program, as if all moved at once."""
    pairs = [(binding.block(m.source), binding.block(m.dest)) for m in binding.plan.moves]
    overwritten = {m.dest for m in binding.plan.moves}
    copies: list[tuple[Array, Array]] = [(dest, source) for source, dest in pairs]
    if not overwritten.isdisjoint(m.source for m in binding.plan.moves):
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
def _propagate(binding: Binding, c: int, command: Propagate) -> Step:
    component = binding.nnet.component(command.component)
    indexes = binding.precomputed(command.precomputed)
    in_value = binding.optional_view(c, command.input)
    out_value = binding.view(c, command.output)
    stats = _stats_component(binding, command)
    if stats is None and not command.memo:
        return partial(component.infer, indexes, in_value, out_value)
    # After an in-place Propagate the input is overwritten, so statistics get None.
    stats_input = None if command.input == command.output else in_value
    memos, memo_number = binding.memos, command.memo

    def propagate() -> None:
        memo = component.propagate(indexes, in_value, out_value)
        if stats is not None:
            stats.store_stats(stats_input, out_value, memo)
        if memo_number:
            recording.act(partial(memos.__setitem__, memo_number, memo))

    return propagate


def _stats_component(binding: Binding, command: Propagate) -> Component | None:
    if not command.store_stats or binding.nnet_to_store_stats is None:
        return None
    return binding.nnet_to_store_stats.component(command.component)


@lowers(BackpropNoModelUpdate)
@lowers(Backprop)
def _backprop(binding: Binding, c: int, command: Backprop) -> Step:
    component = binding.nnet.component(command.component)
    args = BackpropArgs(
        binding.nnet.component_names[command.component],
        binding.precomputed(command.precomputed),
        binding.optional_view(c, command.in_value),
        binding.optional_view(c, command.out_value),
        binding.view(c, command.out_deriv),
        None,
        _component_to_update(binding, command),
        binding.optional_view(c, command.in_deriv),
    )
    if not command.memo:
        return partial(component.backprop, args)
    memos, memo_number = binding.memos, command.memo

    def backprop() -> None:
        component.backprop(args._replace(memo=memos.pop(memo_number)))

    return backprop


def _component_to_update(binding: Binding, command: Backprop) -> Component | None:
    if not command.UPDATES:
        return None
    properties = binding.nnet.component(command.component).properties
    if not properties & Properties.UPDATABLE:
        # Some components without parameters store statistics in backprop.
        nnet = binding.nnet_to_store_stats
    elif binding.computation.need_model_derivative:
        if binding.nnet_to_update is None:
            raise ProgramError(
                "the program computes a model derivative: a network for it is needed"
            )
        nnet = binding.nnet_to_update
    else:
        nnet = None
    return None if nnet is None else nnet.component(command.component)


# -- matrices


@lowers(SetConst)
def _set_const(binding: Binding, c: int, command: SetConst) -> Step:
    return _call(tensor.fill, binding.view(c, command.submatrix), command.value)


@lowers(MatrixCopy)
def _matrix_copy(binding: Binding, c: int, command: MatrixCopy) -> Step:
    dest, src = binding.view(c, command.dest), binding.view(c, command.src)
    submatrices = binding.computation.submatrices
    if submatrices[command.dest] == submatrices[command.src]:
        return _call(tensor.scale, dest, command.alpha)
    if command.alpha != 1.0:
        return _call(_scaled, dest, src, command.alpha)
    return _call(tensor.copy, dest, src)


@lowers(MatrixAdd)
def _matrix_add(binding: Binding, c: int, command: MatrixAdd) -> Step:
    dest, src = binding.view(c, command.dest), binding.view(c, command.src)
    return _call(tensor.add, dest, src, command.alpha)


# -- rows


@lowers(CopyRows)
def _copy_rows(binding: Binding, c: int, command: CopyRows) -> Step:
    dest, src = binding.view(c, command.dest), binding.view(c, command.src)
    rows = binding.computation.indexes[command.indexes]
    return _then_scale(_call(tensor.copy_rows, dest, src, rows), dest, command.alpha)


@lowers(AddRows)
def _add_rows(binding: Binding, c: int, command: AddRows) -> Step:
    dest, src = binding.view(c, command.dest), binding.view(c, command.src)
    rows = binding.computation.indexes[command.indexes]
    return _call(tensor.add_rows, dest, src, rows, command.alpha)


def _multi_operands(
    binding: Binding, c: int, indexes_multi: int
) -> tuple[list[Array], Array, Array]:
    """Operands of a Multi command: submatrices; which of them each row uses; its row there."""
    pairs = binding.computation.indexes_multi[indexes_multi]
    distinct, which = np.unique(pairs[:, 0], return_inverse=True)
    missing = int((distinct < 0).sum())  # -1, where present, sorts first
    views = [binding.view(c, s) for s in distinct[missing:].tolist()]
    return views, (which - missing).astype(np.int32), np.ascontiguousarray(pairs[:, 1])


@lowers(CopyRowsMulti)
def _copy_rows_multi(binding: Binding, c: int, command: CopyRowsMulti) -> Step:
    dest = binding.view(c, command.dest)
    step = _call(tensor.copy_rows_multi, dest, *_multi_operands(binding, c, command.indexes_multi))
    return _then_scale(step, dest, command.alpha)


@lowers(AddRowsMulti)
def _add_rows_multi(binding: Binding, c: int, command: AddRowsMulti) -> Step:
    operands = _multi_operands(binding, c, command.indexes_multi)
    return _call(tensor.add_rows_multi, binding.view(c, command.dest), *operands, command.alpha)


@lowers(CopyToRowsMulti)
def _copy_to_rows_multi(binding: Binding, c: int, command: CopyToRowsMulti) -> Step:
    operands = _multi_operands(binding, c, command.indexes_multi)
    return _call(tensor.copy_to_rows_multi, binding.view(c, command.src), *operands)


@lowers(AddToRowsMulti)
def _add_to_rows_multi(binding: Binding, c: int, command: AddToRowsMulti) -> Step:
    operands = _multi_operands(binding, c, command.indexes_multi)
    return _call(tensor.add_to_rows_multi, binding.view(c, command.src), *operands, command.alpha)


@lowers(AddRowRanges)
def _add_row_ranges(binding: Binding, c: int, command: AddRowRanges) -> Step:
    dest, src = binding.view(c, command.dest), binding.view(c, command.src)
    ranges = binding.computation.indexes_ranges[command.indexes_ranges]
    return _call(tensor.add_row_ranges, dest, src, ranges, command.alpha)


# -- compression


def _recoding(binding: Binding, c: int, submatrix: int) -> tuple[Array, Array] | None:
    """The whole matrix before and after (de)compression; None if the plan ignores command `c`."""
    matrix = binding.computation.matrix_of(submatrix)
    before, after = binding.plan.before(c, matrix), binding.plan.after(c, matrix)
    return None if before == after else (binding.block(before), binding.block(after))


@lowers(CompressMatrix)
def _compress(binding: Binding, c: int, command: CompressMatrix) -> Step | None:
    if (found := _recoding(binding, c, command.submatrix)) is None:
        return None
    return _call(compress, found[1], found[0], command.range, command.truncate)


@lowers(DecompressMatrix)
def _decompress(binding: Binding, c: int, command: DecompressMatrix) -> Step | None:
    if (found := _recoding(binding, c, command.submatrix)) is None:
        return None
    matrix = binding.computation.matrix_of(command.submatrix)
    compressed = next(
        other
        for other in reversed(binding.computation.commands[:c])
        if isinstance(other, CompressMatrix)
        and binding.computation.matrix_of(other.submatrix) == matrix
    )
    return _call(decompress, found[1], found[0], compressed.range)

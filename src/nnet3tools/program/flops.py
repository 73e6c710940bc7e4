"""Floating-point operations of a program's commands, counted from sizes alone.

Conventions: an addition, a multiplication, a comparison and a function such as exp or tanh of one
element count 1 each, so that a matrix product (N x K) (K x M) counts 2 N K M. Moving numbers counts
nothing. Counts are those of the mathematics, not of a clever implementation; natural gradient is
in them, component statistics and the objective are not.

Every command class has its formula here, and every component class whose cost is not the default
of its base class; a new class is added with one `register`.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnet3tools.nnet.components.attention import RestrictedAttentionComponent
from nnet3tools.nnet.components.base import Component, PrecomputedIndexes, UpdatableComponent
from nnet3tools.nnet.components.batchnorm import BatchNormComponent
from nnet3tools.nnet.components.block_affine import RepeatedAffineComponent
from nnet3tools.nnet.components.columns import (
    ElementwiseProductComponent,
    PermuteComponent,
    SumBlockComponent,
)
from nnet3tools.nnet.components.composite import CompositeComponent
from nnet3tools.nnet.components.convolution import ConvolutionComponent
from nnet3tools.nnet.components.distribute import DistributeComponent
from nnet3tools.nnet.components.fixed import FixedAffineComponent
from nnet3tools.nnet.components.groups import PnormComponent, SumGroupComponent
from nnet3tools.nnet.components.gru import GruNonlinearityComponent
from nnet3tools.nnet.components.lstm import LstmNonlinearityComponent
from nnet3tools.nnet.components.maxpooling import MaxpoolingComponent
from nnet3tools.nnet.components.noop import NoOpComponent
from nnet3tools.nnet.components.normalize import NormalizeComponent
from nnet3tools.nnet.components.output_gru import OutputGruNonlinearityComponent
from nnet3tools.nnet.components.softmax import LogSoftmaxComponent, SoftmaxComponent
from nnet3tools.nnet.components.statistics_extraction import StatisticsExtractionComponent
from nnet3tools.nnet.components.statistics_pooling import StatisticsPoolingComponent
from nnet3tools.nnet.components.time_height_convolution import TimeHeightConvolutionComponent
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.program.command import Command
from nnet3tools.program.commands import (
    AddRowRanges,
    AddRows,
    AddRowsMulti,
    AddToRowsMulti,
    Backprop,
    CompressMatrix,
    CopyRows,
    CopyRowsMulti,
    DecompressMatrix,
    MatrixAdd,
    MatrixCopy,
    Propagate,
)
from nnet3tools.program.computation import Computation

__all__ = ["backprop_flops", "command_flops", "program_flops", "propagate_flops"]

Indexes = PrecomputedIndexes | None


def program_flops(computation: Computation, nnet: Nnet) -> NDArray[np.int64]:
    """Operations of each command, shape (commands,)."""
    counts = [command_flops(command, computation, nnet) for command in computation.commands]
    return np.array(counts, np.int64)


# -- components: forward, for a number of output rows


@functools.singledispatch
def propagate_flops(component: Component, rows: int, indexes: Indexes) -> int:
    """Operations to compute `rows` output rows; by default one for each element."""
    return rows * component.output_dim


_register: Any = propagate_flops.register


@_register
def _(component: UpdatableComponent, rows: int, indexes: Indexes) -> int:
    """A matrix of parameters is a product, a vector of them one operation an element."""
    shapes = [p.shape for p in component.parameters().values()]
    products = sum(2 * rows * shape[0] * shape[1] for shape in shapes if len(shape) == 2)
    return products + sum(rows * component.output_dim for shape in shapes if len(shape) == 1)


@_register
def _(component: FixedAffineComponent, rows: int, indexes: Indexes) -> int:
    return rows * (2 * component.input_dim + 1) * component.output_dim


@_register
def _(component: RepeatedAffineComponent, rows: int, indexes: Indexes) -> int:
    """The one block is applied to each part of the input."""
    return rows * (2 * component.linear_params.shape[1] + 1) * component.output_dim


@_register
def _(component: ConvolutionComponent, rows: int, indexes: Indexes) -> int:
    """Every output is the dot product of a filter with a patch, plus a bias."""
    filter_dim = next(iter(component.parameters().values())).shape[1]
    return rows * (2 * filter_dim + 1) * component.output_dim


@_register
def _(component: TimeHeightConvolutionComponent, rows: int, indexes: Indexes) -> int:
    """As above; patches run over time offsets, heights and input filters (padding counts)."""
    return rows * (2 * component.linear_params.shape[1] + 1) * component.output_dim


@_register
def _(component: CompositeComponent, rows: int, indexes: Indexes) -> int:
    return sum(propagate_flops(part, rows, None) for part in component.components)


@_register
def _(component: LstmNonlinearityComponent, rows: int, indexes: Indexes) -> int:
    """A cell: three gates of peephole, sum and sigmoid (9), two tanh, c (3) and m (1)."""
    return rows * component.output_dim // 2 * 15


@_register
def _(component: GruNonlinearityComponent, rows: int, indexes: Indexes) -> int:
    """The product with w_h; a cell: two sigmoids, r * s, sum, tanh, and h's interpolation (4)."""
    return (
        2 * rows * component.w_h.shape[0] * component.w_h.shape[1] + 9 * rows * component.cell_dim
    )


@_register
def _(component: OutputGruNonlinearityComponent, rows: int, indexes: Indexes) -> int:
    """A cell: sigmoid, w * c, sum, tanh, and the interpolation (4)."""
    return 8 * rows * component.cell_dim


@_register
def _(component: RestrictedAttentionComponent, rows: int, indexes: Indexes) -> int:
    """Each head and frame of the window: q.k, its position's bias, softmax (4), weight * value."""
    o = component.options
    return rows * o.num_heads * o.context_dim * (2 * o.key_dim + 2 * o.value_dim + 5)


@_register(SoftmaxComponent)
@_register(LogSoftmaxComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """Maximum, difference, exp, sum, quotient."""
    return 5 * rows * component.output_dim


@_register(BatchNormComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """Sum and sum of squares (3), subtract the mean, scale."""
    return 5 * rows * component.input_dim


@_register(NormalizeComponent)
@_register(PnormComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """Power, sum, and the scaling or root."""
    return 3 * rows * component.input_dim


@_register(SumGroupComponent)
@_register(SumBlockComponent)
@_register(ElementwiseProductComponent)
@_register(MaxpoolingComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """One for each input."""
    return rows * component.input_dim


@_register(NoOpComponent)
@_register(PermuteComponent)
@_register(DistributeComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """Only moves."""
    return 0


@_register(StatisticsExtractionComponent)
@_register(StatisticsPoolingComponent)
def _(component: Component, rows: int, indexes: Indexes) -> int:
    """Each output is the sum of a range of rows (squares apart: they are done once a row)."""
    forward = getattr(indexes, "forward", None)
    summed = rows if forward is None else int((forward[:, 1] - forward[:, 0]).sum())
    return summed * component.output_dim


# -- components: backward


def backprop_flops(
    component: Component, rows: int, indexes: Indexes, wants_input: bool, updates: bool
) -> int:
    """Operations of the backward pass of `rows` output rows.

    Where there are parameters, the input derivative and the parameters' each cost what the forward
    pass costs; elsewhere the input derivative costs twice that (derivative of the function, times
    the output's). Natural gradient comes on top.
    """
    forward = propagate_flops(component, rows, indexes)
    if not isinstance(component, UpdatableComponent):
        return 2 * forward if wants_input else 0
    total = forward * (int(wants_input) + int(updates))
    return total + _natural_gradient_flops(component, rows) if updates else total


def _natural_gradient_flops(component: Component, rows: int) -> int:
    """For inputs and output derivatives of matrix parameters (see nnet/natural_gradient.py)."""
    if isinstance(component, CompositeComponent):
        return sum(_natural_gradient_flops(part, rows) for part in component.components)
    if not getattr(component, "use_natural_gradient", True):
        return 0
    first = getattr(component, "preconditioner_in", None)
    second = getattr(component, "preconditioner_out", None)
    matrices = [p for p in component.parameters().values() if p.ndim == 2]  # type: ignore[attr-defined]
    if first is None or second is None or not matrices:
        return 0
    num_out, num_in = matrices[0].shape
    vectors = rows * component.output_dim // num_out  # more than rows where parameters are shared
    return _precondition(first, vectors, num_in + 1) + _precondition(second, vectors, num_out)


def _precondition(estimate: OnlineNaturalGradient, rows: int, dim: int) -> int:
    """H = X W^T and X -= H W always; J = H^T X and the new W (rank^2) once in a period."""
    rank = min(estimate.rank, max(1, dim - 1))
    product = 2 * rows * rank * dim
    return 2 * product + (product + 2 * rank * rank * dim) // max(1, estimate.update_period)


# -- commands


@functools.singledispatch
def command_flops(command: Command, computation: Computation, nnet: Nnet) -> int:
    """Operations of one command; none unless its class says otherwise."""
    return 0


def _size(computation: Computation, submatrix: int) -> int:
    info = computation.submatrices[submatrix]
    return info.num_rows * info.num_cols


def _scaled(command: Any) -> int:
    return int(command.alpha != 1.0)


@command_flops.register
def _(command: MatrixCopy, computation: Computation, nnet: Nnet) -> int:
    return _scaled(command) * _size(computation, command.dest)


@command_flops.register
def _(command: MatrixAdd, computation: Computation, nnet: Nnet) -> int:
    return (1 + _scaled(command)) * _size(computation, command.dest)


@command_flops.register(CopyRows)
@command_flops.register(AddRows)
def _(command: CopyRows | AddRows, computation: Computation, nnet: Nnet) -> int:
    moved = int((computation.indexes[command.indexes] >= 0).sum())
    per_element = _scaled(command) + isinstance(command, AddRows)
    return per_element * moved * computation.submatrices[command.dest].num_cols


@command_flops.register(CopyRowsMulti)
@command_flops.register(AddRowsMulti)
@command_flops.register(AddToRowsMulti)
def _(command: Any, computation: Computation, nnet: Nnet) -> int:
    moved = int((computation.indexes_multi[command.indexes_multi][:, 0] >= 0).sum())
    per_element = _scaled(command) + (not isinstance(command, CopyRowsMulti))
    return per_element * moved * computation.submatrices[getattr(command, command.OWN)].num_cols


@command_flops.register
def _(command: AddRowRanges, computation: Computation, nnet: Nnet) -> int:
    ranges = computation.indexes_ranges[command.indexes_ranges]
    summed = int((ranges[:, 1] - ranges[:, 0]).sum())
    return (1 + _scaled(command)) * summed * computation.submatrices[command.dest].num_cols


@command_flops.register(CompressMatrix)
@command_flops.register(DecompressMatrix)
def _(command: CompressMatrix | DecompressMatrix, computation: Computation, nnet: Nnet) -> int:
    return _size(computation, command.submatrix)


def _precomputed(computation: Computation, index: int) -> Indexes:
    return computation.component_precomputed_indexes[index].data


@command_flops.register
def _(command: Propagate, computation: Computation, nnet: Nnet) -> int:
    rows = computation.submatrices[command.output].num_rows
    indexes = _precomputed(computation, command.precomputed)
    return propagate_flops(nnet.component(command.component), rows, indexes)


@command_flops.register
def _(command: Backprop, computation: Computation, nnet: Nnet) -> int:
    rows = computation.submatrices[command.out_deriv].num_rows
    indexes = _precomputed(computation, command.precomputed)
    updates = command.UPDATES and computation.need_model_derivative
    component = nnet.component(command.component)
    return backprop_flops(component, rows, indexes, bool(command.in_deriv), updates)

"""Components: properties, propagate, backprop, cost, and (if not simple) their indexes.

The interface is Kaldi's (nnet-component-itf.h) with index arrays in place of single Indexes. A
component lives in one class in one family file, is registered by `@register` under its Kaldi type
name, and does its maths with `nnet3tools.tensor` operators only, so that it runs on any device.
"""

from __future__ import annotations

import copy
import enum
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np

from nnet3tools.nnet.components.declared import Declared
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray

if TYPE_CHECKING:
    from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

__all__ = [
    "Array",
    "BackpropArgs",
    "BatchStatisticsComponent",
    "Component",
    "DropoutBase",
    "Indexes",
    "InputlessComponent",
    "Memo",
    "PrecomputedIndexes",
    "Properties",
    "RandomComponent",
]

Array = Any
"""A matrix or vector on some device: numpy.ndarray or cupy.ndarray (views allowed)."""

Memo = Any
"""Whatever a forward pass leaves for the backward pass; None unless USES_MEMO."""


class Properties(enum.IntFlag):
    """Kaldi's ComponentProperties, same bits."""

    SIMPLE = 0x001
    UPDATABLE = 0x002
    PROPAGATE_IN_PLACE = 0x004
    PROPAGATE_ADDS = 0x008
    REORDERS_INDEXES = 0x010
    BACKPROP_ADDS = 0x020
    BACKPROP_NEEDS_INPUT = 0x040
    BACKPROP_NEEDS_OUTPUT = 0x080
    BACKPROP_IN_PLACE = 0x100
    STORES_STATS = 0x200
    INPUT_CONTIGUOUS = 0x400
    OUTPUT_CONTIGUOUS = 0x800
    USES_MEMO = 0x1000
    RANDOM = 0x2000


class PrecomputedIndexes(Declared):
    """Facts of input and output indexes that a non-simple component works out once per program.

    `type_name` is Kaldi's Type(), without angle brackets; it is stored in program files.
    """

    HAS_SETTINGS: ClassVar[bool] = False

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        """Whether these can be for this component with these numbers of rows.

        Must not miss what would run over. The component is of the type that makes these.
        """
        return True


Indexes: TypeAlias = PrecomputedIndexes | None
"""The precomputed indexes of a call; None for simple components."""


class BackpropArgs(NamedTuple):
    """The operands of one backward pass through a component."""

    debug_info: str
    """The component's name, for error messages."""
    indexes: Indexes
    in_value: Array | None
    """(input rows, input_dim); None unless BACKPROP_NEEDS_INPUT."""
    out_value: Array | None
    """(output rows, output_dim); None unless BACKPROP_NEEDS_OUTPUT."""
    out_deriv: Array
    """(output rows, output_dim): the objective's derivative by the output."""
    memo: Memo
    """The return value of `propagate`."""
    to_update: Component | None
    """Takes the parameters' change, or their gradient; may be the component itself."""
    in_deriv: Array | None
    """(input rows, input_dim): set (added to if BACKPROP_ADDS); may be `out_deriv` in place."""


class Component(Declared):
    """A function from an input matrix to an output matrix; may hold parameters and statistics.

    Its attributes are declared as fields (field.py, fields.py, array_fields.py); files, config
    lines, info lines, sums and moves between devices follow from these.
    """

    PROPERTIES: ClassVar[Properties]
    """The flags of all instances, for classes that do not work them out in `properties`."""
    INFO = "input_dim output_dim"
    backprop_reads_signs_only: ClassVar[bool] = False
    """Whether backprop asks of the output only where it is positive: a byte an element will do."""

    @property
    def input_dim(self) -> int:
        """Columns of the input matrix; `dim`, if there is such a field."""
        dim: int = self.dim  # type: ignore[attr-defined]
        return dim

    @property
    def output_dim(self) -> int:
        """Columns of the output matrix; `dim`, if there is such a field."""
        dim: int = self.dim  # type: ignore[attr-defined]
        return dim

    @property
    def properties(self) -> Properties:
        """The flags of this instance (they may depend on its configuration)."""
        return self.PROPERTIES

    @property
    def couples_rows(self) -> bool:
        """Whether a row of the output may depend on rows that are there for other utterances."""
        return False

    @property
    def input_matrix(self) -> Array | None:
        """The matrix of a linear, affine or convolutional map of the input; None for others."""
        return None

    def preconditioners(self) -> list[tuple[OnlineNaturalGradient, int]]:
        """The natural-gradient estimates, each with the dimension of what it preconditions."""
        return [pair for field in self.FIELDS for pair in field.preconditioners(self)]

    def copy(self) -> Self:
        """An independent copy: parameters and statistics included."""
        return copy.deepcopy(self)

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Compute `out_value` (rows x output_dim), in place, from `in_value` (rows x input_dim).

        Adds to `out_value` if PROPAGATE_ADDS, else sets it. `out_value` may be `in_value` if
        PROPAGATE_IN_PLACE. Returns a memo if USES_MEMO, else None.
        """
        raise NotImplementedError

    def infer(self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array) -> None:
        """As `propagate`, where nothing will be propagated back: for cheaper ways without memos."""
        self.propagate(indexes, in_value, out_value)

    def backprop(self, args: BackpropArgs) -> None:
        """Propagate derivatives back to `args.in_deriv`, and update `args.to_update`."""
        raise NotImplementedError

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Accumulate statistics over a minibatch (only called if STORES_STATS)."""

    def zero_stats(self) -> None:
        """Forget the statistics."""
        for field in self.FIELDS:
            field.zero_stats(self)

    def scale(self, scale: float) -> None:
        """Multiply parameters and statistics; scale 0 means setting zero, even where NaN stood."""
        for field in self.FIELDS:
            field.scale(self, scale)

    def add(self, alpha: float, other: Component) -> None:
        """Add alpha times another component of the same shape: parameters and statistics."""
        for field in self.FIELDS:
            field.add(self, alpha, other)

    # -- cost

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Operations to compute `rows` output rows; here one for each element.

        An addition, multiplication, comparison or function such as exp of one element counts 1, so
        that a matrix product (N x K) (K x M) counts 2 N K M; moving numbers counts nothing. Counts
        are those of the mathematics, not of a clever implementation.
        """
        return rows * self.output_dim

    def backprop_flops(self, rows: int, indexes: Indexes, wants_input: bool, updates: bool) -> int:
        """Operations of the backward pass of `rows` output rows.

        The input derivative costs twice the forward pass: the function's derivative, times the
        output's.
        """
        return 2 * self.propagate_flops(rows, indexes) if wants_input else 0

    # -- indexes; what is here is right for simple components

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        """Inputs that each output could use, as CSR: (indexes (M, 3), offsets (N + 1,)).

        Row i of `output_indexes` depends on indexes[offsets[i]:offsets[i + 1]].
        """
        return output_indexes, np.arange(len(output_indexes) + 1, dtype=np.int32)

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Which outputs can be computed given which of their inputs are available; what they use.

        `inputs` and `offsets` are what `input_indexes(outputs)` gave, `available` (M,) says
        which of them exist. Returns (computable (N,), used (M,)); nothing is used by a row that is
        not computable. Here: every input is required.
        """
        missing = np.concatenate([[0], np.cumsum(~available)])
        computable = missing[offsets[1:]] == missing[offsets[:-1]]
        return computable, np.repeat(computable, np.diff(offsets))

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """The order (and padding with t = NO_TIME) this component wants its rows in.

        Only called if REORDERS_INDEXES. Raises RequestError for indexes it cannot work with.
        """
        return input_indexes, output_indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> PrecomputedIndexes | None:
        """The facts of the rows that propagate and backprop need; None for simple components."""
        return None


class InputlessComponent(Component):
    """A component whose output needs no input, whatever the indexes (not a simple one)."""

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        none = np.zeros(len(output_indexes) + 1, np.int32)
        return np.empty((0, 3), np.int32), none

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        return np.ones(len(outputs), np.bool_), np.zeros(0, np.bool_)


class RandomComponent(Component):
    """A component that draws random numbers unless `test_mode` is set (dropout and its kin)."""

    test_mode: bool


class DropoutBase(RandomComponent):
    """A random component with a proportion that a schedule of dropout or an edit may change."""

    dropout_proportion: float

    @property
    def average_scale(self) -> float | None:
        """The number that stands for it where a model is collapsed; None if none can."""
        return None


class BatchStatisticsComponent(Component):
    """A component that uses each minibatch's statistics, or in test mode stored ones (batch norm).

    `count` is the number of rows that the stored statistics come from.
    """

    count: float

    def set_test_mode(self, test_mode: bool) -> None:
        """Use the stored statistics from here on, or each minibatch's."""
        raise NotImplementedError

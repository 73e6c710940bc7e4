"""Base classes of components: properties, propagate, backprop, cost, and indexes.

The interface is Kaldi's (nnet-component-itf.h) with index arrays in place of single Indexes. A
component is one class in a family file. `@register` registers it under its Kaldi type name. Its
mathematics uses `nnet3tools.tensor` operators only, so that it runs on any device.
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
    from nnet3tools.tensor.number import Tally

Array = Any
"""A matrix or vector on any device: numpy.ndarray or cupy.ndarray, also a view."""

Memo = Any
"""Data from a forward pass for the backward pass; None unless USES_MEMO."""


class Properties(enum.IntFlag):
    """Flags of a component that the compiler and optimizer use, with the bits of Kaldi's."""

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
    IN_PLACE = PROPAGATE_IN_PLACE | BACKPROP_IN_PLACE
    CONTIGUOUS = INPUT_CONTIGUOUS | OUTPUT_CONTIGUOUS


class PrecomputedIndexes(Declared):
    """Data that a non-simple component computes from input and output indexes, once per program.

    `type_name` is Kaldi's Type(), without angle brackets; program files store it. The data never
    change, so no recorded run becomes invalid (HAS_SETTINGS is False).
    """

    HAS_SETTINGS: ClassVar[bool] = False

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        """Whether `component`, of the data's type, can safely use the data for so many rows.

        Must return False if any access to the input and output rows would be out of bounds.
        """
        return True


Indexes: TypeAlias = PrecomputedIndexes | None
"""The precomputed indexes for a call; None for simple components."""


class BackpropArgs(NamedTuple):
    """The arguments of a component's `backprop`.

    `out_deriv` and `in_deriv` are derivatives of the objective at output and input; `in_deriv` is
    computed. `memo` is from `propagate`. `to_update` receives the parameters' change or gradient,
    and may be the component itself. `debug_info` is the component's name, for messages.
    """

    debug_info: str
    """The component's name, for error messages."""
    indexes: Indexes
    in_value: Array
    """(input rows, input_dim); None unless BACKPROP_NEEDS_INPUT."""
    out_value: Array
    """(output rows, output_dim); None unless BACKPROP_NEEDS_OUTPUT."""
    out_deriv: Array
    """(output rows, output_dim): derivative of the objective with respect to the output."""
    memo: Memo
    """The return value of `propagate`, or sums (see `Component.sums_shape`)."""
    to_update: Component | None
    """Receives the parameter change or gradient; may be the component itself."""
    in_deriv: Array
    """(input rows, input_dim): set, or added to if BACKPROP_ADDS; may be `out_deriv` (in place).

    None only for updatable components, if no derivative is needed at their input.
    """


class Component(Declared):
    """A function from an input matrix to an output matrix, with parameters and statistics.

    Attributes are declared as fields (field.py, fields.py, array_fields.py), from which files,
    config lines, info lines, sums and moves between devices follow. A subclass declares its
    PROPERTIES; FLAGS adds to them those that follow from its methods and base classes (IMPLIED).
    FORMULA is the output y for input x, for users. `flops_per_input` is the number of operations
    for an input element; None: 1 for an output element. `backprop_reads_signs_only`: of the output,
    backprop needs only signs.
    """

    PROPERTIES: ClassVar[Properties] = Properties(0)
    IMPLIED: ClassVar[Properties] = Properties(0)
    """The flags of all instances of all subclasses."""
    FLAGS: ClassVar[Properties]
    INFO = "input_dim output_dim"
    FORMULA: ClassVar[str] = ""
    flops_per_input: ClassVar[int | None] = None
    backprop_reads_signs_only: ClassVar[bool] = False

    def __init_subclass__(cls, **named: Any) -> None:
        """Set FLAGS (Properties); the SIMPLE, REORDERS_ and STORES_ ones by overridden methods."""
        super().__init_subclass__(**named)
        cls.FLAGS = cls.PROPERTIES | cls.IMPLIED
        base = Component
        if (cls.input_indexes, cls.precompute_indexes) == (
            base.input_indexes,
            base.precompute_indexes,
        ):
            cls.FLAGS |= Properties.SIMPLE
        if cls.reorder_indexes is not base.reorder_indexes:
            cls.FLAGS |= Properties.REORDERS_INDEXES
        if cls.store_stats is not base.store_stats:
            cls.FLAGS |= Properties.STORES_STATS

    @property
    def sums_shape(self) -> tuple[int, ...]:
        """The shape of the sums over rows that are all an update needs; empty if it needs more.

        A `backprop` of some rows, without `to_update`, adds to the sums (float64) that it gets as
        `memo`. A later one of all rows, without `in_deriv`, updates from them.
        """
        return ()

    @property
    def is_quantized(self) -> bool:
        """Whether weights are integers or packed: they cannot be trained or merged with others."""
        return False

    @property
    def input_dim(self) -> int:
        """Number of columns of the input; by default of `input_matrix`, or the field `dim`."""
        matrix = self.input_matrix
        return self.dim if matrix is None else int(matrix.shape[1])  # type: ignore[attr-defined]

    @property
    def output_dim(self) -> int:
        """Number of columns of the output; by default rows of `input_matrix`, or field `dim`."""
        matrix = self.input_matrix
        return self.dim if matrix is None else int(matrix.shape[0])  # type: ignore[attr-defined]

    @property
    def properties(self) -> Properties:
        """The property flags of this component, which may depend on its configuration."""
        return self.FLAGS

    @property
    def indexes_type(self) -> str:
        """The type name of precomputed indexes for this component, which is Kaldi's."""
        return f"{self.type_name}PrecomputedIndexes"

    @property
    def couples_rows(self) -> bool:
        """Whether an output row may depend on the rows of other utterances in the batch."""
        return False

    @property
    def input_matrix(self) -> Array | None:
        """The matrix of a linear, affine or convolutional map; None for other components."""
        return None

    def preconditioners(self) -> list[tuple[OnlineNaturalGradient, int]]:
        """The natural-gradient estimates, each with the number of columns that it preconditions."""
        return [pair for field in self.FIELDS for pair in field.preconditioners(self)]

    def copy(self) -> Self:
        """Make an independent copy of the component with its parameters and statistics."""
        return copy.deepcopy(self)

    # -- running

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Compute `out_value` (rows x output_dim) from `in_value` (rows x input_dim).

        Adds to `out_value` if PROPAGATE_ADDS, else sets it. `out_value` may be `in_value` if
        PROPAGATE_IN_PLACE. Returns a memo if USES_MEMO, else None.
        """
        raise NotImplementedError

    def infer(self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array) -> None:
        """Compute `out_value` like `propagate`, if there will be no backward pass."""
        self.propagate(indexes, in_value, out_value)

    def backprop(self, args: BackpropArgs) -> None:
        """Compute the input derivative `args.in_deriv` and update `args.to_update`."""
        raise NotImplementedError

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Add a minibatch to the statistics (if STORES_STATS); `memo` is from `propagate`."""

    def zero_stats(self) -> None:
        """Set the statistics that the component keeps about training data to zero."""
        for field in self.FIELDS:
            field.zero_stats(self)

    def scale(self, scale: float) -> None:
        """Multiply parameters and statistics by `scale`; 0 sets zero, even in place of NaN."""
        for field in self.FIELDS:
            field.scale(self, scale)

    def add(self, alpha: float, other: Component) -> None:
        """Add alpha times the parameters and statistics of `other`, of the same shape."""
        for field in self.FIELDS:
            field.add(self, alpha, other)

    # -- cost

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations for `rows` output rows; by default from `flops_per_input`.

        An addition, multiplication, comparison or function such as exp of one element counts 1, so
        a matrix product (N x K) (K x M) counts 2 N K M. Moves count 0. The counts are those of the
        mathematics, not of an optimized implementation.
        """
        if self.flops_per_input is None:
            return rows * self.output_dim
        return self.flops_per_input * rows * self.input_dim

    def backprop_flops(self, rows: int, indexes: Indexes, wants_input: bool, updates: bool) -> int:
        """Number of operations of the backward pass for `rows` output rows.

        `wants_input`: it computes the input derivative. `updates`: it updates parameters. By
        default the input derivative takes twice the operations of the forward pass.
        """
        return 2 * self.propagate_flops(rows, indexes) if wants_input else 0

    # indexes (defaults for simple components)

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        """Inputs that each output may use, in CSR form: (indexes (M, 3), offsets (N + 1,)).

        Row i of `output_indexes` depends on indexes[offsets[i]:offsets[i + 1]].
        """
        return output_indexes, np.arange(len(output_indexes) + 1, dtype=np.int32)

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Which outputs are computable from the available inputs, and the inputs that they use.

        `inputs` and `offsets` are from `input_indexes(outputs)`; `available` (M,) says which inputs
        exist. Returns (computable (N,), used (M,)). An output that is not computable uses no input.
        By default every input is required.
        """
        missing = np.concatenate([[0], np.cumsum(~available)])
        computable = missing[offsets[1:]] == missing[offsets[:-1]]
        return computable, np.repeat(computable, np.diff(offsets))

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        """Reorder input and output Indexes, and pad them with t = NO_TIME, as the component needs.

        Only called if REORDERS_INDEXES. RequestError for indexes that it cannot process.
        """
        return input_indexes, output_indexes

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> PrecomputedIndexes | None:
        """Data that `propagate` and, if `need_backprop`, `backprop` need; None if there is none."""
        return None


class InputlessComponent(Component):
    """A (non-simple) component whose output depends on no input."""

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        none = np.zeros(len(output_indexes) + 1, np.int32)
        return np.empty((0, 3), np.int32), none

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        return np.ones(len(outputs), np.bool_), np.zeros(0, np.bool_)


class RandomComponent(Component):
    """A component that draws random numbers unless `test_mode` is set, such as dropout."""

    IMPLIED = Properties.RANDOM
    test_mode: bool


class DropoutBase(RandomComponent):
    """A random component with a `dropout_proportion`, which a schedule or an edit may change."""

    dropout_proportion: float

    @property
    def average_scale(self) -> float | None:
        """The constant factor that replaces dropout in a collapsed model; None if no factor can."""
        return None


class BatchStatisticsComponent(Component):
    """A component that uses statistics of each minibatch or, in test mode, stored ones.

    `count` is the number of rows in the stored statistics.
    """

    count: Tally

    def set_test_mode(self, test_mode: bool) -> None:
        """Use the stored statistics (True) or those of each minibatch (False) from now on."""
        raise NotImplementedError

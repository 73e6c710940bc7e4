"""RestrictedAttentionComponent: attention over a few frames to the left and right.

From Kaldi's nnet-attention-component.cc and attention.cc. For each head the input has a key, a
value and a query; the query ends with one bias for each position of the window. On a regular grid
of rows, a position of all windows is a range of input rows, shifted by a constant:

    b[r, k] = key_scale * query[r] . key[r + k * shift] + bias[r, k]
    c = softmax(b) over k
    out[r] = sum over k of c[r, k] * value[r + k * shift], then c[r] if output_context
"""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError, RequestError
from nnet3tools.nnet.components.array_fields import Count, Statistic
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.declared import Part
from nnet3tools.nnet.components.fields import Flag, Float, Int
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.regular_grid import TimeGrid, grid_of, indexes_on_grid
from nnet3tools.nnet.components.time_windows import at_shifts, used_if_required
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray
from nnet3tools.tensor import recording
from nnet3tools.tensor.operators.windows import add_to_windows, add_weighted_windows, window_dots
from nnet3tools.tensor.settings import begin_settings

_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_entropies = tensor.aggregate("_1", "sum", axis=1)
_entropy_of_rows = tensor.aggregate("-_1 * log(max(_1, 1e-20))", "sum", axis=0)


@register_precomputed
class AttentionIndexes(PrecomputedIndexes):
    """Precomputed indexes of an attention component: the regular time grid of its rows."""

    type_name: ClassVar[str] = "RestrictedAttentionComponentPrecomputedIndexes"

    grid = Part(TimeGrid, "<Io>")

    def problem(self) -> str | None:
        grid = self.grid
        good = grid.t_step_in == grid.t_step_out > 0 and grid.start_t_in <= grid.start_t_out
        good = good and (grid.start_t_out - grid.start_t_in) % grid.t_step_in == 0
        return None if good else "bad grid of times"

    @property
    def rows_left(self) -> int:
        """Number of input rows with times before the first output time."""
        grid = self.grid
        return (grid.start_t_out - grid.start_t_in) // grid.t_step_in * grid.num_images

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        grid = self.grid
        rows = grid.num_t_in * grid.num_images, grid.num_t_out * grid.num_images
        return (
            isinstance(component, RestrictedAttentionComponent)
            and component.sees_all_of(grid)
            and (num_inputs, num_outputs) == rows
        )


class _Parts(NamedTuple):
    """Keys, values, queries and biases in an input or its derivative: views (rows, heads, dim)."""

    keys: Array
    values: Array
    queries: Array
    biases: Array


@register
class RestrictedAttentionComponent(Component):
    """Attention with `num_heads` heads over `num_left_inputs` + 1 + `num_right_inputs` frames.

    An output is computable if the required inputs are; other missing inputs of the window read as
    zero. If `output_context`, the attention weights are appended to the output.
    """

    FORMULA = (
        "y(t) = sum of c_s value(s) over s, c = softmax over s of (key-scale query(t) key(s) "
        "+ bias_s(t))"
    )
    KEYS = (
        "num-left-inputs-required=num-left-inputs num-right-inputs-required=num-right-inputs "
        "key-scale=1/sqrt(key-dim)"
    )
    PROPERTIES = (
        Properties.BACKPROP_NEEDS_INPUT
        | Properties.PROPAGATE_ADDS
        | Properties.BACKPROP_ADDS
        | Properties.USES_MEMO
    )
    INFO = (
        Component.INFO + " num_heads time_stride key_dim value_dim num_left_inputs num_right_inputs"
        " context_dim num_left_inputs_required num_right_inputs_required output_context key_scale"
    )

    num_heads = Int("<NumHeads>", "num-heads", 1, positive=True)
    key_dim = Int("<KeyDim>", "key-dim", positive=True)
    value_dim = Int("<ValueDim>", "value-dim", positive=True)
    num_left_inputs = Int("<NumLeftInputs>", "num-left-inputs")
    num_right_inputs = Int("<NumRightInputs>", "num-right-inputs")
    time_stride = Int("<TimeStride>", "time-stride", 1, positive=True)
    """Difference in time between successive frames of a window."""
    num_left_inputs_required = Int("<NumLeftInputsRequired>", "num-left-inputs-required", -1)
    num_right_inputs_required = Int("<NumRightInputsRequired>", "num-right-inputs-required", -1)
    output_context = Flag("<OutputContext>", "output-context", True)
    key_scale = Float("<KeyScale>", "key-scale", -1.0)
    stats_count = Count("<StatsCount>")
    entropy_stats = Statistic("<EntropyStats>")
    """Shape (num_heads,)."""
    posterior_stats = Statistic("<PosteriorStats>", ndim=2)
    """Shape (num_heads, context_dim)."""

    @property
    def context_dim(self) -> int:
        """Number of frames that an output frame attends to."""
        return self.num_left_inputs + 1 + self.num_right_inputs

    @property
    def input_dim(self) -> int:
        return self.num_heads * (2 * self.key_dim + self.value_dim + self.context_dim)

    @property
    def output_dim(self) -> int:
        return self.num_heads * (self.value_dim + self.output_context * self.context_dim)

    # -- creation and files

    def init_from_config(self, line: ConfigLine) -> None:
        """Set unset options: all context is required, key-scale is 1 / sqrt(key_dim)."""
        if self.num_left_inputs_required < 0:
            self.num_left_inputs_required = self.num_left_inputs
        if self.num_right_inputs_required < 0:
            self.num_right_inputs_required = self.num_right_inputs
        if self.key_scale < 0.0:
            self.key_scale = 1.0 / math.sqrt(self.key_dim)

    def problem(self) -> str | None:
        left, right = self.num_left_inputs, self.num_right_inputs
        if left < 0 or right < 0 or left + right == 0:
            return "num-left-inputs and num-right-inputs must not be negative, nor both 0"
        if not 0 <= self.num_left_inputs_required <= left:
            return f"num-left-inputs-required must be in 0..{left}"
        if not 0 <= self.num_right_inputs_required <= right:
            return f"num-right-inputs-required must be in 0..{right}"
        if not 0.0 < self.key_scale <= 1.0:
            return f"key-scale must be in (0, 1], found {self.key_scale:g}"
        shape = self.num_heads, self.context_dim
        shapes = [s.shape for s in (self.entropy_stats, self.posterior_stats) if s is not None]
        good = not shapes or shapes == [shape[:1], shape]
        return None if good else f"statistics must be {shape[:1]} and {shape}"

    def info(self) -> str:
        text = super().info()
        if self.entropy_stats is None or self.stats_count.is_zero():
            return text
        entropies = tensor.to_host(self.entropy_stats)
        text += ", entropy=" + "".join(f"{e / self.stats_count:g}," for e in entropies)
        for head, posteriors in enumerate(tensor.to_host(self.posterior_stats)[:5]):
            numbers = "".join(f"{p / self.stats_count:g}," for p in posteriors)
            text += f" posterior-stats[{head}]={numbers}"
        return f"{text} stats-count={self.stats_count:g}"

    # -- running

    def _by_heads(self, matrix: Array) -> Array:
        """The matrix as a view (rows, heads, columns of a head)."""
        return matrix.reshape(matrix.shape[0], self.num_heads, -1)

    def _parts(self, matrix: Array, indexes: AttentionIndexes, num_rows: int) -> _Parts:
        """Keys and values of all rows of `matrix`; queries and biases of `num_rows` output rows."""
        heads = self._by_heads(matrix)
        key, value = self.key_dim, self.key_dim + self.value_dim
        queries = heads[indexes.rows_left : indexes.rows_left + num_rows, :, value:]
        return _Parts(
            heads[:, :, :key], heads[:, :, key:value], queries[:, :, :key], queries[:, :, key:]
        )

    def _shift(self, in_matrix: Array, out_matrix: Array) -> int:
        """Number of input rows from one attended frame to the next, found from the matrix sizes."""
        extra = in_matrix.shape[0] - out_matrix.shape[0]
        shift, remainder = divmod(extra, self.context_dim - 1)
        if shift < 1 or remainder:
            raise ProgramError(f"attention given {in_matrix.shape} for {out_matrix.shape}")
        return shift

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations; per head and frame: q.k, bias, 4 of softmax, weight * value."""
        per_frame = 2 * self.key_dim + 2 * self.value_dim + 5
        return rows * self.num_heads * self.context_dim * per_frame

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Compute the output; the memo is the attention weights (rows, heads * context_dim)."""
        assert isinstance(indexes, AttentionIndexes)
        num_rows, shift = out_value.shape[0], self._shift(in_value, out_value)
        parts = self._parts(in_value, indexes, num_rows)
        c = tensor.persistent_array((num_rows, self.num_heads * self.context_dim), like=out_value)
        c_heads = self._by_heads(c)
        window_dots(c_heads, parts.queries, parts.keys, shift, self.key_scale)
        tensor.add(c_heads, parts.biases)
        rows = c.reshape(-1, self.context_dim)
        tensor.softmax(rows, rows)
        out = self._by_heads(out_value)
        add_weighted_windows(out[:, :, : self.value_dim], parts.values, c_heads, shift)
        if self.output_context:
            tensor.add(out[:, :, self.value_dim :], c_heads)
        return c

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, AttentionIndexes)
        num_rows, shift = args.out_deriv.shape[0], self._shift(args.in_deriv, args.out_deriv)
        value, deriv = (
            self._parts(m, args.indexes, num_rows) for m in (args.in_value, args.in_deriv)
        )
        out = self._by_heads(args.out_deriv)
        out_values = out[:, :, : self.value_dim]
        c: Array = args.memo
        with tensor.scratch(c.shape, like=c) as b_deriv:
            b_heads, b_rows = self._by_heads(b_deriv), b_deriv.reshape(-1, self.context_dim)
            window_dots(b_heads, out_values, value.values, shift)
            if self.output_context:
                tensor.add(b_heads, out[:, :, self.value_dim :])
            tensor.softmax_backprop(b_rows, c.reshape(-1, self.context_dim), b_rows)
            tensor.add(deriv.biases, b_heads)
            add_weighted_windows(deriv.queries, value.keys, b_heads, shift, self.key_scale)
            add_to_windows(deriv.keys, value.queries, b_heads, shift, self.key_scale)
        add_to_windows(deriv.values, out_values, self._by_heads(c), shift)

    # -- statistics

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Add the weights `memo`, and entropies by head, to sums, with probability 2/3."""
        c: Array = memo
        shape = self.num_heads, self.context_dim
        recording.prepare(c, lambda: self.entropy_stats is None, partial(self._make_room, c))
        with recording.optional(lambda: tensor.random.rand_int(0, 2) != 0, c) as is_now:
            if not is_now:
                return
            _sum_rows(self.posterior_stats.reshape(-1), c, beta=1.0)
            with tensor.scratch(c.shape[1], like=c, dtype=np.float64) as entropies:
                _entropy_of_rows(entropies, c)
                _sum_entropies(self.entropy_stats, entropies.reshape(shape), beta=1.0)
            self.stats_count += c.shape[0]

    def _make_room(self, like: Array) -> None:
        entropies = tensor.zeros(self.num_heads, like=like, dtype=np.float64)
        posteriors = tensor.zeros((self.num_heads, self.context_dim), like=like, dtype=np.float64)
        begin_settings(self, entropy_stats=entropies, posterior_stats=posteriors)
        self.stats_count = 0.0

    # -- indexes

    def _places(self) -> IntArray:
        """Time offsets of the attended frames in units of time_stride, (context_dim,)."""
        return np.arange(-self.num_left_inputs, self.num_right_inputs + 1, dtype=np.int32)

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, self._places() * np.int32(self.time_stride))

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Flags: outputs, (N,), with all required inputs, and inputs, (M,), that they use.

        `available` (M,) flags existing inputs; output i may use inputs[offsets[i]:offsets[i + 1]].
        """
        places = self._places()
        required = (places >= -self.num_left_inputs_required) & (
            places <= self.num_right_inputs_required
        )
        return used_if_required(available, required)

    def sees_all_of(self, grid: TimeGrid) -> bool:
        """Whether the grid's input times are exactly the times that its outputs attend to."""
        stride = self.time_stride
        return (
            stride % grid.t_step_in == 0
            and grid.start_t_out - grid.start_t_in == stride * self.num_left_inputs
            and grid.last_t_in - grid.last_t_out == stride * self.num_right_inputs
        )

    def _grid(self, input_indexes: IndexArray, output_indexes: IndexArray) -> TimeGrid:
        """The time grid of inputs and outputs, with a common step that divides `time_stride`."""
        grid = grid_of(self.type_name, input_indexes, output_indexes)
        stride = self.time_stride
        steps = grid.t_step_in or stride, grid.t_step_out or stride
        step = math.gcd(*steps, stride)
        grid.num_t_in = 1 + steps[0] // step * (grid.num_t_in - 1)
        grid.num_t_out = 1 + steps[1] // step * (grid.num_t_out - 1)
        grid.t_step_in = grid.t_step_out = step
        first = grid.start_t_out - stride * self.num_left_inputs
        last = grid.last_t_out + stride * self.num_right_inputs
        first_required = grid.start_t_out - stride * self.num_left_inputs_required
        last_required = grid.last_t_out + stride * self.num_right_inputs_required
        if not (
            first <= grid.start_t_in <= first_required
            and last_required <= grid.last_t_in <= last
            and (grid.start_t_in - first) % step == 0
        ):
            raise RequestError(
                f"RestrictedAttentionComponent cannot order its rows: for output times "
                f"{grid.start_t_out} to {grid.last_t_out} it wants input times from {first} to "
                f"{last} and must have {first_required} to {last_required}, in steps of {step}, "
                f"found {grid.start_t_in} to {grid.last_t_in}"
            )
        grid.start_t_in, grid.num_t_in = first, 1 + (last - first) // step
        return grid

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        grid = self._grid(input_indexes, output_indexes)
        return indexes_on_grid(self.type_name, grid, input_indexes, output_indexes)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> AttentionIndexes:
        return AttentionIndexes(grid=self._grid(input_indexes, output_indexes))

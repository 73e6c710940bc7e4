"""RestrictedAttentionComponent: attention over a few frames to the left and right.

Kaldi's nnet-attention-component.cc and attention.cc. For each head the input has a key, a value
and a query; the query ends with one bias for each place of the window. With rows on a regular grid,
the places of all windows are row ranges of the input at a fixed shift:

    b[r, k] = key_scale * query[r] . key[r + k * shift] + bias[r, k]
    c = softmax(b) over k
    out[r] = sum over k of c[r, k] * value[r + k * shift], then c[r] if output_context
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError, RequestError
from nnet3tools.nnet.components.attention_options import AttentionOptions
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import (
    read_field,
    require,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.regular_grid import TimeGrid, grid_of, indexes_on_grid
from nnet3tools.nnet.components.time_windows import at_shifts, used_if_required
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray
from nnet3tools.tensor import host
from nnet3tools.tensor.counter import Counter
from nnet3tools.tensor.windows import add_to_windows, add_weighted_windows, window_dots

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["AttentionIndexes", "RestrictedAttentionComponent"]

_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_entropies = tensor.aggregate("_1", "sum", axis=1)
_entropy_of_rows = tensor.aggregate("-_1 * log(max(_1, 1e-20))", "sum", axis=0)


@register_precomputed
class AttentionIndexes(PrecomputedIndexes):
    """The grid of times that the rows stand on."""

    type_name: ClassVar[str] = "RestrictedAttentionComponentPrecomputedIndexes"

    def __init__(self, grid: TimeGrid) -> None:
        self.grid = grid

    @property
    def rows_left(self) -> int:
        """Input rows before the first output time."""
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

    @classmethod
    def read(cls, reader: Reader) -> Self:
        reader.expect_token("<Io>")
        grid = TimeGrid.read(reader)
        reader.expect_token(f"</{cls.type_name}>")
        good = grid.t_step_in == grid.t_step_out > 0 and grid.start_t_in <= grid.start_t_out
        good = good and (grid.start_t_out - grid.start_t_in) % grid.t_step_in == 0
        require(reader, good, f"bad grid of times in <{cls.type_name}>")
        return cls(grid)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<Io>")
        self.grid.write(writer)
        writer.write_token(f"</{self.type_name}>")


class _Parts(NamedTuple):
    """Views (rows, heads, dim) of the input, or of its derivative."""

    keys: Array
    values: Array
    queries: Array
    biases: Array


@register
class RestrictedAttentionComponent(Component):
    """Attention with `num_heads` heads over `num_left_inputs` + 1 + `num_right_inputs` frames."""

    stats_count = Counter()

    def __init__(self, options: AttentionOptions) -> None:
        self.options = options
        self.stats_count = 0.0
        self.entropy_stats = np.empty(0, np.float64)
        self.posterior_stats = np.empty((0, 0), np.float64)

    @property
    def input_dim(self) -> int:
        options = self.options
        per_head = 2 * options.key_dim + options.value_dim + options.context_dim
        return options.num_heads * per_head

    @property
    def output_dim(self) -> int:
        options = self.options
        per_head = options.value_dim + options.output_context * options.context_dim
        return options.num_heads * per_head

    @property
    def properties(self) -> Properties:
        return (
            Properties.REORDERS_INDEXES
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.PROPAGATE_ADDS
            | Properties.BACKPROP_ADDS
            | Properties.STORES_STATS
            | Properties.USES_MEMO
        )

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        return cls(AttentionOptions.from_config(line))

    @classmethod
    def read(cls, reader: Reader) -> Self:
        self = cls(AttentionOptions.read(reader))
        self.stats_count = read_field(reader, "<StatsCount>", reader.read_double)
        reader.expect_token("<EntropyStats>")
        self.entropy_stats = reader.read_vector(np.float64)
        reader.expect_token("<PosteriorStats>")
        self.posterior_stats = reader.read_matrix(np.float64)
        reader.expect_token(f"</{cls.type_name}>")
        if self.entropy_stats.size or self.posterior_stats.size:
            shape = (self.options.num_heads, self.options.context_dim)
            good = self.entropy_stats.shape == shape[:1] and self.posterior_stats.shape == shape
            require(reader, good, f"{cls.type_name}: statistics must be {shape[:1]} and {shape}")
        return self

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        self.options.write(writer)
        write_double_field(writer, "<StatsCount>", self.stats_count)
        write_field(writer, "<EntropyStats>", self.entropy_stats)
        write_field(writer, "<PosteriorStats>", self.posterior_stats)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = f"{super().info()}, {self.options.info()}"
        if self.stats_count == 0.0:
            return text
        entropies = tensor.to_host(self.entropy_stats)
        text += ", entropy=" + "".join(f"{e / self.stats_count:g}," for e in entropies)
        for head, posteriors in enumerate(tensor.to_host(self.posterior_stats)[:5]):
            numbers = "".join(f"{p / self.stats_count:g}," for p in posteriors)
            text += f" posterior-stats[{head}]={numbers}"
        return f"{text} stats-count={self.stats_count:g}"

    # -- running

    def _by_heads(self, matrix: Array) -> Array:
        """A view (rows, heads, columns of a head)."""
        return matrix.reshape(matrix.shape[0], self.options.num_heads, -1)

    def _parts(self, matrix: Array, indexes: AttentionIndexes, num_rows: int) -> _Parts:
        """The input's parts; queries and biases only of the `num_rows` output rows."""
        heads = self._by_heads(matrix)
        key, value = self.options.key_dim, self.options.key_dim + self.options.value_dim
        queries = heads[indexes.rows_left : indexes.rows_left + num_rows, :, value:]
        return _Parts(
            heads[:, :, :key], heads[:, :, key:value], queries[:, :, :key], queries[:, :, key:]
        )

    def _shift(self, in_matrix: Array, out_matrix: Array) -> int:
        """Rows between the places of a window."""
        extra = in_matrix.shape[0] - out_matrix.shape[0]
        shift, remainder = divmod(extra, self.options.context_dim - 1)
        if shift < 1 or remainder:
            raise ProgramError(f"attention given {in_matrix.shape} for {out_matrix.shape}")
        return shift

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """A head and frame of the window: q.k, its position's bias, softmax (4), weight * value."""
        o = self.options
        return rows * o.num_heads * o.context_dim * (2 * o.key_dim + 2 * o.value_dim + 5)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Returns c, (rows, num_heads * context_dim), as memo."""
        assert isinstance(indexes, AttentionIndexes)
        num_rows, shift = out_value.shape[0], self._shift(in_value, out_value)
        parts = self._parts(in_value, indexes, num_rows)
        c = host.kept((num_rows, self.options.num_heads * self.options.context_dim), like=out_value)
        c_heads = self._by_heads(c)
        window_dots(c_heads, parts.queries, parts.keys, shift, self.options.key_scale)
        tensor.add(c_heads, parts.biases)
        rows = c.reshape(-1, self.options.context_dim)
        tensor.softmax(rows, rows)
        out = self._by_heads(out_value)
        add_weighted_windows(out[:, :, : self.options.value_dim], parts.values, c_heads, shift)
        if self.options.output_context:
            tensor.add(out[:, :, self.options.value_dim :], c_heads)
        return c

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, AttentionIndexes)
        if args.in_deriv is None:
            return
        num_rows, shift = args.out_deriv.shape[0], self._shift(args.in_deriv, args.out_deriv)
        value, deriv = (
            self._parts(m, args.indexes, num_rows) for m in (args.in_value, args.in_deriv)
        )
        out = self._by_heads(args.out_deriv)
        out_values = out[:, :, : self.options.value_dim]
        c: Array = args.memo
        with tensor.scratch(c.shape, like=c) as b_deriv:
            b_heads, b_rows = self._by_heads(b_deriv), b_deriv.reshape(-1, self.options.context_dim)
            window_dots(b_heads, out_values, value.values, shift)
            if self.options.output_context:
                tensor.add(b_heads, out[:, :, self.options.value_dim :])
            tensor.softmax_backprop(b_rows, c.reshape(-1, self.options.context_dim), b_rows)
            tensor.add(deriv.biases, b_heads)
            add_weighted_windows(deriv.queries, value.keys, b_heads, shift, self.options.key_scale)
            add_to_windows(deriv.keys, value.queries, b_heads, shift, self.options.key_scale)
        add_to_windows(deriv.values, out_values, self._by_heads(c), shift)

    # -- statistics

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Sum the attention weights and their entropy by head, for two in three minibatches."""
        c: Array = memo
        shape = (self.options.num_heads, self.options.context_dim)
        if host.decide(lambda: self.entropy_stats.shape != shape[:1]):
            host.not_capturable()
            self.entropy_stats = tensor.zeros(shape[0], like=c, dtype=np.float64)
            self.posterior_stats = tensor.zeros(shape, like=c, dtype=np.float64)
            self.stats_count = 0.0
        if host.decide(lambda: tensor.random.rand_int(0, 2) == 0):
            return
        _sum_rows(self.posterior_stats.reshape(-1), c, beta=1.0)
        with tensor.scratch(c.shape[1], like=c, dtype=np.float64) as entropies:
            _entropy_of_rows(entropies, c)
            _sum_entropies(self.entropy_stats, entropies.reshape(shape), beta=1.0)
        self.stats_count += c.shape[0]

    def zero_stats(self) -> None:
        self.stats_count = 0.0
        tensor.fill(self.entropy_stats, 0.0)
        tensor.fill(self.posterior_stats, 0.0)

    def scale(self, scale: float) -> None:
        if scale == 0.0:
            self.zero_stats()
            return
        self.stats_count *= scale
        tensor.scale(self.entropy_stats, scale)
        tensor.scale(self.posterior_stats, scale)

    def add(self, alpha: float, other: Component) -> None:
        assert isinstance(other, RestrictedAttentionComponent)
        if other.entropy_stats.size == 0:
            return
        if self.entropy_stats.size == 0:
            self.entropy_stats, self.posterior_stats = (
                tensor.zeros(s.shape, like=s) for s in (other.entropy_stats, other.posterior_stats)
            )
        if other.stats_count != 0.0:
            self.stats_count += alpha * other.stats_count
        tensor.add(self.entropy_stats, other.entropy_stats, alpha=alpha)
        tensor.add(self.posterior_stats, other.posterior_stats, alpha=alpha)

    # -- indexes

    def _places(self) -> IntArray:
        """Places of the window, in frames of time_stride: -num_left_inputs .. num_right_inputs."""
        return np.arange(
            -self.options.num_left_inputs, self.options.num_right_inputs + 1, dtype=np.int32
        )

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, self._places() * np.int32(self.options.time_stride))

    def computable(
        self,
        output_indexes: IndexArray,
        inputs: IndexArray,
        offsets: IntArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """Only the required places must be there; others that are missing read as zero."""
        places = self._places()
        required = (places >= -self.options.num_left_inputs_required) & (
            places <= self.options.num_right_inputs_required
        )
        return used_if_required(available, required)

    def sees_all_of(self, grid: TimeGrid) -> bool:
        """Whether the input times are those that the windows of all output times reach."""
        options, stride = self.options, self.options.time_stride
        return (
            stride % grid.t_step_in == 0
            and grid.start_t_out - grid.start_t_in == stride * options.num_left_inputs
            and grid.last_t_in - grid.last_t_out == stride * options.num_right_inputs
        )

    def _grid(self, input_indexes: IndexArray, output_indexes: IndexArray) -> TimeGrid:
        """One step for input and output that divides time_stride, and all requested context."""
        grid = grid_of(self.type_name, input_indexes, output_indexes)
        stride = self.options.time_stride
        steps = grid.t_step_in or stride, grid.t_step_out or stride
        step = math.gcd(*steps, stride)
        grid.num_t_in = 1 + steps[0] // step * (grid.num_t_in - 1)
        grid.num_t_out = 1 + steps[1] // step * (grid.num_t_out - 1)
        grid.t_step_in = grid.t_step_out = step
        first = grid.start_t_out - stride * self.options.num_left_inputs
        last = grid.last_t_out + stride * self.options.num_right_inputs
        first_required = grid.start_t_out - stride * self.options.num_left_inputs_required
        last_required = grid.last_t_out + stride * self.options.num_right_inputs_required
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
        return AttentionIndexes(self._grid(input_indexes, output_indexes))

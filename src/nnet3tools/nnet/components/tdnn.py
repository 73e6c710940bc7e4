"""TdnnComponent: an affine map of several frames, spliced inside the component.

Kaldi's nnet-tdnn-component.cc. The rows stand on a regular grid of times (regular_grid.py), so the
frames at one time offset are a strided view of the input, and no spliced copy is needed:

    out = bias + sum over offsets o of  in[at t + o] * linear_params[:, block of o]^T
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, ProgramError, RequestError
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    expect_either,
    get_positive,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.regular_grid import TimeGrid, grid_of, indexes_on_grid
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.components.time_windows import at_shifts
from nnet3tools.nnet.components.two_sided import two_sided_flops
from nnet3tools.nnet.indexes import IndexArray, IntArray
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["TdnnComponent", "TdnnIndexes"]

_set_rows = tensor.element("_1 = _2")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)


@register_precomputed
class TdnnIndexes(PrecomputedIndexes):
    """Where the frames of each time offset are: input rows offset, offset + stride, ..."""

    type_name: ClassVar[str] = "TdnnComponentPrecomputedIndexes"

    def __init__(self, row_stride: int, row_offsets: IntArray) -> None:
        self.row_stride, self.row_offsets = row_stride, row_offsets

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        end = int(self.row_offsets.max()) + self.row_stride * (num_outputs - 1) + 1
        return (
            isinstance(component, TdnnComponent)
            and len(self.row_offsets) == len(component.time_offsets)
            and end <= num_inputs
        )

    @classmethod
    def read(cls, reader: Reader) -> Self:
        row_stride = read_field(reader, "<RowStride>", reader.read_int32)
        row_offsets = read_field(reader, "<RowOffsets>", reader.read_int32_vector)
        reader.expect_token(f"</{cls.type_name}>")
        good = row_stride >= 1 and len(row_offsets) > 0 and not (row_offsets < 0).any()
        require(reader, good, f"bad row stride or offsets in <{cls.type_name}>")
        return cls(row_stride, row_offsets)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<RowStride>", self.row_stride)
        writer.write_token("<RowOffsets>")
        writer.write_int32_vector(self.row_offsets)
        writer.write_token(f"</{self.type_name}>")

    def part(self, rows: Array, i: int, num_rows: int) -> Array:
        """View of the `num_rows` input rows at the i'th time offset."""
        if i >= len(self.row_offsets):
            raise DataError(
                f"the program has {len(self.row_offsets)} time offsets for a TdnnComponent that "
                "has more: it was compiled for another network"
            )
        start = int(self.row_offsets[i])
        end = start + self.row_stride * (num_rows - 1) + 1
        if end > rows.shape[0]:
            raise ProgramError(f"TDNN needs input row {end - 1}, there are {rows.shape[0]}")
        return rows[start : end : self.row_stride]


@register
class TdnnComponent(UpdatableComponent):
    """Affine (or linear) function of the frames at `time_offsets` around the output's time.

    `linear_params` is (output_dim, len(time_offsets) * input_dim), `bias_params` (output_dim,) or
    empty. The trainer enforces `orthonormal_constraint`.
    """

    def __init__(
        self,
        time_offsets: list[int],
        linear_params: Array,
        bias_params: Array,
    ) -> None:
        self.time_offsets = time_offsets
        self.linear_params, self.bias_params = linear_params, bias_params
        self.orthonormal_constraint = 0.0
        self.use_natural_gradient = True
        self.preconditioner_in = OnlineNaturalGradient(20, 4)
        self.preconditioner_out = OnlineNaturalGradient(80, 4)

    @property
    def input_dim(self) -> int:
        return int(self.linear_params.shape[1]) // len(self.time_offsets)

    @property
    def output_dim(self) -> int:
        return int(self.linear_params.shape[0])

    @property
    def has_bias(self) -> bool:
        """Whether there is a bias; `use-bias=false` leaves it out."""
        return self.bias_params.size != 0

    @property
    def properties(self) -> Properties:
        """Without a bias there is nothing to set the output to, so it is added to."""
        flags = Properties.UPDATABLE | Properties.REORDERS_INDEXES | Properties.BACKPROP_ADDS
        flags |= Properties.BACKPROP_NEEDS_INPUT
        return flags if self.has_bias else flags | Properties.PROPAGATE_ADDS

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        time_offsets = line.get_int_list("time-offsets")
        input_dim, output_dim = get_positive(line, "input-dim"), get_positive(line, "output-dim")
        if not time_offsets or len(set(time_offsets)) != len(time_offsets):
            raise line.error("time-offsets must be a list of different integers")
        spliced_dim = input_dim * len(time_offsets)
        stddev = line.get_float("param-stddev", -1.0)
        if stddev < 0.0:
            stddev = 1.0 / math.sqrt(spliced_dim)
        linear_params = random_normal((output_dim, spliced_dim), stddev)
        bias_mean, bias_stddev = (
            line.get_float("bias-mean", 0.0),
            line.get_float("bias-stddev", 1.0),
        )
        if line.get_bool("use-bias", True):
            bias_params = random_normal((output_dim,), bias_stddev, bias_mean)
        else:  # nothing is drawn, so that the components after this one start as Kaldi's do
            bias_params = tensor.zeros((0,))
        self = cls(time_offsets, linear_params, bias_params)
        self.read_updatable_config(line)
        self.orthonormal_constraint = line.get_float("orthonormal-constraint", 0.0)
        self.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        rank_in, rank_out = line.get_int("rank-in", -1), line.get_int("rank-out", -1)
        self._set_preconditioners(
            rank_in if rank_in >= 0 else min(20, (spliced_dim + 1) // 2),
            rank_out if rank_out >= 0 else min(80, (output_dim + 1) // 2),
            line.get_float("alpha-in", 4.0),
            line.get_float("alpha-out", 4.0),
            line.get_float("num-samples-history", 2000.0),
        )
        if (problem := self._problem()) is not None:
            raise line.error(problem)
        return self

    def _set_preconditioners(
        self, rank_in: int, rank_out: int, alpha_in: float, alpha_out: float, history: float
    ) -> None:
        # Kaldi fixes the update period at 4: it is not configurable and not in files.
        self.preconditioner_in = OnlineNaturalGradient(rank_in, 4, history, alpha_in)
        self.preconditioner_out = OnlineNaturalGradient(rank_out, 4, history, alpha_out)

    def _problem(self) -> str | None:
        """What is inconsistent, in words, or None."""
        rows, cols = self.linear_params.shape
        if rows == 0 or not self.time_offsets:
            return "no parameters or no time-offsets"
        if len(set(self.time_offsets)) != len(self.time_offsets):
            return f"repeated time-offsets {self.time_offsets}"
        if cols % len(self.time_offsets) != 0:
            return f"{cols} parameter columns for {len(self.time_offsets)} time-offsets"
        if self.bias_params.size not in (0, rows):
            return f"bias of dimension {self.bias_params.size}, expected {rows}"
        return self.preconditioner_in.problem() or self.preconditioner_out.problem()

    @classmethod
    def read(cls, reader: Reader) -> Self:
        self = cls([0], tensor.zeros((0, 0)), tensor.zeros((0,)))
        self.read_updatable_common(reader)
        offsets = read_field(reader, "<TimeOffsets>", reader.read_int32_vector)
        self.time_offsets = [int(t) for t in offsets]
        self.linear_params = read_field(reader, "<LinearParams>", reader.read_matrix)
        self.bias_params = read_field(reader, "<BiasParams>", reader.read_vector)
        self.orthonormal_constraint = read_field(
            reader, "<OrthonormalConstraint>", reader.read_float
        )
        self.use_natural_gradient = read_field(reader, "<UseNaturalGradient>", reader.read_bool)
        history = read_field(reader, "<NumSamplesHistory>", reader.read_float)
        # <Alpha> with one value for both sides: a spelling that Kaldi still reads.
        has_both = reader.peek_token() == "<AlphaInOut>"
        expect_either(reader, "<AlphaInOut>", "<Alpha>")
        alpha_in = reader.read_float()
        alpha_out = reader.read_float() if has_both else alpha_in
        rank_in = read_field(reader, "<RankInOut>", reader.read_int32)
        self._set_preconditioners(rank_in, reader.read_int32(), alpha_in, alpha_out, history)
        reader.expect_token("</TdnnComponent>")
        problem = self._problem()
        require(reader, problem is None, f"TdnnComponent: {problem}")
        return self

    def write(self, writer: Writer) -> None:
        first, second = self.preconditioner_in, self.preconditioner_out
        self.write_updatable_common(writer)
        writer.write_token("<TimeOffsets>")
        writer.write_int32_vector(self.time_offsets)
        write_field(writer, "<LinearParams>", self.linear_params)
        write_field(writer, "<BiasParams>", self.bias_params)
        write_field(writer, "<OrthonormalConstraint>", float(self.orthonormal_constraint))
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        write_field(writer, "<NumSamplesHistory>", float(first.num_samples_history))
        write_field(writer, "<AlphaInOut>", float(first.alpha))
        writer.write_float(second.alpha)
        write_field(writer, "<RankInOut>", first.rank)
        writer.write_int32(second.rank)
        writer.write_token("</TdnnComponent>")

    def info(self) -> str:
        text = super().info()
        if self.orthonormal_constraint != 0.0:
            text += f", orthonormal-constraint={self.orthonormal_constraint:g}"
        text += ", time-offsets=" + ",".join(map(str, self.time_offsets))
        text += parameter_stats("linear-params", self.linear_params, include_norms=True)
        if self.has_bias:
            text += parameter_stats("bias", self.bias_params, include_mean=True)
        else:
            text += ", has-bias=false"
        if not self.use_natural_gradient:
            return text + ", use-natural-gradient=false"
        first, second = self.preconditioner_in, self.preconditioner_out
        return (
            f"{text}, rank-in={first.rank}, rank-out={second.rank}"
            f", num-samples-history={first.num_samples_history:g}"
            f", update-period={first.update_period}"
            f", alpha-in={first.alpha:g}, alpha-out={second.alpha:g}"
        )

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    def parameters(self) -> dict[str, Array]:
        parameters = {"linear_params": self.linear_params}
        if self.has_bias:
            parameters["bias_params"] = self.bias_params
        return parameters

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner_in.frozen = self.preconditioner_out.frozen = freeze

    # -- running

    def _params_part(self, i: int) -> Array:
        """View of the parameter columns of the i'th time offset."""
        dim = self.input_dim
        return self.linear_params[:, i * dim : (i + 1) * dim]

    def natural_gradient_flops(self, rows: int) -> int:
        return two_sided_flops(self, self.linear_params, rows) if self.use_natural_gradient else 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        """Add one matrix product per time offset to the bias (or to what `out_value` holds)."""
        assert isinstance(indexes, TdnnIndexes)
        if self.has_bias:
            _set_rows(out_value, self.bias_params)
        for i in range(len(self.time_offsets)):
            part = indexes.part(in_value, i, out_value.shape[0])
            tensor.prod(out_value, part, self._params_part(i), trans_b=True, beta=1.0)

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, TdnnIndexes)
        if args.in_deriv is not None:
            for i in range(len(self.time_offsets)):
                part = args.indexes.part(args.in_deriv, i, args.out_deriv.shape[0])
                tensor.prod(part, args.out_deriv, self._params_part(i), beta=1.0)
        if args.to_update is None:
            return
        assert isinstance(args.to_update, TdnnComponent)
        if args.to_update.learning_rate == 0.0:
            return
        if args.to_update.is_gradient or not args.to_update.use_natural_gradient:
            args.to_update._update_simple(args.indexes, args.in_value, args.out_deriv)
        else:
            args.to_update._update_natural_gradient(args.indexes, args.in_value, args.out_deriv)

    def _update_simple(self, indexes: TdnnIndexes, in_value: Array, out_deriv: Array) -> None:
        rate = self.learning_rate
        if self.has_bias:
            _sum_rows(self.bias_params, out_deriv, alpha=rate, beta=1.0)
        for i in range(len(self.time_offsets)):
            part = indexes.part(in_value, i, out_deriv.shape[0])
            tensor.prod(self._params_part(i), out_deriv, part, trans_a=True, alpha=rate, beta=1.0)

    def _update_natural_gradient(
        self, indexes: TdnnIndexes, in_value: Array, out_deriv: Array
    ) -> None:
        """Precondition spliced input (with a column of ones for the bias) and output derivative."""
        num_rows, dim = out_deriv.shape[0], self.input_dim
        spliced = dim * len(self.time_offsets)
        shape = (num_rows, spliced + (1 if self.has_bias else 0))
        with (
            tensor.scratch(shape, like=in_value) as in_temp,
            tensor.scratch(out_deriv.shape, like=out_deriv) as out_temp,
        ):
            if self.has_bias:
                tensor.fill(in_temp[:, spliced:], 1.0)
            for i in range(len(self.time_offsets)):
                part = indexes.part(in_value, i, num_rows)
                tensor.copy(in_temp[:, i * dim : (i + 1) * dim], part)
            tensor.copy(out_temp, out_deriv)
            rate = self.learning_rate * self.preconditioner_in.precondition(in_temp)
            rate *= self.preconditioner_out.precondition(out_temp)
            if self.has_bias:
                ones = in_temp[:, spliced:]  # what preconditioning made of the column of ones
                bias = self.bias_params.reshape(-1, 1)
                tensor.prod(bias, out_temp, ones, trans_a=True, alpha=rate, beta=1.0)
            linear_in = in_temp[:, :spliced]
            tensor.prod(self.linear_params, out_temp, linear_in, trans_a=True, alpha=rate, beta=1.0)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, np.array(self.time_offsets, np.int32))

    def _grid(self, input_indexes: IndexArray, output_indexes: IndexArray) -> TimeGrid:
        """A grid whose output step is a multiple of its input step."""
        grid = grid_of(self.type_name, input_indexes, output_indexes)
        if grid.t_step_out == 0:  # a single output time: any step does
            grid.t_step_in = grid.t_step_in or 1
            grid.t_step_out = grid.t_step_in
        if grid.t_step_in == 0 or grid.t_step_out % grid.t_step_in != 0:
            raise RequestError(
                f"TdnnComponent cannot order its rows: output times have step {grid.t_step_out}, "
                f"which is no multiple of the input times' step {grid.t_step_in}"
            )
        grid.reorder_t_in = grid.t_step_out // grid.t_step_in
        grid.num_t_in = -(-grid.num_t_in // grid.reorder_t_in) * grid.reorder_t_in
        return grid

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        grid = self._grid(input_indexes, output_indexes)
        return indexes_on_grid(self.type_name, grid, input_indexes, output_indexes)

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> TdnnIndexes:
        """First input row of each time offset; the rows must be as `reorder_indexes` left them."""
        # Kaldi draws here whether to check the rows; later decisions come from the same stream.
        tensor.random.rand_int(0, 10)
        grid = self._grid(input_indexes, output_indexes)
        ahead = grid.start_t_out + np.array(self.time_offsets, np.int64) - grid.start_t_in
        steps, remainder = np.divmod(ahead, grid.t_step_in)
        last = steps + (grid.num_t_out - 1) * grid.reorder_t_in
        if remainder.any() or (steps < 0).any() or (last >= grid.num_t_in).any():
            raise RequestError(
                f"TdnnComponent with time-offsets {self.time_offsets} cannot compute output times "
                f"{grid.start_t_out} to {grid.last_t_out} from input times {grid.start_t_in} to "
                f"{grid.last_t_in} in steps of {grid.t_step_in}"
            )
        block, within = np.divmod(steps, grid.reorder_t_in)
        offsets = block * grid.reorder_t_in * grid.num_images + within
        return TdnnIndexes(grid.reorder_t_in, offsets.astype(np.int32))

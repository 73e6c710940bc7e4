"""TimeHeightConvolutionComponent: convolution over time and height, without padding in memory.

Kaldi's nnet-convolutional-component.cc. Rows are times of images, columns height * filters; the
work is that of a `ConvolutionComputation`: for each of its few steps, patches are gathered from a
range of input rows and multiplied once by a block of the parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io import log
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
    checked_natural_gradient,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.convolution_computation import (
    ConvolutionComputation,
    compile_convolution,
)
from nnet3tools.nnet.components.convolution_model import ConvolutionModel
from nnet3tools.nnet.components.convolution_run import (
    add_input_deriv,
    add_output,
    add_params_deriv,
    as_rows,
)
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.components.time_windows import at_shifts, used_if_required
from nnet3tools.nnet.components.two_sided import two_sided_flops
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ConvolutionIndexes", "TimeHeightConvolutionComponent"]

_set_rows = tensor.element("_1 = _2")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)


@register_precomputed
class ConvolutionIndexes(PrecomputedIndexes):
    """The compiled convolution."""

    type_name: ClassVar[str] = "TimeHeightConvolutionComponentPrecomputedIndexes"

    def __init__(self, computation: ConvolutionComputation) -> None:
        self.computation = computation

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        c = self.computation
        rows_in = c.num_t_in * c.num_images  # of an input that may have been made wider
        return (
            isinstance(component, TimeHeightConvolutionComponent)
            and c.suits(component.model)
            and num_outputs == c.num_t_out * c.num_images
            and num_inputs % rows_in == 0
            and num_inputs * component.model.height_in == rows_in * c.height_in
        )

    @classmethod
    def read(cls, reader: Reader) -> Self:
        reader.expect_token("<Computation>")
        computation = ConvolutionComputation.read(reader)
        reader.expect_token(f"</{cls.type_name}>")
        return cls(computation)

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        writer.write_token("<Computation>")
        self.computation.write(writer)
        writer.write_token(f"</{self.type_name}>")


@register
class TimeHeightConvolutionComponent(UpdatableComponent):
    """A convolution with bias; `linear_params` (num_filters_out, offsets * num_filters_in).

    `bias_params` is (num_filters_out,): the same at all heights and times.
    """

    def __init__(self, model: ConvolutionModel, linear_params: Array, bias_params: Array) -> None:
        self.model = model
        self.linear_params, self.bias_params = linear_params, bias_params
        self.max_memory_mb = 200.0
        self.use_natural_gradient = True
        self.preconditioner_in = OnlineNaturalGradient()
        self.preconditioner_out = OnlineNaturalGradient()

    @property
    def input_dim(self) -> int:
        return self.model.input_dim

    @property
    def output_dim(self) -> int:
        return self.model.output_dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.UPDATABLE
            | Properties.REORDERS_INDEXES
            | Properties.BACKPROP_ADDS
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.INPUT_CONTIGUOUS
            | Properties.OUTPUT_CONTIGUOUS
        )

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    def parameters(self) -> dict[str, Array]:
        return {"linear_params": self.linear_params, "bias_params": self.bias_params}

    # -- creation and files

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        model = ConvolutionModel.from_config(line)
        if len(unused := model.unused_heights()):
            log.warning(
                f"input heights {unused.tolist()} are not used in TimeHeightConvolutionComponent; "
                "consider increasing the output height or decreasing the height of the preceding "
                f"layer: {line.text}"
            )
        stddev = line.get_float("param-stddev", -1.0)
        if stddev < 0.0:
            stddev = 1.0 / math.sqrt(model.param_cols)
        shape = (model.num_filters_out, model.param_cols)
        if line.get_bool("init-unit", False):
            linear_params = _unit_params(model, line)
        else:
            linear_params = random_normal(shape, stddev)
        bias_params = random_normal((model.num_filters_out,), line.get_float("bias-stddev", 0.0))
        self = cls(model, linear_params, bias_params)
        self.read_updatable_config(line)
        self.max_memory_mb = line.get_float("max-memory-mb", 200.0)
        if self.max_memory_mb <= 0.0:
            raise line.error("max-memory-mb must be positive")
        self.use_natural_gradient = line.get_bool("use-natural-gradient", True)
        history = line.get_float("num-minibatches-history", 4.0)
        made = []
        for side, dim in (("in", model.param_cols + 1), ("out", model.num_filters_out)):
            rank = line.get_int(f"rank-{side}", -1)
            rank = min(80, (dim + 1) // 2) if rank < 0 else rank
            alpha = line.get_float(f"alpha-{side}", 4.0)
            made.append(checked_natural_gradient(_preconditioner(rank, alpha, history), line))
        self.preconditioner_in, self.preconditioner_out = made
        return self

    @classmethod
    def read(cls, reader: Reader) -> Self:
        self = cls.__new__(cls)
        self.read_updatable_common(reader)
        reader.expect_token("<Model>")
        self.model = ConvolutionModel.read(reader)
        self.linear_params = read_field(reader, "<LinearParams>", reader.read_matrix)
        self.bias_params = read_field(reader, "<BiasParams>", reader.read_vector)
        shape = (self.model.num_filters_out, self.model.param_cols)
        good = self.linear_params.shape == shape and self.bias_params.shape == shape[:1]
        require(reader, good, f"parameters of a convolution must be {shape} and {shape[:1]}")
        self.max_memory_mb = read_field(reader, "<MaxMemoryMb>", reader.read_float)
        self.use_natural_gradient = read_field(reader, "<UseNaturalGradient>", reader.read_bool)
        history = read_field(reader, "<NumMinibatchesHistory>", reader.read_float)
        alpha_in = read_field(reader, "<AlphaInOut>", reader.read_float)
        alpha_out = reader.read_float()
        rank_in = read_field(reader, "<RankInOut>", reader.read_int32)
        first = _preconditioner(rank_in, alpha_in, history)
        second = _preconditioner(reader.read_int32(), alpha_out, history)
        self.preconditioner_in = checked_natural_gradient(first, reader)
        self.preconditioner_out = checked_natural_gradient(second, reader)
        reader.expect_token("</TimeHeightConvolutionComponent>")
        return self

    def write(self, writer: Writer) -> None:
        first, second = self.preconditioner_in, self.preconditioner_out
        self.write_updatable_common(writer)
        writer.write_token("<Model>")
        self.model.write(writer)
        write_field(writer, "<LinearParams>", self.linear_params)
        write_field(writer, "<BiasParams>", self.bias_params)
        write_field(writer, "<MaxMemoryMb>", float(self.max_memory_mb))
        write_field(writer, "<UseNaturalGradient>", self.use_natural_gradient)
        write_field(writer, "<NumMinibatchesHistory>", float(first.num_minibatches_history))
        write_field(writer, "<AlphaInOut>", float(first.alpha))
        writer.write_float(second.alpha)
        write_field(writer, "<RankInOut>", first.rank)
        writer.write_int32(second.rank)
        writer.write_token("</TimeHeightConvolutionComponent>")

    def info(self) -> str:
        first, second = self.preconditioner_in, self.preconditioner_out
        text = f"{super().info()} {self.model.info()}"
        text += parameter_stats("filter-params", self.linear_params)
        text += parameter_stats("bias-params", self.bias_params, include_mean=True)
        text += f", num-params={self.num_parameters}, max-memory-mb={self.max_memory_mb:g}"
        text += f", use-natural-gradient={int(self.use_natural_gradient)}"
        if not self.use_natural_gradient:
            return text
        return (
            f"{text}, num-minibatches-history={first.num_minibatches_history:g}"
            f", rank-in={first.rank}, rank-out={second.rank}, alpha={first.alpha:g}"
        )

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner_in.frozen = self.preconditioner_out.frozen = freeze

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Filters times patches over time, height and input filters (padding counts)."""
        return rows * (2 * self.linear_params.shape[1] + 1) * self.output_dim

    def natural_gradient_flops(self, rows: int) -> int:
        return two_sided_flops(self, self.linear_params, rows) if self.use_natural_gradient else 0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, ConvolutionIndexes)
        _set_rows(as_rows(out_value, self.model.num_filters_out), self.bias_params)
        add_output(indexes.computation, in_value, self.linear_params, out_value)

    def backprop(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, ConvolutionIndexes)
        if args.in_deriv is not None:
            add_input_deriv(
                args.indexes.computation, self.linear_params, args.out_deriv, args.in_deriv
            )
        if args.to_update is None:
            return
        assert isinstance(args.to_update, TimeHeightConvolutionComponent)
        if args.to_update.learning_rate == 0.0:
            return
        if args.to_update.is_gradient or not args.to_update.use_natural_gradient:
            args.to_update._update_simple(args.indexes, args.in_value, args.out_deriv)
        else:
            args.to_update._update_natural_gradient(args.indexes, args.in_value, args.out_deriv)

    def _update_simple(
        self, indexes: ConvolutionIndexes, in_value: Array, out_deriv: Array
    ) -> None:
        rate, derivs = self.learning_rate, as_rows(out_deriv, self.model.num_filters_out)
        _sum_rows(self.bias_params, derivs, alpha=rate, beta=1.0)
        add_params_deriv(indexes.computation, in_value, out_deriv, rate, self.linear_params)

    def _update_natural_gradient(
        self, indexes: ConvolutionIndexes, in_value: Array, out_deriv: Array
    ) -> None:
        """Precondition the parameter derivative itself, on both sides; the bias is its last column.

        The rows of the inputs are so many here (heights times frames) that Kaldi treats the whole
        minibatch's derivative as the sample: hence num-minibatches-history.
        """
        filters, cols = self.linear_params.shape
        with (
            tensor.scratch((filters, cols + 1), like=in_value) as deriv,
            tensor.scratch((cols + 1, filters), like=in_value) as transposed,
        ):
            tensor.fill(deriv, 0.0)
            bias_deriv = deriv[:, cols:].T  # (1, filters)
            _sum_rows(bias_deriv[0], as_rows(out_deriv, filters))
            add_params_deriv(indexes.computation, in_value, out_deriv, 1.0, deriv[:, :cols])
            rate = self.learning_rate * self.preconditioner_in.precondition(deriv)
            tensor.transpose(transposed, deriv, (1, 0))
            rate *= self.preconditioner_out.precondition(transposed)
            tensor.add(self.linear_params, transposed[:cols].T, alpha=rate)
            tensor.add(self.bias_params, transposed[cols], alpha=rate)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, self.model.time_offsets)

    def computable(
        self,
        output_indexes: IndexArray,
        inputs: IndexArray,
        offsets: IntArray,
        available: BoolArray,
    ) -> tuple[BoolArray, BoolArray]:
        """Only the required time offsets must be there; others that are missing read as zero."""
        required = np.isin(self.model.time_offsets, self.model.required_time_offsets)
        return used_if_required(available, required)

    def reorder_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[IndexArray, IndexArray]:
        _, inputs, outputs = self._compile(input_indexes, output_indexes)
        return inputs, outputs

    def precompute_indexes(
        self, input_indexes: IndexArray, output_indexes: IndexArray, need_backprop: bool
    ) -> ConvolutionIndexes:
        computation, inputs, outputs = self._compile(input_indexes, output_indexes)
        if not (np.array_equal(inputs, input_indexes) and np.array_equal(outputs, output_indexes)):
            raise ProgramError("the rows of a convolution are not as it ordered them")
        return ConvolutionIndexes(computation)

    def _compile(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[ConvolutionComputation, IndexArray, IndexArray]:
        return compile_convolution(self.model, input_indexes, output_indexes, self.max_memory_mb)


def _preconditioner(rank: int, alpha: float, history: float) -> OnlineNaturalGradient:
    return OnlineNaturalGradient(rank, alpha=alpha, num_minibatches_history=history)


def _unit_params(model: ConvolutionModel, line: ConfigLine) -> Array:
    """Parameters of the convolution that copies its input: 1 at offset (0, 0), init-unit=true."""
    filters = model.num_filters_in
    if filters != model.num_filters_out:
        raise line.error("init-unit needs num-filters-in and num-filters-out to be the same")
    at = np.flatnonzero((model.offsets == 0).all(axis=1))
    if len(at) == 0:
        raise line.error("init-unit needs the offset (0, 0)")
    params = np.zeros((filters, model.param_cols), np.float32)
    params[:, at[0] * filters : (at[0] + 1) * filters] = np.eye(filters, dtype=np.float32)
    return params

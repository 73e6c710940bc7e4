"""TimeHeightConvolutionComponent: convolution over time and height, without padding in memory.

Kaldi's nnet-convolutional-component.cc. Rows are times of images, columns height * filters. A
`ConvolutionComputation` does the work in a few steps, each of which gathers patches from a range of
input rows and multiplies them by a block of the parameters.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.io import log
from nnet3tools.nnet.components.array_fields import Matrix, Preconditioner, Side, Vector
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import random_normal
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
from nnet3tools.nnet.components.declared import Part
from nnet3tools.nnet.components.fields import Flag, Float, Int
from nnet3tools.nnet.components.registry import register, register_precomputed
from nnet3tools.nnet.components.time_windows import at_shifts, used_if_required
from nnet3tools.nnet.components.two_sided import TwoSidedNaturalGradient, both_paths
from nnet3tools.nnet.config import ConfigLine
from nnet3tools.nnet.indexes import BoolArray, IndexArray, IntArray

_set_rows = tensor.element("_1 = _2")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)


@register_precomputed
class ConvolutionIndexes(PrecomputedIndexes):
    """The compiled convolution as precomputed indexes."""

    type_name: ClassVar[str] = "TimeHeightConvolutionComponentPrecomputedIndexes"

    computation = Part(ConvolutionComputation, "<Computation>")

    def fits(self, component: Component, num_inputs: int, num_outputs: int) -> bool:
        c = self.computation
        rows_in = c.num_t_in * c.num_images  # rows of the input after a reshape to wider frames
        return (
            isinstance(component, TimeHeightConvolutionComponent)
            and c.suits(component.model)
            and num_outputs == c.num_t_out * c.num_images
            and num_inputs % rows_in == 0
            and num_inputs * component.model.height_in == rows_in * c.height_in
        )


@register
class TimeHeightConvolutionComponent(TwoSidedNaturalGradient):
    """A convolution over time and height; `linear_params` (filters, offsets * num_filters_in).

    `bias_params` (num_filters_out,) is the same for all heights and times.
    """

    FORMULA = (
        "y(t, h)[f] = b_f + sum of W_f[k, g] x(t + time_k, h height-subsample-out + "
        "height_k)[g] over offsets k and filters g"
    )
    KEYS = "param-stddev=1/sqrt(num-filters-in*offsets) init-unit=false bias-stddev=0"
    PROPERTIES = Properties.BACKPROP_ADDS | Properties.BACKPROP_NEEDS_INPUT | Properties.CONTIGUOUS
    preconditioner_in = Preconditioner(Side.COLUMNS)
    preconditioner_out = Preconditioner(Side.ROWS)

    model = Part(ConvolutionModel, "<Model>")
    linear_params = Matrix("<LinearParams>", key="filter-params")
    bias_params = Vector("<BiasParams>", key="bias-params")
    max_memory_mb = Float("<MaxMemoryMb>", "max-memory-mb", 200.0, positive=True)
    use_natural_gradient = Flag("<UseNaturalGradient>", "use-natural-gradient", True)
    num_minibatches_history = Float(
        "<NumMinibatchesHistory>",
        "num-minibatches-history",
        4.0,
        of=both_paths("num_minibatches_history"),
    )
    alpha_in = Float("<AlphaInOut>", "alpha-in", 4.0, of="preconditioner_in.alpha", key="alpha")
    alpha_out = Float("", "alpha-out", 4.0, of="preconditioner_out.alpha")
    rank_in = Int("<RankInOut>", "rank-in", 80, of="preconditioner_in.rank")
    rank_out = Int("", "rank-out", 80, of="preconditioner_out.rank")

    @property
    def input_dim(self) -> int:
        return self.model.input_dim

    @property
    def output_dim(self) -> int:
        return self.model.output_dim

    @property
    def input_matrix(self) -> Array:
        return self.linear_params

    # -- creation and info lines

    def init_from_config(self, line: ConfigLine) -> None:
        """Draw random parameters; with init-unit=true, make parameters that copy the input."""
        model = self.model
        if len(unused := np.setdiff1d(np.arange(model.height_in), model.input_heights())):
            log.warning(
                f"input heights {unused.tolist()} are not used in TimeHeightConvolutionComponent; "
                "consider increasing the output height or decreasing the height of the preceding "
                f"layer: {line.text}"
            )
        stddev = line.get_float("param-stddev", -1.0)
        if line.get_bool("init-unit", False):
            self.linear_params = _unit_params(model, line)
        else:
            stddev = 1.0 / math.sqrt(model.param_cols) if stddev < 0.0 else stddev
            self.linear_params = random_normal((model.num_filters_out, model.param_cols), stddev)
        bias_stddev = line.get_float("bias-stddev", 0.0)
        self.bias_params = random_normal((model.num_filters_out,), bias_stddev)
        self.set_default_ranks(line, model.param_cols + 1, model.num_filters_out, most_in=80)

    def problem(self) -> str | None:
        shape = (self.model.num_filters_out, self.model.param_cols)
        good = self.linear_params.shape == shape and self.bias_params.shape == shape[:1]
        return None if good else f"parameters of a convolution must be {shape} and {shape[:1]}"

    def info(self) -> str:
        parts = [f"{super().info()} {self.info_of('model linear_params bias_params')}"]
        parts += [f"num-params={self.num_parameters}", self.info_of("max_memory_mb")]
        parts.append(f"use-natural-gradient={int(self.use_natural_gradient)}")
        if self.use_natural_gradient:
            parts.append(self.info_of("num_minibatches_history rank_in rank_out alpha_in"))
        return ", ".join(parts)

    # -- running

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations; a filter is applied to each patch, including padding."""
        return rows * (2 * self.linear_params.shape[1] + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        assert isinstance(indexes, ConvolutionIndexes)
        _set_rows(as_rows(out_value, self.model.num_filters_out), self.bias_params)
        add_output(indexes.computation, in_value, out_value, self.add_product)

    def add_product(self, out: Array, patches: Array, columns: slice) -> None:
        """Add to `out` (N, filters) the products of N patches with parameter columns `columns`."""
        tensor.prod(out, patches, self.linear_params[:, columns], trans_b=True, beta=1.0)

    def backprop_input(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, ConvolutionIndexes)
        computation = args.indexes.computation
        add_input_deriv(computation, self.linear_params, args.out_deriv, args.in_deriv)

    def update(self, args: BackpropArgs) -> None:
        assert isinstance(args.indexes, ConvolutionIndexes)
        if self.learning_rate == 0.0:
            return
        if self.is_gradient or not self.use_natural_gradient:
            rate, derivs = self.rate, as_rows(args.out_deriv, self.model.num_filters_out)
            _sum_rows(self.bias_params, derivs, alpha=rate, beta=1.0)
            add_params_deriv(
                args.indexes.computation, args.in_value, args.out_deriv, rate, self.linear_params
            )
        else:
            self._update_natural_gradient(args.indexes, args.in_value, args.out_deriv)

    def _update_natural_gradient(
        self, indexes: ConvolutionIndexes, in_value: Array, out_deriv: Array
    ) -> None:
        """Update weights and bias, with both sides of the minibatch's gradient preconditioned.

        The rows of the gradient matrix, not those of the inputs (heights times frames, too many),
        are samples for the Fisher estimates, as in Kaldi; hence num-minibatches-history.
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
            rate = self.rate * self.preconditioner_in.precondition(deriv)
            tensor.transpose(transposed, deriv, (1, 0))
            rate *= self.preconditioner_out.precondition(transposed)
            tensor.add(self.linear_params, transposed[:cols].T, alpha=rate)
            tensor.add(self.bias_params, transposed[cols], alpha=rate)

    # -- indexes

    def input_indexes(self, output_indexes: IndexArray) -> tuple[IndexArray, IntArray]:
        return at_shifts(output_indexes, self.model.time_offsets)

    def computable(
        self, outputs: IndexArray, inputs: IndexArray, offsets: IntArray, available: BoolArray
    ) -> tuple[BoolArray, BoolArray]:
        """Flags: outputs, (N,), with all required inputs, and inputs, (M,), that they use.

        `available` (M,) flags existing inputs; output i may use inputs[offsets[i]:offsets[i + 1]].
        """
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
        return ConvolutionIndexes(computation=computation)

    def _compile(
        self, input_indexes: IndexArray, output_indexes: IndexArray
    ) -> tuple[ConvolutionComputation, IndexArray, IndexArray]:
        return compile_convolution(self.model, input_indexes, output_indexes, self.max_memory_mb)


def _unit_params(model: ConvolutionModel, line: ConfigLine) -> Array:
    """Parameters (filters, offsets * filters) for init-unit=true: the identity at offset (0, 0)."""
    filters = model.num_filters_in
    if filters != model.num_filters_out:
        raise line.error("init-unit needs num-filters-in and num-filters-out to be the same")
    at = np.flatnonzero((model.offsets == 0).all(axis=1))
    if len(at) == 0:
        raise line.error("init-unit needs the offset (0, 0)")
    params = np.zeros((filters, model.param_cols), np.float32)
    params[:, at[0] * filters : (at[0] + 1) * filters] = np.eye(filters, dtype=np.float32)
    return params

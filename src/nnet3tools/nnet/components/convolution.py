"""Convolution over the columns of each row, seen as a three-dimensional array (an image).

File fields: Kaldi's ConvolutionComponent (nnet-combined-component.cc), the older component for
images, which TimeHeightConvolutionComponent superseded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Indexes,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    matrix_from_file,
    optional_field,
    random_normal,
    read_field,
    require,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ConvolutionComponent", "num_steps", "windows"]

_add_with_bias = tensor.element("_1 += _2 + _3")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)

_YZX, _ZYX = 0, 1
"""Kaldi's TensorVectorizationType, as in files: y changes fastest, or z does; x changes slowest."""


def num_steps(size: int, window: int, step: int) -> int:
    """How many windows, `step` apart, fit in `size` places."""
    return 1 + (size - window) // step


def windows(start: int, num_steps: int, step: int) -> slice:
    """The places that are `start` from the beginnings of windows `step` apart."""
    return slice(start, start + (num_steps - 1) * step + 1, step)


class _Filter(NamedTuple):
    """Sizes of a convolution, in the order of its config keys and file tokens."""

    input_x_dim: int
    input_y_dim: int
    input_z_dim: int
    filt_x_dim: int
    filt_y_dim: int
    filt_x_step: int
    filt_y_step: int

    @property
    def steps(self) -> tuple[int, int]:
        """Number of patches along x and y."""
        return (
            num_steps(self.input_x_dim, self.filt_x_dim, self.filt_x_step),
            num_steps(self.input_y_dim, self.filt_y_dim, self.filt_y_step),
        )

    @property
    def patch_dim(self) -> int:
        """Numbers under one filter."""
        return self.filt_x_dim * self.filt_y_dim * self.input_z_dim

    def problem(self) -> str | None:
        """What does not fit, or None."""
        if min(self) <= 0:
            return "all dimensions and steps must be positive"
        for axis in ("x", "y"):
            size, window, step = (
                getattr(self, name.format(axis))
                for name in ("input_{}_dim", "filt_{}_dim", "filt_{}_step")
            )
            if size < window or (size - window) % step != 0:
                return (
                    f"filters of {axis}-size {window} with step {step} do not cover "
                    f"input-{axis}-dim={size}"
                )
        return None


_FILTER_TOKENS = (
    "<InputXDim>",
    "<InputYDim>",
    "<InputZDim>",
    "<FiltXDim>",
    "<FiltYDim>",
    "<FiltXStep>",
    "<FiltYStep>",
)


@register
class ConvolutionComponent(UpdatableComponent):
    """`filter_params` (filters, filt_x_dim * filt_y_dim * input_z_dim), `bias_params` (filters,).

    An input row is an array over x, y, z (or x, z, y); an output row over x, y steps and filters.
    """

    def __init__(self, sizes: _Filter, filter_params: Array, bias_params: Array) -> None:
        self.sizes = sizes
        self.input_vectorization = _ZYX
        self.filter_params, self.bias_params = filter_params, bias_params

    @property
    def input_dim(self) -> int:
        return self.sizes.input_x_dim * self.sizes.input_y_dim * self.sizes.input_z_dim

    @property
    def output_dim(self) -> int:
        return math.prod(self.sizes.steps) * int(self.filter_params.shape[0])

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.BACKPROP_ADDS
            | Properties.PROPAGATE_ADDS
        )

    def parameters(self) -> dict[str, Array]:
        return {"filter_params": self.filter_params, "bias_params": self.bias_params}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        sizes = _Filter(*(line.get_int(name.replace("_", "-")) for name in _Filter._fields))
        if problem := sizes.problem():
            raise line.error(problem)
        if "matrix" in line:
            matrix = matrix_from_file(line.get_string("matrix"))
            if matrix.shape[1] != sizes.patch_dim + 1:
                raise line.error(
                    f"the matrix has {matrix.shape[1]} columns, expected {sizes.patch_dim + 1}"
                )
            filters = np.ascontiguousarray(matrix[:, :-1])
            component = cls(sizes, filters, np.ascontiguousarray(matrix[:, -1]))
        else:
            num_filters = get_positive(line, "num-filters")
            stddev = line.get_float("param-stddev", 1.0 / math.sqrt(sizes.patch_dim))
            bias_stddev = line.get_float("bias-stddev", 1.0)
            if stddev < 0.0 or bias_stddev < 0.0:
                raise line.error("param-stddev and bias-stddev must not be negative")
            component = cls(
                sizes,
                random_normal((num_filters, sizes.patch_dim), stddev),
                random_normal((num_filters,), bias_stddev),
            )
        component.read_updatable_config(line)
        order = line.get_string("input-vectorization-order", "zyx")
        if order not in ("zyx", "yzx"):
            raise line.error(f"input-vectorization-order must be zyx or yzx, found '{order}'")
        component.input_vectorization = _ZYX if order == "zyx" else _YZX
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(_Filter(1, 1, 1, 1, 1, 1, 1), tensor.zeros((0, 1)), tensor.zeros((0,)))
        component.read_updatable_common(reader)
        sizes = _Filter(*(read_field(reader, t, reader.read_int32) for t in _FILTER_TOKENS))
        require(reader, sizes.problem() is None, sizes.problem() or "")
        component.sizes = sizes
        component.input_vectorization = read_field(
            reader, "<InputVectorization>", reader.read_int32
        )
        component.filter_params = read_field(reader, "<FilterParams>", reader.read_matrix)
        component.bias_params = read_field(reader, "<BiasParams>", reader.read_vector)
        shape = (len(component.bias_params), sizes.patch_dim)
        fits = component.filter_params.shape == shape
        require(reader, fits, f"expected <FilterParams> of shape {shape}")
        component.is_gradient = optional_field(reader, "<IsGradient>", reader.read_bool, False)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        for token, size in zip(_FILTER_TOKENS, self.sizes, strict=True):
            write_field(writer, token, size)
        write_field(writer, "<InputVectorization>", self.input_vectorization)
        write_field(writer, "<FilterParams>", self.filter_params)
        write_field(writer, "<BiasParams>", self.bias_params)
        write_field(writer, "<IsGradient>", self.is_gradient)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        sizes = "".join(
            f", {name.replace('_', '-')}={size}" for name, size in self.sizes._asdict().items()
        )
        return (
            f"{super().info()}{sizes}, input-vectorization={self.input_vectorization}"
            f", num-filters={self.filter_params.shape[0]}"
            f"{parameter_stats('filter-params', self.filter_params)}"
            f"{parameter_stats('bias-params', self.bias_params, include_mean=True)}"
        )

    # -- running

    def _images(self, matrix: Array) -> Array:
        """The rows of an input (or its derivative) as (rows, x, y, z), a view."""
        x, y, z, *_ = self.sizes
        if self.input_vectorization == _ZYX:
            return matrix.reshape(-1, x, y, z)
        return matrix.reshape(-1, x, z, y).swapaxes(2, 3)

    def _patch_views(self, images: Array, patches: Array) -> Iterator[tuple[Array, Array]]:
        """For each place (i, j) under the filter: where it is in the images, and in the patches.

        Patches are (rows, x steps, y steps, filt_x_dim, filt_y_dim, z).
        """
        x_steps, y_steps = self.sizes.steps
        for i in range(self.sizes.filt_x_dim):
            rows = windows(i, x_steps, self.sizes.filt_x_step)
            for j in range(self.sizes.filt_y_dim):
                cols = windows(j, y_steps, self.sizes.filt_y_step)
                yield images[:, rows, cols], patches[:, :, :, i, j]

    def _patch_shape(self, num_rows: int) -> tuple[int, ...]:
        s = self.sizes
        return (num_rows, *s.steps, s.filt_x_dim, s.filt_y_dim, s.input_z_dim)

    def _num_patches(self, num_rows: int) -> int:
        return num_rows * math.prod(self.sizes.steps)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Every output is the dot product of a filter with a patch, plus a bias."""
        return rows * (2 * self.filter_params.shape[1] + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        num_rows, num_filters = in_value.shape[0], self.filter_params.shape[0]
        num_patches = self._num_patches(num_rows)
        with (
            tensor.scratch(self._patch_shape(num_rows), like=in_value) as patches,
            tensor.scratch((num_patches, num_filters), like=in_value) as filtered,
        ):
            for image, patch in self._patch_views(self._images(in_value), patches):
                tensor.copy(patch, image)
            flat = patches.reshape(num_patches, self.sizes.patch_dim)
            tensor.prod(filtered, flat, self.filter_params, trans_b=True)
            shape = (num_rows, math.prod(self.sizes.steps), num_filters)
            _add_with_bias(out_value.reshape(shape), filtered.reshape(shape), self.bias_params)

    def backprop(self, args: BackpropArgs) -> None:
        num_rows = args.out_deriv.shape[0]
        num_patches = self._num_patches(num_rows)
        with (
            tensor.scratch(self._patch_shape(num_rows), like=args.out_deriv) as patches,
            tensor.scratch(
                (num_patches, self.filter_params.shape[0]), like=args.out_deriv
            ) as filter_derivs,
        ):
            tensor.copy(filter_derivs.reshape(args.out_deriv.shape), args.out_deriv)
            flat = patches.reshape(num_patches, self.sizes.patch_dim)
            if args.in_deriv is not None:
                tensor.prod(flat, filter_derivs, self.filter_params)
                for image, patch in self._patch_views(self._images(args.in_deriv), patches):
                    tensor.add(image, patch)
            if args.to_update is not None:
                assert isinstance(args.to_update, ConvolutionComponent)
                for image, patch in self._patch_views(self._images(args.in_value), patches):
                    tensor.copy(patch, image)
                args.to_update._update(flat, filter_derivs)

    def _update(self, patches: Array, derivs: Array) -> None:
        rate = self.learning_rate
        tensor.prod(self.filter_params, derivs, patches, trans_a=True, alpha=rate, beta=1.0)
        _sum_rows(self.bias_params, derivs, alpha=rate, beta=1.0)

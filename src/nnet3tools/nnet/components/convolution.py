"""ConvolutionComponent: convolution over the columns of each row, viewed as a 3-D array (an image).

File fields: Kaldi's ConvolutionComponent (nnet-combined-component.cc), the predecessor of
TimeHeightConvolutionComponent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from nnet3tools import tensor
from nnet3tools.nnet.components.affine import split_affine
from nnet3tools.nnet.components.array_fields import Matrix, Vector
from nnet3tools.nnet.components.base import Array, BackpropArgs, Indexes, Memo, Properties
from nnet3tools.nnet.components.common import get_positive, matrix_of_config, random_normal
from nnet3tools.nnet.components.fields import Flag, Int
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.updatable import UpdatableComponent
from nnet3tools.nnet.config import ConfigLine

_add_with_bias = tensor.element("_1 += _2 + _3")

_YZX, _ZYX = 0, 1
"""Kaldi's TensorVectorizationType in files: y changes fastest, or z does; x changes slowest."""


def num_steps(size: int, window: int, step: int) -> int:
    """Number of windows of length `window`, `step` apart, that fit into `size`."""
    return 1 + (size - window) // step


def windows(start: int, num_steps: int, step: int) -> slice:
    """Slice of the positions start, start + step, ...: one for each of `num_steps` windows."""
    return slice(start, start + (num_steps - 1) * step + 1, step)


class _Order(Int):
    """Field for the order of a row's axes: "zyx" or "yzx" in config lines, Kaldi's int in files."""

    def config_value(self, line: ConfigLine) -> int:
        order = line.get_string("input-vectorization-order")
        if order not in ("zyx", "yzx"):
            raise line.error(f"input-vectorization-order must be zyx or yzx, found '{order}'")
        return _ZYX if order == "zyx" else _YZX


@register
class ConvolutionComponent(UpdatableComponent):
    """Convolution over x and y of rows that are arrays over x, y, z (or x, z, y).

    `filter_params` is (filters, filt_x_dim * filt_y_dim * input_z_dim), `bias_params` (filters,).
    An output row is an array over x steps, y steps and filters.
    """

    FORMULA = "y[i, j, f] = b_f + sum of W_f[u, v, z] x[i step_x + u, j step_y + v, z] over u, v, z"
    KEYS = (
        "num-filters [matrix] input-vectorization-order=zyx "
        "param-stddev=1/sqrt(filt-x-dim*filt-y-dim*input-z-dim) bias-stddev=1"
    )
    PROPERTIES = (
        Properties.BACKPROP_NEEDS_INPUT | Properties.BACKPROP_ADDS | Properties.PROPAGATE_ADDS
    )
    INFO = (
        UpdatableComponent.INFO + " input_x_dim input_y_dim input_z_dim filt_x_dim filt_y_dim "
        "filt_x_step filt_y_step input_vectorization num_filters filter_params bias_params"
    )

    input_x_dim = Int("<InputXDim>", "input-x-dim", positive=True)
    input_y_dim = Int("<InputYDim>", "input-y-dim", positive=True)
    input_z_dim = Int("<InputZDim>", "input-z-dim", positive=True)
    filt_x_dim = Int("<FiltXDim>", "filt-x-dim", positive=True)
    filt_y_dim = Int("<FiltYDim>", "filt-y-dim", positive=True)
    filt_x_step = Int("<FiltXStep>", "filt-x-step", positive=True)
    filt_y_step = Int("<FiltYStep>", "filt-y-step", positive=True)
    input_vectorization = _Order(
        "<InputVectorization>", "input-vectorization-order", _ZYX, key="input-vectorization"
    )
    filter_params = Matrix("<FilterParams>", key="filter-params")
    bias_params = Vector("<BiasParams>", key="bias-params")
    late_is_gradient = Flag("<IsGradient>", of="is_gradient", optional=True)

    @property
    def input_dim(self) -> int:
        return self.input_x_dim * self.input_y_dim * self.input_z_dim

    @property
    def output_dim(self) -> int:
        return math.prod(self.steps) * self.num_filters

    @property
    def num_filters(self) -> int:
        """Number of filters, each of which has a bias."""
        return int(self.filter_params.shape[0])

    @property
    def steps(self) -> tuple[int, int]:
        """Number of filter positions along x and along y."""
        return (
            num_steps(self.input_x_dim, self.filt_x_dim, self.filt_x_step),
            num_steps(self.input_y_dim, self.filt_y_dim, self.filt_y_step),
        )

    @property
    def patch_dim(self) -> int:
        """Number of input elements that a filter covers at one position."""
        return self.filt_x_dim * self.filt_y_dim * self.input_z_dim

    def problem(self) -> str | None:
        for axis, size, window, step in (
            ("x", self.input_x_dim, self.filt_x_dim, self.filt_x_step),
            ("y", self.input_y_dim, self.filt_y_dim, self.filt_y_step),
        ):
            if size < window or (size - window) % step != 0:
                return (
                    f"filters of {axis}-size {window} with step {step} do not cover "
                    f"input-{axis}-dim={size}"
                )
        shape = len(self.bias_params), self.patch_dim
        found = self.filter_params.shape
        return None if found == shape else f"expected <FilterParams> of shape {shape}, not {found}"

    def init_from_config(self, line: ConfigLine) -> None:
        """Read parameters from matrix= (last column: bias), or draw them at random."""
        if "matrix" in line:
            self.filter_params, self.bias_params = split_affine(matrix_of_config(line, min_cols=2))
            return
        num_filters = get_positive(line, "num-filters")
        stddev = line.get_float("param-stddev", 1.0 / math.sqrt(self.patch_dim))
        bias_stddev = line.get_float("bias-stddev", 1.0)
        if stddev < 0.0 or bias_stddev < 0.0:
            raise line.error("param-stddev and bias-stddev must not be negative")
        self.filter_params = random_normal((num_filters, self.patch_dim), stddev)
        self.bias_params = random_normal((num_filters,), bias_stddev)

    # -- running

    def _images(self, matrix: Array) -> Array:
        """The rows of an input (or its derivative) as a view (rows, x, y, z)."""
        x, y, z = self.input_x_dim, self.input_y_dim, self.input_z_dim
        if self.input_vectorization == _ZYX:
            return matrix.reshape(-1, x, y, z)
        return matrix.reshape(-1, x, z, y).swapaxes(2, 3)

    def _patch_views(self, images: Array, patches: Array) -> Iterator[tuple[Array, Array]]:
        """For each position (i, j) in a patch: views of the elements there, in images and patches.

        `images` is (rows, x, y, z), `patches` (rows, x steps, y steps, filt_x_dim, filt_y_dim, z).
        Both views are (rows, x steps, y steps, z).
        """
        x_steps, y_steps = self.steps
        for i in range(self.filt_x_dim):
            rows = windows(i, x_steps, self.filt_x_step)
            for j in range(self.filt_y_dim):
                cols = windows(j, y_steps, self.filt_y_step)
                yield images[:, rows, cols], patches[:, :, :, i, j]

    def _patch_shape(self, num_rows: int) -> tuple[int, ...]:
        return (num_rows, *self.steps, self.filt_x_dim, self.filt_y_dim, self.input_z_dim)

    def propagate_flops(self, rows: int, indexes: Indexes) -> int:
        """Number of operations; each output element is a dot product and a bias."""
        return rows * (2 * self.filter_params.shape[1] + 1) * self.output_dim

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        num_rows, num_filters = in_value.shape[0], self.num_filters
        num_patches = num_rows * math.prod(self.steps)
        with (
            tensor.scratch(self._patch_shape(num_rows), like=in_value) as patches,
            tensor.scratch((num_patches, num_filters), like=in_value) as filtered,
        ):
            for image, patch in self._patch_views(self._images(in_value), patches):
                tensor.copy(patch, image)
            flat = patches.reshape(num_patches, self.patch_dim)
            self.filter_patches(filtered, flat)
            shape = (num_rows, math.prod(self.steps), num_filters)
            _add_with_bias(out_value.reshape(shape), filtered.reshape(shape), self.bias_params)

    def filter_patches(self, filtered: Array, patches: Array) -> None:
        """Set `filtered` (N, filters) to products of N patches (N, patch_dim) with all filters."""
        tensor.prod(filtered, patches, self.filter_params, trans_b=True)

    def backprop(self, args: BackpropArgs) -> None:
        num_rows = args.out_deriv.shape[0]
        num_patches = num_rows * math.prod(self.steps)
        with (
            tensor.scratch(self._patch_shape(num_rows), like=args.out_deriv) as patches,
            tensor.scratch((num_patches, self.num_filters), like=args.out_deriv) as filter_derivs,
        ):
            tensor.copy(filter_derivs.reshape(args.out_deriv.shape), args.out_deriv)
            flat = patches.reshape(num_patches, self.patch_dim)
            if args.in_deriv is not None:
                tensor.prod(flat, filter_derivs, self.filter_params)
                for image, patch in self._patch_views(self._images(args.in_deriv), patches):
                    tensor.add(image, patch)
            if args.to_update is not None:
                assert isinstance(args.to_update, ConvolutionComponent)
                for image, patch in self._patch_views(self._images(args.in_value), patches):
                    tensor.copy(patch, image)
                filters, bias = args.to_update.filter_params, args.to_update.bias_params
                args.to_update.add_affine_gradient(filters, bias, [flat], filter_derivs)

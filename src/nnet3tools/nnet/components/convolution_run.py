"""Forward and backward pass of a compiled convolution: gather patches and multiply.

Rows are (time, image), columns (height, filter). The patches of all heights are rows of a matrix,
so that a step is a single matrix product with a block of the parameters. At most `temp_rows` output
rows are processed at a time, which bounds the memory for patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from nnet3tools import tensor
from nnet3tools.errors import ProgramError
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.components.convolution_computation import (
    ConvolutionComputation,
    ConvolutionStep,
)
from nnet3tools.nnet.indexes import IntArray
from nnet3tools.tensor.operators.patches import add_patches, gather_patches


def as_rows(matrix: Array, *shape: int) -> Array:
    """A view of a contiguous matrix with rows of shape `shape`.

    ProgramError if it is not contiguous, which INPUT_CONTIGUOUS and OUTPUT_CONTIGUOUS exclude.
    """
    if not matrix.flags.c_contiguous:
        raise ProgramError("a convolution was given a matrix that is not contiguous")
    return matrix.reshape(-1, *shape)


@dataclass(frozen=True)
class _Piece:
    """One step of a convolution for a range of output times, with rows `out_rows`.

    `heights` (K, 4), from ConvolutionStep.pieces, says which heights of the input rows `in_rows`
    the patches have. `params` are the columns of the parameter matrix that the step uses.
    """

    step: ConvolutionStep
    heights: IntArray
    in_rows: slice
    out_rows: slice
    params: slice


def _plan(computation: ConvolutionComputation) -> Iterator[_Piece]:
    """Yield each step of a convolution, for each range of output times that fits in memory."""
    images, filters = computation.num_images, computation.num_filters_in
    times = computation.temp_rows // images or computation.num_t_out
    for start in range(0, computation.num_t_out, times):
        end = min(start + times, computation.num_t_out)
        for step, heights in zip(computation.steps, computation.pieces, strict=True):
            shift, column = step.input_time_shift, step.params_start_col
            width = len(step.height_map) // computation.height_out * filters
            yield _Piece(
                step,
                heights,
                slice((start + shift) * images, (end + shift) * images),
                slice(start * images, end * images),
                slice(column, column + width),
            )


def _frames(computation: ConvolutionComputation, matrix: Array) -> Array:
    """View of the input (or its derivative) with shape (rows, height_in, filters)."""
    frames = as_rows(matrix, computation.height_in, computation.num_filters_in)
    if frames.shape[0] != computation.num_t_in * computation.num_images:
        raise ProgramError(f"convolution of {computation.num_t_in} times given {matrix.shape}")
    return frames


@contextmanager
def _patch_space(
    computation: ConvolutionComputation, piece: _Piece, like: Array
) -> Iterator[Array]:
    """Context manager: scratch memory for the patches of `piece`, a step for some output times.

    Its shape is (rows, height_out, positions in a patch, input filters), on `like`'s device.
    """
    rows = piece.out_rows.stop - piece.out_rows.start
    places = len(piece.step.height_map) // computation.height_out
    shape = (rows, computation.height_out, places, computation.num_filters_in)
    with tensor.scratch(shape, like=like) as patches:
        yield patches


@contextmanager
def _patches(computation: ConvolutionComputation, piece: _Piece, frames: Array) -> Iterator[Array]:
    """Context manager: patches of `piece` as a matrix (rows * height_out, positions * filters).

    `frames` is the convolution's whole input as (rows, height_in, filters).
    """
    width = piece.params.stop - piece.params.start
    if not computation.needs_gather(piece.step):
        yield as_rows(frames[piece.in_rows], width)
        return
    with _patch_space(computation, piece, frames) as patches:
        gather_patches(patches, frames[piece.in_rows], piece.heights)
        yield patches.reshape(-1, width)


def add_output(
    computation: ConvolutionComputation,
    in_value: Array,
    out_value: Array,
    add_product: Callable[[Array, Array, slice], None],
) -> None:
    """Add the convolution of in_value, without bias, to out_value.

    `add_product(out, patches, columns)` adds the product of patches with columns of the parameters.
    """
    frames = _frames(computation, in_value)
    for piece in _plan(computation):
        out = as_rows(out_value[piece.out_rows], computation.num_filters_out)
        with _patches(computation, piece, frames) as patches:
            add_product(out, patches, piece.params)


def add_input_deriv(
    computation: ConvolutionComputation, params: Array, out_deriv: Array, in_deriv: Array
) -> None:
    """Add the derivative with respect to a convolution's input to `in_deriv`."""
    frames = _frames(computation, in_deriv)
    for piece in _plan(computation):
        out = as_rows(out_deriv[piece.out_rows], computation.num_filters_out)
        block, rows = params[:, piece.params], frames[piece.in_rows]
        if not computation.needs_gather(piece.step):
            tensor.prod(as_rows(rows, block.shape[1]), out, block, beta=1.0)
            continue
        with _patch_space(computation, piece, in_deriv) as patches:
            tensor.prod(patches.reshape(-1, block.shape[1]), out, block)
            add_patches(rows, patches, piece.heights)


def add_params_deriv(
    computation: ConvolutionComputation,
    in_value: Array,
    out_deriv: Array,
    alpha: float,
    params_deriv: Array,
) -> None:
    """Add alpha times the derivative with respect to a convolution's parameters to params_deriv."""
    frames = _frames(computation, in_value)
    for piece in _plan(computation):
        out = as_rows(out_deriv[piece.out_rows], computation.num_filters_out)
        deriv = params_deriv[:, piece.params]
        with _patches(computation, piece, frames) as patches:
            tensor.prod(deriv, out, patches, trans_a=True, alpha=alpha, beta=1.0)

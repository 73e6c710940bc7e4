"""Products on CUDA: of matrices by cuBLAS on strided views, inner ones by an aggregate.

cuBLAS needs one of a matrix's two strides to be 1. A transposed view becomes a transposed operand.
Any other matrix is copied to a buffer that belongs to the bound product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address, overlap
from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.basics import copy, fill, scale
from nnet3tools.tensor.call import in_turn
from nnet3tools.tensor.cuda.device import Array, get_device
from nnet3tools.tensor.cuda.element import as_typed_number
from nnet3tools.tensor.cuda.launches import LibraryCall
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.operands import element_strides
from nnet3tools.tensor.registry import implements

_dot = aggregate("float64(_1) * float64(_2)", "sum", axis=None)
_squares = aggregate("sqr(float64(_1))", "sum", axis=None)


@implements("dot", "cupy", binder=True)
def bind_dot(a: Array, b: Array) -> Callable[[], Any]:
    """Bind the operator `dot`: a sum that loads each element once if `a` and `b` are the same."""
    return _squares.bind(a) if overlap(a, b) == "same" else _dot.bind(a, b)


class _Matrix(NamedTuple):
    """A stack of matrices as BLAS takes it; `array` has the elements.

    `pitch` is the distance of rows (of columns if `transposed`), `step` of matrices, in elements.
    """

    array: Array
    pitch: int
    transposed: bool
    step: int


def _as_blas(array: Array) -> _Matrix | None:
    """The array's last two axes as a BLAS matrix; None if neither has stride 1."""
    strides, shape = element_strides(array), array.shape
    rows, cols = strides[-2:]
    step = strides[0] if len(shape) == 3 and shape[0] > 1 else 0
    if shape[-1] == 1 and rows == 1:  # a row to BLAS, which has no pitch of 1 then
        return _Matrix(array, max(shape[-2], 1), True, step)
    # the stride of an axis of size 1 may be anything
    if (cols == 1 or shape[-1] == 1) and (rows >= shape[-1] or shape[-2] == 1):
        return _Matrix(array, max(rows if shape[-2] > 1 else 0, shape[-1], 1), False, step)
    if (rows == 1 or shape[-2] == 1) and (cols >= shape[-2] or shape[-1] == 1):
        return _Matrix(array, max(cols if shape[-1] > 1 else 0, shape[-2], 1), True, step)
    return None


def _usable(array: Array, before: list[Callable[[], None]]) -> _Matrix:
    """`array` as a matrix for BLAS, or else a copy; `before` gets the step that copies it."""
    if (found := _as_blas(array)) is None:
        buffer = get_device().empty(array.shape, array.dtype)
        before.append(copy.bind(buffer, array))
        found = _as_blas(buffer)
        assert found is not None
    return found


@implements("prod", "cupy", binder=True)
def bind_prod(
    out: Array,
    a: Array,
    b: Array,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: Any = 1.0,
    beta: float = 0.0,
) -> Callable[[], None]:
    """A callable that runs `prod`: a call of cuBLAS, and copies of views that it cannot take."""
    rows, cols = out.shape[-2:]
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    inner = left.shape[-1]
    if left.shape[-2:] != (rows, inner) or right.shape[-2:] != (inner, cols):
        raise ProgramError(
            f"a product of {left.shape} and {right.shape} does not fit an output {out.shape}"
        )
    if 0 in out.shape:
        return lambda: None
    if inner == 0:
        return fill.bind(out, 0.0) if beta == 0.0 else scale.bind(out, float(beta))
    before: list[Callable[[], None]] = []
    first, second = _usable(left, before), _usable(right, before)
    target = _usable(out, before if beta != 0.0 else [])
    after = [] if target.array is out else [copy.bind(out, target.array)]
    return in_turn([*before, _gemm(out, first, second, target, inner, alpha, beta), *after])


def _gemm(
    out: Array, a: _Matrix, b: _Matrix, c: _Matrix, inner: int, alpha: Any, beta: float
) -> Callable[[], None]:
    rows, cols = out.shape[-2:]
    batch = out.shape[0] if out.ndim == 3 else 1
    for matrix in (a, b):
        if matrix.array.ndim == 3 and matrix.array.shape[0] not in (1, batch):
            raise ProgramError(f"a stack of {matrix.array.shape[0]} products in one of {batch}")
    if c.transposed:  # C' = op(B)' op(A)'
        a, b = b._replace(transposed=not b.transposed), a._replace(transposed=not a.transposed)
        rows, cols = cols, rows
    steps: list[Callable[[], None]] = []
    is_number = isinstance(alpha, Number)
    factor = as_typed_number(alpha, out.dtype, steps) if is_number else float(alpha)
    run = get_device().gemm(
        out.dtype, rows, cols, inner, batch,
        address(a.array), a.pitch, a.transposed, a.step,
        address(b.array), b.pitch, b.transposed, b.step,
        address(c.array), c.pitch, c.step, factor, float(beta),
    )  # fmt: skip
    reads = [a.array, b.array, *([factor] if is_number else []), *([c.array] if beta else [])]
    return in_turn([*steps, LibraryCall("product", run, reads, [c.array])])

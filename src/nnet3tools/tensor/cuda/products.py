"""Matrix products on CUDA: cuBLAS into strided views.

cuBLAS wants one of a matrix's two strides to be 1. Transposed views are transposes to it; anything
else is copied to a buffer that belongs to the bound product.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array, get_device, pointer
from nnet3tools.tensor.cuda.element import as_typed_number, copy_kernel
from nnet3tools.tensor.cuda.launch import in_turn
from nnet3tools.tensor.cuda.launches import Product
from nnet3tools.tensor.cuda.operands import element_strides
from nnet3tools.tensor.element import element
from nnet3tools.tensor.number import Number
from nnet3tools.tensor.precision import are_precise, precise_products
from nnet3tools.tensor.registry import implements

__all__ = ["Form", "bind_prod", "joined"]

_scale = element("_1 *= _2")
_fill = element("_1 = _2")


class _Matrix(NamedTuple):
    """A stack of matrices as BLAS sees it."""

    array: Array
    pitch: int
    transposed: bool
    step: int


def _as_blas(array: Array) -> _Matrix | None:
    """The array's last two axes with one stride of 1; None if there is none."""
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
    """The matrix, or a copy of it that `before` will fill."""
    found = _as_blas(array)
    if found is None:
        buffer = get_device().empty(array.shape, array.dtype)
        before.append(copy_kernel(buffer, array))
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
    """One call of cuBLAS, with copies around it where views are too wild for it."""
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
        return _fill.bind(out, 0.0) if beta == 0.0 else _scale.bind(out, float(beta))
    before: list[Callable[[], None]] = []
    after: list[Callable[[], None]] = []
    first, second = _usable(left, before), _usable(right, before)
    target = _as_blas(out)
    if target is None:
        buffer = get_device().empty(out.shape, out.dtype)
        if beta != 0.0:
            before.append(copy_kernel(buffer, out))
        after.append(copy_kernel(out, buffer))
        target = _as_blas(buffer)
        assert target is not None
    steps = [*before, _gemm(out, first, second, target, inner, alpha, beta), *after]
    return in_turn(steps)


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
    if isinstance(alpha, Number):
        steps: list[Callable[[], None]] = []
        factor = as_typed_number(alpha, out.dtype, steps)
    else:
        steps, factor = [], float(alpha)
    run = get_device().gemm(
        out.dtype, rows, cols, inner, batch,
        pointer(a.array), a.pitch, a.transposed, a.step,
        pointer(b.array), b.pitch, b.transposed, b.step,
        pointer(c.array), c.pitch, c.step, factor, float(beta),
    )  # fmt: skip
    read = [a.array, b.array, *([] if isinstance(factor, float) else [factor])]
    form = None
    if batch == 1 and isinstance(factor, float):
        form = Form(
            out.dtype, rows, cols, inner, a.pitch, a.transposed, b.pitch, b.transposed, c.pitch,
            factor, float(beta), are_precise(),
        )  # fmt: skip
    places = pointer(a.array), pointer(b.array), pointer(c.array)
    reads = [*read, *([c.array] if beta else [])]
    product = Product(form, places, run, reads, [c.array])
    return in_turn([*steps, product])


class Form(NamedTuple):
    """All of a product but where its matrices are."""

    dtype: Any
    rows: int
    cols: int
    inner: int
    pitch_a: int
    trans_a: bool
    pitch_b: int
    trans_b: bool
    pitch_c: int
    alpha: float
    beta: float
    is_precise: bool


def joined(products: Sequence[Product]) -> list[Callable[[], Any]]:
    """Work of independent products of one form; those at even distances are one product."""
    left = sorted(products, key=lambda p: p.places[::-1])
    steps: list[Callable[[], Any]] = []
    while left:
        same, rest = _evenly_spaced(left)
        steps.append(_batch(same) if len(same) > 1 else same[0].run)
        left = rest
    return steps


def _evenly_spaced(products: list[Product]) -> tuple[list[Product], list[Product]]:
    """The first of some products with those that follow in equal steps forward, and the others."""
    form = products[0].form
    assert isinstance(form, Form)
    count, size = 1, form.dtype.itemsize
    steps = _steps_between(*products[:2]) if len(products) > 1 else (-1,)
    if min(steps) >= 0 and not any(step % size for step in steps):
        while count < len(products) and _steps_between(*products[count - 1 : count + 1]) == steps:
            count += 1
    return products[:count], products[count:]


def _steps_between(first: Product, second: Product) -> tuple[int, ...]:
    return tuple(b - a for a, b in zip(first.places, second.places, strict=True))


def _batch(products: Sequence[Product]) -> Callable[[], Any]:
    """The call of cuBLAS for products whose matrices are evenly spaced."""
    form = products[0].form
    assert isinstance(form, Form)
    a, b, c = products[0].places
    size = form.dtype.itemsize
    steps = [step // size for step in _steps_between(*products[:2])]
    with precise_products() if form.is_precise else contextlib.nullcontext():
        return get_device().gemm(
            form.dtype, form.rows, form.cols, form.inner, len(products),
            a, form.pitch_a, form.trans_a, steps[0], b, form.pitch_b, form.trans_b, steps[1],
            c, form.pitch_c, steps[2], form.alpha, form.beta,
        )  # fmt: skip

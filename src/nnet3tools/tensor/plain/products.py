"""Copies, fills, sums and products on NumPy.

Matrix products are BLAS's, without copies; alpha and beta need no temporaries.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.basics import add_scaled
from nnet3tools.tensor.plain.blas import gemm, thread_setter
from nnet3tools.tensor.plain.threads import LOCK, REGISTER_BYTES, num_threads, register, run_all
from nnet3tools.tensor.registry import implements

_BLOCK_BYTES = 1 << 20

_CUT, _PART = 24, 1 << 23


def rows_of_step(columns: int, inner: int) -> int:
    """Rows of a product's output that one thread computes at least; parts begin at multiples.

    Each element is then the same sum for any number of threads: BLAS's kernels take 4, 8, 12 or 24
    rows at a time, and those for AVX-512 add up in another way below 28 * 512 * 512
    multiplications. Columns cannot be shared so, as BLAS adds up in another order where one of its
    blocks ends. BLAS has no threads of its own: it begins far below this size (0.1 ms), and its
    threads spin for 25 ms after each product, in the way of ours.
    """
    return -(-_PART // max(1, _CUT * columns * inner)) * _CUT


if num_threads() > 1 and (_set_threads := thread_setter()) is not None:
    _set_threads(1)


def _check(out: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    rows, inner = left.shape[-2:]
    if right.shape[-2] != inner or out.shape[-2:] != (rows, right.shape[-1]):
        raise ProgramError(
            f"prod: ({rows} x {inner}) times ({right.shape[-2]} x {right.shape[-1]}) does not "
            f"give {' x '.join(str(n) for n in out.shape)}"
        )


@implements("prod", "numpy", binder=True)
def bind_prod(
    out: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    trans_a: bool = False,
    trans_b: bool = False,
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Callable[[], Any]:
    """A callable for out = alpha op(a) op(b) + beta out; a large product is shared by threads."""
    if min(out.ndim, a.ndim, b.ndim) < 2:
        raise ProgramError("prod: operands must be matrices or stacks of matrices")
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    _check(out, left, right)
    cuts = _cuts(out, left, right) if num_threads() > 1 else []
    if len(cuts) <= 2:
        return _bind(out, a, b, trans_a, trans_b, alpha, beta)
    works = []
    for rows in map(slice, cuts, cuts[1:]):
        part = a[:, rows] if trans_a else a[rows]
        works.append(_bind(out[rows], part, b, trans_a, trans_b, alpha, beta))
    return functools.partial(run_all, *works)


def _cuts(out: np.ndarray, left: np.ndarray, right: np.ndarray) -> list[int]:
    """The rows of `out` where the threads' parts of a product begin, and the number of rows.

    A stack of matrices is one part, and so is a symmetric product, of which BLAS does half.
    """
    rows, step, parts = len(out), 1, 1
    if out.ndim == left.ndim == right.ndim == 2 and not is_symmetric(left, right):
        step = rows_of_step(out.shape[1], left.shape[1])
        parts = max(1, min(num_threads(), rows // step))
    return [(rows // step * i + parts // 2) // parts * step for i in range(parts)] + [rows]


def is_symmetric(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether `right` is the transpose of `left`, in the same memory."""
    if left.shape != right.shape[::-1] or left.strides != right.strides[::-1]:
        return False
    return address(left) == address(right)


def _bind(
    out: np.ndarray, a: np.ndarray, b: np.ndarray, trans_a: bool, trans_b: bool,
    alpha: float, beta: float,
) -> Callable[[], Any]:  # fmt: skip
    """A callable for out = alpha op(a) op(b) + beta out, by np.matmul if alpha is 1 and beta 0."""
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    if left.shape[-1] == 0 or out.size == 0:
        return functools.partial(_scale, out, beta)
    if alpha == 1.0 and beta == 0.0:
        return functools.partial(np.matmul, left, right, out)
    if out.ndim == a.ndim == b.ndim == 2 and out.dtype == a.dtype == b.dtype:
        if (found := gemm(out, a, b, trans_a, trans_b)) is not None:
            return found.bound(alpha, beta)
    return functools.partial(_blocks, out, left, right, alpha, beta)


def _scale(out: np.ndarray, beta: float) -> None:
    """Multiply out by beta: the result of a product whose inner dimension is 0."""
    if beta == 0.0:
        out.fill(0.0)
    elif beta != 1.0:
        np.multiply(out, out.dtype.type(beta), out=out)


def _blocks(
    out: np.ndarray, left: np.ndarray, right: np.ndarray, alpha: float, beta: float
) -> None:
    """Set out to alpha * left right + beta * out by blocks of rows, in scratch memory."""
    rows = max(64, _BLOCK_BYTES // max(1, out[..., :1, :].nbytes))
    factor = out.dtype.type(alpha)
    for start in range(0, out.shape[-2], rows):
        target = out[..., start : start + rows, :]
        with scratch(target.shape, like=out) as product:
            np.matmul(left[..., start : start + rows, :], right, out=product)
            if alpha != 1.0:
                np.multiply(product, factor, out=product)
            if beta == 0.0:
                np.copyto(target, product)
                continue
            if beta != 1.0:
                np.multiply(target, out.dtype.type(beta), out=target)
            np.add(target, product, out=target)


_DOT_BLOCK = 1 << 12
"""Products that are added up in float32."""


implements("copy", "numpy")(functools.partial(np.copyto, casting="unsafe"))
implements("fill", "numpy")(np.ndarray.fill)


@implements("scale", "numpy")
def scale(out: np.ndarray, alpha: float) -> None:
    """Multiply out by alpha."""
    np.multiply(out, out.dtype.type(alpha), out=out)


@implements("add", "numpy")
def add(out: np.ndarray, src: np.ndarray, alpha: float = 1.0) -> None:
    """Add alpha times src to out. As in BLAS, src is not read if alpha is 0."""
    if alpha == 0.0:
        return
    if alpha == 1.0:
        np.add(out, src, out=out, casting="unsafe")
    elif alpha == -1.0:
        np.subtract(out, src, out=out, casting="unsafe")
    elif not _added_scaled(out, src, alpha):
        add_scaled[out.dtype.name].bind(out, src, float(alpha))()


def _added_scaled(out: np.ndarray, src: np.ndarray, alpha: float) -> bool:
    """Add alpha * src to `out` by two NumPy calls, and return True; return False for other cases.

    It needs small arrays of one type and shape that share no memory, and saves 50 us of binding.
    """
    if out.shape != src.shape or out.dtype != src.dtype or out.nbytes > REGISTER_BYTES:
        return False
    if out.itemsize < 4:  # float16 is computed in float32
        return False
    if np.may_share_memory(out, src):
        return False
    with LOCK, np.errstate(all="ignore"):
        product = register(0).view(out.dtype)[: out.size].reshape(out.shape)
        np.add(out, np.multiply(src, out.dtype.type(alpha), product), out)
    return True


@implements("dot", "numpy")
def dot(a: np.ndarray, b: np.ndarray) -> float:
    """The sum of a * b; float32 products are added up in blocks, and the blocks in float64."""
    if a.ndim == 0:
        return float(a) * float(b)
    if a.dtype == np.float64:
        return float(np.vdot(a, b))
    if a.flags.c_contiguous and b.flags.c_contiguous:
        count, rest = divmod(a.size, _DOT_BLOCK)
        flat_a, flat_b = a.reshape(-1), b.reshape(-1)
        whole = a.size - rest
        total = float(np.vdot(flat_a[whole:], flat_b[whole:])) if rest else 0.0
        shape = count, _DOT_BLOCK
        return total + _dot_rows(flat_a[:whole].reshape(shape), flat_b[:whole].reshape(shape))
    return _dot_rows(a, b) if a.ndim > 1 else float(np.vdot(a, b))


def _dot_rows(a: np.ndarray, b: np.ndarray) -> float:
    """The sum over all rows of the dot products of rows, each computed by BLAS through matmul."""
    return float(np.matmul(a[..., None, :], b[..., :, None]).sum(dtype=np.float64))

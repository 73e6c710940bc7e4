"""Matrix products on NumPy: BLAS without copies; alpha and beta without temporaries."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.arrays import scratch
from nnet3tools.tensor.numpy_backend.blas import gemm, thread_setter
from nnet3tools.tensor.numpy_backend.threads import num_threads
from nnet3tools.tensor.registry import implements

_BLOCK_BYTES = 1 << 20

_THREAD_AT = 1 << 27
"""Multiplications from which a product takes several threads. OpenBLAS itself begins far below, and
its threads spin while they wait: on a busy machine small products then take ten times as long."""

_set_threads = thread_setter() if num_threads() > 1 else None
if _set_threads is not None:
    _set_threads(1)


def _in_threads(set_threads: Callable[[int], None], call: Callable[[], Any]) -> None:
    set_threads(num_threads())
    try:
        call()
    finally:
        set_threads(1)


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
    """The product bound; large ones take several threads where there are."""
    call = _bind(out, a, b, trans_a, trans_b, alpha, beta)
    if _set_threads is None or out.size * a.shape[-2 if trans_a else -1] < _THREAD_AT:
        return call
    return functools.partial(_in_threads, _set_threads, call)


def _bind(
    out: np.ndarray, a: np.ndarray, b: np.ndarray, trans_a: bool, trans_b: bool,
    alpha: float, beta: float,
) -> Callable[[], Any]:  # fmt: skip
    """Matmul for a plain product (it knows symmetric ones), gemm for the others."""
    if min(out.ndim, a.ndim, b.ndim) < 2:
        raise ProgramError("prod: operands must be matrices or stacks of matrices")
    left = a.swapaxes(-1, -2) if trans_a else a
    right = b.swapaxes(-1, -2) if trans_b else b
    _check(out, left, right)
    if left.shape[-1] == 0 or out.size == 0:
        return functools.partial(_scale, out, beta)
    if alpha == 1.0 and beta == 0.0:
        return functools.partial(np.matmul, left, right, out)
    if out.ndim == a.ndim == b.ndim == 2 and out.dtype == a.dtype == b.dtype:
        call = gemm(out, a, b, trans_a, trans_b, alpha, beta)
        if call is not None:
            return call
    return functools.partial(_blocks, out, left, right, alpha, beta)


def _scale(out: np.ndarray, beta: float) -> None:
    """The result of a product over nothing: a multiple of out."""
    if beta == 0.0:
        out.fill(0.0)
    elif beta != 1.0:
        np.multiply(out, out.dtype.type(beta), out=out)


def _blocks(
    out: np.ndarray, left: np.ndarray, right: np.ndarray, alpha: float, beta: float
) -> None:
    """By blocks of rows, the product of each in scratch while it is added."""
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

"""gemm with alpha, beta and row strides, from the BLAS that NumPy itself brings.

NumPy's matmul has no beta: accumulating a product (every gradient is one) would cost a temporary
and two more passes over the output. NumPy's wheels carry OpenBLAS as a shared library, already
loaded; its cblas functions are called through ctypes. Where that is not found, or does not compute
what it should, `gemm` says so and the caller falls back on matmul.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nnet3tools.tensor.addresses import address

_ROW_MAJOR, _NO_TRANS, _TRANS = 101, 111, 112
_REALS = {"s": ctypes.c_float, "d": ctypes.c_double}
_NAMES = (
    ("scipy_cblas_{}gemm64_", ctypes.c_int64),
    ("cblas_{}gemm64_", ctypes.c_int64),
    ("scipy_cblas_{}gemm", ctypes.c_int32),
    ("cblas_{}gemm", ctypes.c_int32),
)
_LETTERS = {np.dtype(np.float32): "s", np.dtype(np.float64): "d"}


def _find(library: ctypes.CDLL, letter: str) -> Callable[..., None] | None:
    for pattern, integer in _NAMES:
        if (function := getattr(library, pattern.format(letter), None)) is not None:
            real, pointer = _REALS[letter], ctypes.c_void_p
            function.restype = None
            function.argtypes = [
                ctypes.c_int, ctypes.c_int, ctypes.c_int, integer, integer, integer,
                real, pointer, integer, pointer, integer, real, pointer, integer,
            ]  # fmt: skip
            return function
    return None


@functools.cache
def _libraries() -> list[ctypes.CDLL]:
    """The shared libraries of OpenBLAS that NumPy brings, as far as they can be loaded."""
    root, found = os.path.dirname(np.__file__), []
    for folder in (f"{root}.libs", f"{root}/.dylibs", f"{root}/.libs"):
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
            if "openblas" in name:
                with contextlib.suppress(OSError):
                    found.append(ctypes.CDLL(os.path.join(folder, name)))
    return found


def _works(functions: dict[np.dtype, Callable[..., None]]) -> bool:
    """Whether a library's gemm of each type gives the right numbers on a small strided product."""
    for dtype, function in functions.items():
        a, b = np.arange(21, dtype=dtype).reshape(3, 7)[:, :4], np.ones((5, 4), dtype)
        out = np.full((3, 6), 2.0, dtype)
        expected = out.copy()
        expected[:, :5] = 0.5 * (a @ b.T) + 3.0 * expected[:, :5]
        function(
            _ROW_MAJOR, _NO_TRANS, _TRANS, 3, 5, 4, 0.5,
            address(a), 7, address(b), 4, 3.0, address(out), 6,
        )  # fmt: skip
        if not np.array_equal(out, expected):
            return False
    return True


@functools.cache
def _functions() -> dict[np.dtype, Callable[..., None]]:
    """BLAS's gemm (C interface) by element type; empty if this NumPy's BLAS cannot be called."""
    for library in _libraries():
        found = {dtype: _find(library, letter) for dtype, letter in _LETTERS.items()}
        functions: dict[Any, Any] = {dtype: f for dtype, f in found.items() if f is not None}
        if len(functions) == len(_LETTERS) and _works(functions):
            return functions
    return {}


@functools.cache
def thread_setter() -> Callable[[int], None] | None:
    """OpenBLAS's function that sets its number of threads; None if there is none."""
    for library in _libraries():
        for name in (
            "scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_",
            "scipy_openblas_set_num_threads", "openblas_set_num_threads",
        ):  # fmt: skip
            if (function := getattr(library, name, None)) is not None:
                function.restype, function.argtypes = None, [ctypes.c_int]
                return function
    return None


def _row_stride(matrix: np.ndarray) -> int:
    """Elements from row to row of a matrix, for BLAS; 0 if BLAS cannot take the matrix."""
    (rows, columns), (down, along) = matrix.shape, matrix.strides
    item = matrix.itemsize
    if columns > 1 and along != item:
        return 0
    if rows <= 1:
        return max(1, columns)
    return down // item if down % item == 0 and down >= max(1, columns) * item else 0


def _layout(matrix: np.ndarray, trans: bool) -> tuple[bool, int]:
    """(whether transposed, row stride) of op(matrix) for BLAS; stride 0 if BLAS cannot take it."""
    if stride := _row_stride(matrix):
        return trans, stride
    return not trans, _row_stride(matrix.T)


class Gemm(NamedTuple):
    """Arguments of BLAS's gemm for out = alpha op(a) op(b) + beta out.

    BLAS sees matrices with rows of `stride_a`, ... elements; with `flip_a` op is the transpose of
    what it sees of a, likewise for b. `inner` is the number of products that an element adds up.
    """

    function: Any
    out: np.ndarray
    a: np.ndarray
    b: np.ndarray
    flip_a: bool
    flip_b: bool
    stride_out: int
    stride_a: int
    stride_b: int
    inner: int

    @property
    def is_wide(self) -> bool:
        """Whether BLAS takes 64-bit sizes."""
        return bool(self.function.argtypes[3] is ctypes.c_int64)

    def bound(self, alpha: float, beta: float) -> Callable[[], Any]:
        """A callable that computes out = alpha op(a) op(b) + beta out."""
        arguments = (
            _ROW_MAJOR, _TRANS if self.flip_a else _NO_TRANS, _TRANS if self.flip_b else _NO_TRANS,
            *self.out.shape, self.inner, alpha, address(self.a), self.stride_a,
            address(self.b), self.stride_b, beta, address(self.out), self.stride_out,
        )  # fmt: skip
        # the partial keeps the arrays alive: BLAS sees only addresses
        return functools.partial(_call, self.function, arguments, self)


def gemm(
    out: np.ndarray, a: np.ndarray, b: np.ndarray, trans_a: bool, trans_b: bool
) -> Gemm | None:
    """The arguments of BLAS's gemm for out = op(a) op(b); None if BLAS cannot take the matrices.

    op transposes if `trans_a`, `trans_b`. The caller has checked sizes (none is 0) and types.
    """
    if (function := _functions().get(out.dtype)) is None:
        return None
    if not (stride := _row_stride(out)):
        if not _row_stride(out.T):
            return None
        return gemm(out.T, b, a, not trans_b, not trans_a)
    (flip_a, stride_a), (flip_b, stride_b) = _layout(a, trans_a), _layout(b, trans_b)
    if not stride_a or not stride_b:
        return None
    inner = a.shape[0] if trans_a else a.shape[1]
    return Gemm(function, out, a, b, flip_a, flip_b, stride, stride_a, stride_b, inner)


def _call(function: Callable[..., None], arguments: tuple[Any, ...], _alive: Any) -> None:
    function(*arguments)

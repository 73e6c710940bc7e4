"""Matrix products of CuPy's arrays by cuBLAS itself, as CuPy's wrappers refuse to be captured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from nnet3tools.errors import OptionError, ProgramError
from nnet3tools.tensor.basics import are_precise
from nnet3tools.tensor.cuda.cublas_lt import CublasLt, Operand, Rule, selected_rule
from nnet3tools.tensor.cuda.device import Array, Gemm

_WORKSPACE_BYTES = 32 << 20
"""The size that cuBLAS recommends for the newest devices. Each stream has its own workspace."""

_COMPUTE_TYPES = {"fp32": 68, "tf32": 77, "fp16": 74, "bf16": 75}
"""--gpu-math -> cublasComputeType_t. All of them store and accumulate float32."""
_COMPUTE_64F = 70
_CUDA_R = {"float32": 0, "float64": 1}
_NOT_INITIALIZED, _ALLOC_FAILED = 1, 3
"""cublasStatus_t for lack of memory: the first is what cublasCreate may return for it."""
_FIRST_OF_FAST_MATH = 8
"""Compute capability (major) that tf32 and bf16 products need."""

_math_mode = "fp32"


def set_math_mode(name: str) -> None:
    """Set the arithmetic of float32 products: fp32, tf32, fp16, bf16; OptionError if lacking."""
    global _math_mode
    if name not in _COMPUTE_TYPES:
        raise OptionError(f"--gpu-math={name}: expected {'|'.join(_COMPUTE_TYPES)}")
    major = _capability()
    if name in ("tf32", "bf16") and major < _FIRST_OF_FAST_MATH:
        raise OptionError(f"--gpu-math={name}: this device has compute capability {major}.x")
    _math_mode = name


def _compute_type(dtype: np.dtype) -> int:
    if dtype != np.float32:
        return _COMPUTE_64F
    if _math_mode in ("fp16", "bf16") and are_precise():
        return _COMPUTE_TYPES["tf32" if _capability() >= _FIRST_OF_FAST_MATH else "fp32"]
    return _COMPUTE_TYPES[_math_mode]


def _capability() -> int:
    """The major number of the current device's compute capability."""
    return int(cupy.cuda.Device().compute_capability[:-1])


def load_cublas() -> Any:
    """The cuBLAS library that CuPy uses."""
    from cupy_backends.cuda.libs import cublas  # noqa: F401 (loads the shared library)

    major = cupy.cuda.runtime.runtimeGetVersion() // 1000
    return ctypes.CDLL(f"libcublas.so.{major}")


class Cublas:
    """A cuBLAS library handle with a workspace for each stream that products are sent to."""

    def __init__(self, stream: int, upload: Callable[[np.ndarray], Array]) -> None:
        self._upload = upload
        self._betas: dict[tuple[np.dtype, float], Array] = {}
        self._library = load_cublas()
        self._handle = ctypes.c_void_p()
        status = self._library.cublasCreate_v2(ctypes.byref(self._handle))
        self._check(_ALLOC_FAILED if status == _NOT_INITIALIZED else status)
        self._lt = CublasLt(self._library, self._handle, self._check)
        self._workspaces: dict[int, Array] = {}
        self.use(stream)

    def use(self, stream: int) -> None:
        """Send later products to the CUDA stream `stream`.

        Each stream has a workspace, because products of two streams may run at the same time. All
        have one size, because cuBLAS's choice of a kernel, and so rounding, depends on the size.
        """
        if stream not in self._workspaces:
            self._workspaces[stream] = cupy.empty(_WORKSPACE_BYTES, cupy.uint8)
        workspace, size = self._workspaces[stream].data.ptr, ctypes.c_size_t(_WORKSPACE_BYTES)
        place = ctypes.c_void_p(workspace), size, ctypes.c_void_p(stream)
        self._check(self._library.cublasSetStream_v2(self._handle, place[2]))
        # a new stream brings cuBLAS's own workspace back
        self._check(self._library.cublasSetWorkspace_v2(self._handle, *place[:2]))
        self._lt.place = place

    @staticmethod
    def _check(status: int) -> None:
        if status == _ALLOC_FAILED:
            raise MemoryError("cuBLAS is out of memory")
        if status != 0:
            raise ProgramError(f"cuBLAS returned status {status}")

    def bind(
        self, dtype: np.dtype, rows: int, cols: int, inner: int, batch: int,
        a: int, lda: int, trans_a: bool, stride_a: int,
        b: int, ldb: int, trans_b: bool, stride_b: int,
        c: int, ldc: int, stride_c: int, alpha: Any, beta: float, rule: Rule | None = None,
    ) -> Gemm:  # fmt: skip
        """A callable that computes C = alpha op(A) op(B) + beta C for a batch of matrices.

        op(A) is rows x inner, op(B) inner x cols, row-major. a, b, c are addresses; lda,
        ldb, ldc row strides, stride_* the distances of matrices, in elements. cuBLAS
        computes the column-major product C' = op(B)' op(A)'. `rule` chooses one of cublasLt's
        algorithms; None: as `selected_rule` says.
        """
        on_device = not isinstance(alpha, float)
        factors = self._factors(dtype, alpha, beta)
        kind, compute = _CUDA_R[dtype.name], _compute_type(dtype)
        if rule := rule or selected_rule():
            operands = (
                Operand(b, cols, inner, trans_b, ldb, stride_b),
                Operand(a, inner, rows, trans_a, lda, stride_a),
                Operand(c, cols, rows, False, ldc, stride_c),
            )
            if done := self._lt.bind(rule, kind, compute, batch, operands, factors, on_device):
                return done
        integer, pointer, long = ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong
        args: tuple[Any, ...] = (
            self._handle, integer(int(trans_b)), integer(int(trans_a)),
            integer(cols), integer(rows), integer(inner),
            factors[0], pointer(b), integer(kind), integer(ldb), long(stride_b),
            pointer(a), integer(kind), integer(lda), long(stride_a),
            factors[1], pointer(c), integer(kind), integer(ldc), long(stride_c),
            integer(batch), integer(compute), integer(-1),
        )  # fmt: skip
        function = self._library.cublasGemmStridedBatchedEx
        if batch == 1:
            function = self._library.cublasGemmEx
            args = tuple(x for i, x in enumerate(args) if i not in (10, 14, 19, 20))
        check, set_mode = self._check, self._library.cublasSetPointerMode_v2

        def run() -> None:
            check(set_mode(self._handle, integer(on_device)))
            check(function(*args))

        return run

    def _factors(self, dtype: np.dtype, alpha: Any, beta: float) -> tuple[Any, Any]:
        """Pointers to alpha and beta as `dtype`: on the host if alpha is a float, else on a GPU."""
        if isinstance(alpha, float):
            scalar = ctypes.c_float if dtype == np.float32 else ctypes.c_double
            return ctypes.byref(scalar(alpha)), ctypes.byref(scalar(beta))
        if (key := (dtype, beta)) not in self._betas:
            self._betas[key] = self._upload(np.array([beta], dtype))
        at, beta_at = (ctypes.c_void_p(x.data.ptr) for x in (alpha, self._betas[key]))
        at.array = alpha  # type: ignore[attr-defined]  # kept as long as its address
        return at, beta_at

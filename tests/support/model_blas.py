"""cuBLAS's functions that cublas.py calls, with their arguments as C has them, done by NumPy.

Matrices are column-major; factors are in host or device memory, as the pointer mode says. Products
are given to the handle's stream, whatever stream is current.
"""

import ctypes
from typing import Any

import numpy as np

from support.model_memory import is_memory
from support.model_streams import Launch, get_machine

_TYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
_COMPUTE = {68: 0, 74: 0, 75: 0, 77: 0, 70: 1}
"""cublasComputeType_t -> the type of the matrices that go with it."""
_HALF = (74,)


class ModelCublas:
    """The library; one handle."""

    def __init__(self) -> None:
        self.status = 0
        """What products return; those that fail do nothing."""
        self._stream: Any = None
        self._factors_on_device = False
        self._workspace = 0
        self._users: dict[int, Any] = {}
        """Workspace -> the stream whose products use it: two streams' would disturb each other."""

    def cublasCreate_v2(self, handle: Any) -> int:
        handle._obj.value = 1
        return 1 if get_machine().lacks_memory_for == "cublas" else 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self._stream = next(s for s in get_machine().streams if s.ptr == (stream.value or 0))
        self._workspace = 0  # as with cuBLAS
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, workspace: Any, size: Any) -> int:
        assert workspace.value % 256 == 0
        assert is_memory(workspace.value, workspace.value + size.value)
        self._workspace = workspace.value
        assert self._users.setdefault(self._workspace, self._stream) is self._stream
        return 0

    def cublasSetPointerMode_v2(self, handle: Any, mode: int) -> int:
        self._factors_on_device = bool(mode)
        return 0

    def cublasGemmEx(
        self, handle: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, a_type: Any, lda: Any, b: Any, b_type: Any, ldb: Any,
        beta: Any, c: Any, c_type: Any, ldc: Any, compute: Any, algorithm: Any,
    ) -> int:  # fmt: skip
        none, one = ctypes.c_longlong(0), ctypes.c_int(1)
        return self.cublasGemmStridedBatchedEx(
            handle, trans_a, trans_b, m, n, k, alpha, a, a_type, lda, none, b, b_type, ldb, none,
            beta, c, c_type, ldc, none, one, compute, algorithm,
        )  # fmt: skip

    def cublasGemmStridedBatchedEx(
        self, handle: Any, trans_a: Any, trans_b: Any, m: Any, n: Any, k: Any,
        alpha: Any, a: Any, a_type: Any, lda: Any, stride_a: Any,
        b: Any, b_type: Any, ldb: Any, stride_b: Any,
        beta: Any, c: Any, c_type: Any, ldc: Any, stride_c: Any, batch: Any,
        compute: Any, algorithm: Any,
    ) -> int:  # fmt: skip
        if self.status:
            return self.status
        machine = get_machine()
        assert self._workspace, "cuBLAS's own workspace does not go with captures"
        kinds = {a_type.value, b_type.value, c_type.value, _COMPUTE[compute.value]}
        assert len(kinds) == 1
        dtype = _TYPES[kinds.pop()]
        rows, cols, inner, count = m.value, n.value, k.value, batch.value
        pitches = lda.value, ldb.value, ldc.value
        launch = Launch("gemm", args=(dtype, rows, cols, inner, count, *pitches))
        if not machine.runs:
            self._stream.do(launch, lambda: None)
            return 0
        x = _matrix(a, rows, inner, trans_a.value, lda.value, stride_a.value, count, dtype)
        y = _matrix(b, inner, cols, trans_b.value, ldb.value, stride_b.value, count, dtype)
        out = _matrix(c, rows, cols, 0, ldc.value, stride_c.value, count, dtype)
        factors = [self._factor(f, dtype) for f in (alpha, beta)]
        half = compute.value in _HALF

        def work() -> None:
            one, other = (f() for f in factors)
            with np.errstate(all="ignore"):
                left, right = (z.astype(np.float16).astype(dtype) if half else z for z in (x, y))
                value = one * (left @ right)
                out[...] = value if other == 0 else value + other * out

        self._stream.do(launch, work)
        return 0

    def _factor(self, given: Any, dtype: np.dtype) -> Any:
        """A function that gives it when the product runs."""
        kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
        if not self._factors_on_device:
            assert isinstance(given._obj, kind)
            value = dtype.type(given._obj.value)
            return lambda: value
        assert is_memory(given.value, given.value + dtype.itemsize)
        return lambda: dtype.type(kind.from_address(given.value).value)


def _matrix(
    at: Any, rows: int, cols: int, transposed: int, pitch: int, step: int, count: int, dtype: Any
) -> np.ndarray:
    """count x rows x cols of a column-major matrix (of its transpose, if stored so)."""
    tall, wide = (cols, rows) if transposed else (rows, cols)
    assert pitch >= max(tall, 1), "cuBLAS: a leading dimension is too small"
    size = (count - 1) * step + (wide - 1) * pitch + tall
    item = dtype.itemsize
    assert is_memory(at.value, at.value + size * item), "cuBLAS: a matrix lies outside of memory"
    kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
    flat = np.ctypeslib.as_array((kind * size).from_address(at.value))
    strides = (step * item, item, pitch * item)
    found = np.lib.stride_tricks.as_strided(flat, (count, tall, wide), strides)
    return found.swapaxes(1, 2) if transposed else found

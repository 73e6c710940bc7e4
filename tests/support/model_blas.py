"""cuBLAS's functions that cublas.py calls, with their arguments as C has them, done by NumPy.

Matrices are column-major; factors are in host or device memory, as the pointer mode says. Products
are given to the handle's stream, whatever stream is current.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from support.model_cublas_lt import ModelCublasLt
from support.model_memory import is_memory
from support.model_streams import Launch, get_machine

_TYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64)}
_COMPUTE = {68: 0, 74: 0, 75: 0, 77: 0, 70: 1}
"""cublasComputeType_t -> the type of the matrices that go with it."""
_HALF = (74,)


class ModelCublas(ModelCublasLt):
    """The library; one handle."""

    def __init__(self) -> None:
        super().__init__()
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
        self._factors_on_device = bool(mode.value)
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
        kind, *others = (x.value for x in (a_type, b_type, c_type))
        assert others == [kind, kind]
        rows, cols, inner, x, y = (v.value for v in (m, n, k, trans_a, trans_b))
        matrices = [
            (a, *((inner, rows) if x else (rows, inner)), x, lda.value, stride_a.value),
            (b, *((cols, inner) if y else (inner, cols)), y, ldb.value, stride_b.value),
            (c, rows, cols, 0, ldc.value, stride_c.value),
        ]
        return self.multiply(
            ctypes.c_void_p(self._stream.ptr), ctypes.c_void_p(self._workspace), compute.value,
            kind, batch.value, matrices, alpha, beta, self._factors_on_device,
        )  # fmt: skip

    def multiply(
        self, stream: Any, workspace: Any, compute: int, kind: int, count: int,
        matrices: Sequence[Any], alpha: Any, beta: Any, on_device: bool,
    ) -> int:  # fmt: skip
        """A product of matrices (address, rows, cols, transposed, pitch, step): A, B and C."""
        machine = get_machine()
        assert workspace.value, "cuBLAS's own workspace does not go with captures"
        queue = next(s for s in machine.streams if s.ptr == stream.value)
        assert self._users.setdefault(workspace.value, queue) is queue
        assert kind == _COMPUTE[compute]
        dtype = _TYPES[kind]
        (_, rows, cols, *_), pitches = matrices[2], [x[4] for x in matrices]
        inner = matrices[0][1 if matrices[0][3] else 2]
        launch = Launch("gemm", args=(dtype, rows, cols, inner, count, *pitches))
        if not machine.runs:
            queue.do(launch, lambda: None)
            return 0
        x, y, out = (_matrix(*given, count, dtype) for given in matrices)
        factors = [self._factor(f, dtype, on_device) for f in (alpha, beta)]
        half = compute in _HALF

        def work() -> None:
            one, other = (f() for f in factors)
            with np.errstate(all="ignore"):
                left, right = (z.astype(np.float16).astype(dtype) if half else z for z in (x, y))
                value = one * (left @ right)
                out[...] = value if other == 0 else value + other * out

        queue.do(launch, work)
        return 0

    def _factor(self, given: Any, dtype: np.dtype, on_device: bool) -> Any:
        """A function that gives it when the product runs."""
        kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
        if not on_device:
            assert isinstance(given._obj, kind)
            value = dtype.type(given._obj.value)
            return lambda: value
        assert is_memory(given.value, given.value + dtype.itemsize)
        return lambda: dtype.type(kind.from_address(given.value).value)


def _matrix(
    at: Any, tall: int, wide: int, transposed: int, pitch: int, step: int, count: int, dtype: Any
) -> np.ndarray:
    """count x tall x wide of a column-major matrix, or its transpose."""
    assert pitch >= max(tall, 1), "cuBLAS: a leading dimension is too small"
    size = (count - 1) * step + (wide - 1) * pitch + tall
    item = dtype.itemsize
    assert is_memory(at.value, at.value + size * item), "cuBLAS: a matrix lies outside of memory"
    kind = ctypes.c_float if dtype == np.float32 else ctypes.c_double
    flat = np.ctypeslib.as_array((kind * size).from_address(at.value))
    strides = (step * item, item, pitch * item)
    found = np.lib.stride_tricks.as_strided(flat, (count, tall, wide), strides)
    return found.swapaxes(1, 2) if transposed else found

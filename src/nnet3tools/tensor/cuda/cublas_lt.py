"""Matrix products by cublasLt, with an algorithm that a fixed rule chooses.

From Ampere on cublasGemmEx ignores the algorithm that it is given; cublasLt does not. It proposes
algorithms in the order of the times that it expects. Nothing is timed here, so that two runs choose
the same algorithms and give the same bytes.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nnet3tools.errors import OptionError
from nnet3tools.tensor.cuda.device import Gemm

# of cublasLt.h
_LAYOUT_BATCH_COUNT, _LAYOUT_STRIDED_BATCH_OFFSET = 5, 6
_DESC_POINTER_MODE, _DESC_TRANSA, _DESC_TRANSB = 2, 3, 4
_PREF_MAX_WORKSPACE_BYTES, _PREF_REDUCTION_SCHEME_MASK, _PREF_ALIGNMENT_A = 1, 3, 5
_SCHEME_COMPUTE_TYPE, _SCHEME_OUTPUT_TYPE = 2, 4
_ALGO_CONFIG_SPLITK_NUM = 2
_NOT_SUPPORTED = 15

_PROPOSALS = 8
_ALIGNMENT = 16
"""Bytes that a kernel loads at a time at most: a higher alignment of addresses has no use."""
_ENOUGH, _SHORTEST = 0.8, 256
_VARIABLE = "NNET3TOOLS_GPU_PRODUCTS"


class _HeuristicResult(ctypes.Structure):
    _fields_ = (
        ("algo", ctypes.c_uint64 * 8), ("workspaceSize", ctypes.c_size_t), ("state", ctypes.c_int),
        ("wavesCount", ctypes.c_float), ("reserved", ctypes.c_int * 4),
    )  # fmt: skip


class Algorithm(NamedTuple):
    """An algorithm that cublasLt proposes for a product.

    `waves` is the number of its blocks, divided by those that the GPU runs at the same time; 0 if
    cublasLt does not know. The sums are split into `parts` of `length` terms (split-K).
    """

    result: Any
    waves: float
    parts: int
    length: int

    @property
    def busy(self) -> float:
        """The fraction of the GPU that has work, as a mean over waves; 1 if it is not known."""
        return self.waves / math.ceil(self.waves) if self.waves > 0 else 1.0


Rule = Callable[[Sequence[Algorithm]], Algorithm]


def choose(proposed: Sequence[Algorithm]) -> Algorithm:
    """The first of the proposed algorithms that gives enough of the GPU work.

    Enough is 0.8 of what the fullest does: the order, which considers tiles and memory, is left
    only if a quarter more is at work. For 78 blocks on 132 processors (0.59) that is 0.74. Any but
    the first is left out if it splits the sums into parts of less than 256 terms: a second kernel
    adds the parts, in 2 us on an H100, and 256 terms of a 64 x 64 block take 5 us in fp32.
    """
    first, *others = proposed
    able = [x for x in others if x.waves > 0 and (x.parts == 1 or x.length >= _SHORTEST)]
    enough = _ENOUGH * max(x.busy for x in (first, *able))
    return next(x for x in (first, *able) if x.busy >= enough)


def selected_rule() -> Rule | None:
    """The rule that NNET3TOOLS_GPU_PRODUCTS selects: None for "cublas", the default."""
    name = os.environ.get(_VARIABLE) or "cublas"
    if name not in ("cublas", "cublaslt"):
        raise OptionError(f"{_VARIABLE}={name}: expected cublas|cublaslt")
    return choose if name == "cublaslt" else None


class Operand(NamedTuple):
    """A batch of column-major matrices at address `at`, rows x cols if `transposed` is done.

    `pitch` is the distance of columns, `step` of matrices, in elements.
    """

    at: int
    rows: int
    cols: int
    transposed: bool
    pitch: int
    step: int


class CublasLt:
    """Products by cublasLt; those that run next have the `place` (workspace, its bytes, stream)."""

    def __init__(self, library: Any, handle: Any, check: Callable[[int], None]) -> None:
        """Store cuBLAS's handle, which also is one of cublasLt; `check` raises a status's error."""
        self._library, self._handle, self._check = library, handle, check
        self.place: tuple[Any, Any, Any]
        self._plan = functools.cache(self._new_plan)

    def bind(
        self, rule: Rule, kind: int, compute: int, batch: int, operands: Sequence[Operand],
        factors: Sequence[Any], on_device: bool,
    ) -> Gemm | None:  # fmt: skip
        """A callable that computes C = alpha op(A) op(B) + beta C; None if cublasLt cannot.

        `kind` is the cudaDataType of all elements, `compute` the cublasComputeType_t. `operands`
        are A, B and C, `factors` pointers to alpha and beta: on the device or on the host.
        """
        aligned = tuple(x._replace(at=math.gcd(x.at, _ALIGNMENT)) for x in operands)
        description, layouts, proposed = self._plan(kind, compute, batch, aligned, on_device)
        if not proposed:
            return None
        a, b, c = ((ctypes.c_void_p(x.at), y) for x, y in zip(operands, layouts, strict=True))
        (alpha, beta), algorithm = factors, ctypes.byref(rule(proposed).result)
        args = self._handle, description, alpha, *a, *b, beta, *c, *c, algorithm
        check, function = self._check, self._library.cublasLtMatmul
        return lambda: check(function(*args, *self.place))

    def _new_plan(
        self, kind: int, compute: int, batch: int, operands: Sequence[Operand], on_device: bool
    ) -> tuple[Any, list[Any], list[Algorithm]]:
        """(description, layouts of the operands, algorithms); `at` is the operands' alignment.

        Parts of sums are added in a fixed order, which cublasLt does not promise for
        CUBLASLT_REDUCTION_SCHEME_INPLACE, where blocks add theirs to the output.
        """
        integer, long, natural = ctypes.c_int, ctypes.c_longlong, ctypes.c_uint32
        a, b, c = operands
        stored = [(x.cols, x.rows) if x.transposed else (x.rows, x.cols) for x in operands]
        description = self._make(
            "MatmulDesc", (compute, kind), (_DESC_POINTER_MODE, integer(on_device)),
            (_DESC_TRANSA, integer(a.transposed)), (_DESC_TRANSB, integer(b.transposed)),
        )  # fmt: skip
        layouts = [
            self._make(
                "MatrixLayout", (kind, *map(long, (*sizes, x.pitch))),
                (_LAYOUT_BATCH_COUNT, integer(batch)),
                (_LAYOUT_STRIDED_BATCH_OFFSET, long(x.step)),
            )
            for x, sizes in zip(operands, stored, strict=True)
        ]  # fmt: skip
        preference = self._make(
            "MatmulPreference", (),
            (_PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(self.place[1].value)),
            (_PREF_REDUCTION_SCHEME_MASK, natural(_SCHEME_COMPUTE_TYPE | _SCHEME_OUTPUT_TYPE)),
            *((_PREF_ALIGNMENT_A + i, natural(x.at)) for i, x in enumerate((a, b, c, c))),
        )  # fmt: skip
        results, count = (_HeuristicResult * _PROPOSALS)(), integer()
        status = self._library.cublasLtMatmulAlgoGetHeuristic(
            self._handle, description, *layouts, layouts[2], preference, _PROPOSALS, results,
            ctypes.byref(count),
        )  # fmt: skip
        self._check(status if status != _NOT_SUPPORTED else 0)
        found = [self._algorithm(x, a.cols) for x in results[: count.value] if x.state == 0]
        return description, layouts, found

    def _algorithm(self, result: Any, inner: int) -> Algorithm:
        get, parts = self._library.cublasLtMatmulAlgoConfigGetAttribute, ctypes.c_int()
        into = ctypes.byref(parts), ctypes.c_size_t(ctypes.sizeof(parts)), None
        self._check(get(ctypes.byref(result), _ALGO_CONFIG_SPLITK_NUM, *into))
        split = max(parts.value, 1)
        return Algorithm(result, round(result.wavesCount, 3), split, inner // split)

    def _make(self, kind: str, args: Sequence[Any], *attributes: tuple[int, Any]) -> Any:
        """Create a cublasLt descriptor with `attributes` (number, value); it is never destroyed."""
        made, library = ctypes.c_void_p(), self._library
        self._check(getattr(library, f"cublasLt{kind}Create")(ctypes.byref(made), *args))
        for name, value in attributes:
            change, size = getattr(library, f"cublasLt{kind}SetAttribute"), ctypes.sizeof(value)
            self._check(change(made, name, ctypes.byref(value), ctypes.c_size_t(size)))
        return made

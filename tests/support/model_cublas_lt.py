"""cublasLt's functions that cublas_lt.py calls, with their arguments as C has them.

The numbers are those of cublasLt.h (CUDA 12.9): of attributes, with the C type of their values.
"""

import ctypes
from dataclasses import dataclass, field
from typing import Any

_INVALID_VALUE, _NOT_SUPPORTED = 7, 15
_DESCRIPTION = {2: ctypes.c_int32, 3: ctypes.c_int32, 4: ctypes.c_int32}
"""Pointer mode, transposition of A and of B."""
_LAYOUT = {5: ctypes.c_int32, 6: ctypes.c_int64}
"""Number and distance of the matrices of a batch."""
_PREFERENCE = {
    1: ctypes.c_uint64,
    3: ctypes.c_uint32,
    **dict.fromkeys(range(5, 9), ctypes.c_uint32),
}
"""Most bytes of workspace, reduction schemes, least alignments of A, B, C and D."""
_SPLITK_NUM = 2
_FIXED_ORDER = 6
"""Reduction schemes: those where a kernel adds what others left in the workspace."""


@dataclass(frozen=True)
class Proposal:
    """An algorithm that the model proposes for every product."""

    waves: float
    parts: int = 1
    workspace: int = 0
    state: int = 0


@dataclass
class _Made:
    args: tuple[int, ...]
    kinds: dict[int, Any]
    attributes: dict[int, int] = field(default_factory=dict)


class ModelCublasLt:
    """The library; its handles are those of cuBLAS, and so is its arithmetic."""

    def __init__(self) -> None:
        self.proposals = (Proposal(0.59), Proposal(1.8), Proposal(2.0, 2, 1 << 20))
        self.status = 0
        """What products return; those that fail do nothing."""
        self.num_searches = 0
        self.used: list[int] = []
        """For each product the number of its algorithm."""
        self._made: dict[int, _Made] = {}

    def _make(self, made: Any, kinds: dict[int, Any], *args: int) -> int:
        made._obj.value = 100 + len(self._made)
        self._made[made._obj.value] = _Made(args, kinds)
        return 0

    def cublasLtMatmulDescCreate(self, made: Any, compute: int, scale: int) -> int:
        return self._make(made, _DESCRIPTION, compute, scale)

    def cublasLtMatrixLayoutCreate(
        self, made: Any, kind: int, rows: Any, cols: Any, pitch: Any
    ) -> int:
        assert {ctypes.sizeof(x) for x in (rows, cols, pitch)} == {8}
        return self._make(made, _LAYOUT, kind, rows.value, cols.value, pitch.value)

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:
        return self._make(made, _PREFERENCE)

    def _set(self, made: Any, attribute: int, value: Any, size: Any) -> int:
        found = self._made[made.value]
        if size.value != ctypes.sizeof(found.kinds[attribute]):
            return _INVALID_VALUE
        assert type(value._obj) is found.kinds[attribute]
        found.attributes[attribute] = value._obj.value
        return 0

    cublasLtMatmulDescSetAttribute = cublasLtMatrixLayoutSetAttribute = _set
    cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: Any, description: Any, a: Any, b: Any, c: Any, d: Any, preference: Any,
        wanted: int, results: Any, count: Any,
    ) -> int:  # fmt: skip
        assert handle.value == 1
        self.num_searches += 1
        if not self.proposals:
            return _NOT_SUPPORTED
        limits = self._made[preference.value].attributes
        assert limits[3] == _FIXED_ORDER
        usable = [x for x in self.proposals if x.workspace <= limits[1]][:wanted]
        for result, proposal in zip(results, usable, strict=False):
            number = self.proposals.index(proposal)
            result.algo[:] = [number, proposal.parts, *(limits[i] for i in range(5, 9)), 0, 0]
            result.workspaceSize, result.state = proposal.workspace, proposal.state
            result.wavesCount = proposal.waves
        count._obj.value = len(usable)
        return 0

    def cublasLtMatmulAlgoConfigGetAttribute(
        self, algorithm: Any, attribute: int, value: Any, size: Any, written: Any
    ) -> int:
        assert (attribute, size.value, written) == (_SPLITK_NUM, 4, None)
        value._obj.value = algorithm._obj.algo[1]
        return 0

    def cublasLtMatmul(
        self, handle: Any, description: Any, alpha: Any, a: Any, of_a: Any, b: Any, of_b: Any,
        beta: Any, c: Any, of_c: Any, d: Any, of_d: Any, algorithm: Any,
        workspace: Any, num_bytes: Any, stream: Any,
    ) -> int:  # fmt: skip
        if self.status:
            return self.status
        assert (handle.value, d.value, of_d.value) == (1, c.value, of_c.value)
        number, _, *alignments = algorithm._obj.algo[:6]
        assert all(x in (4, 8, 16) for x in alignments)
        assert all(x.value % y == 0 for x, y in zip((a, b, c, d), alignments, strict=True))
        assert workspace.value % 256 == 0
        assert self.proposals[number].workspace <= num_bytes.value
        self.used.append(number)
        what = self._made[description.value]
        (compute, scale), on_device = what.args, what.attributes[2]
        layouts = [self._made[x.value] for x in (of_a, of_b, of_c)]
        matrices, transposed = [], (what.attributes[3], what.attributes[4], 0)
        for at, layout, turned in zip((a, b, c), layouts, transposed, strict=True):
            kind, rows, cols, pitch = layout.args
            assert (kind, layout.attributes[5]) == (scale, layouts[0].attributes[5])
            matrices.append((at, rows, cols, turned, pitch, layout.attributes[6]))
        return self.multiply(
            stream, workspace, compute, scale, layouts[0].attributes[5], matrices, alpha, beta,
            on_device,
        )  # fmt: skip

    def multiply(self, *args: Any) -> int:
        """ModelCublas has it."""
        raise NotImplementedError

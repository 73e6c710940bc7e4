"""Kaldi's compressed matrices decompressed by compiled code, many of one shape in one call.

The arithmetic is that of `io.compressed_codes`, operation by operation, so that all bits agree.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from nnet3tools.tensor.addresses import address
from nnet3tools.tensor.cpu.choice import are_native
from nnet3tools.tensor.cpu.jobs import run_compiling
from nnet3tools.tensor.cpu.kernels import kernels_of_file

_KERNELS = kernels_of_file(__file__)


def decompress(
    token: str,
    data: bytes,
    starts: NDArray[np.int64],
    shape: tuple[int, int],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32] | None:
    """Decompress Kaldi's compressed matrices of one shape into an array (N, rows, columns).

    `token` is the format: CM, CM2 or CM3. The header of matrix i, from its minimum on, begins
    in `data` at starts[i]; the matrix is multiplied by weights[i]. None if there are no
    compiled kernels. The caller has checked that `data` is complete (`io.matrix_forms`).
    """
    if not are_native() or sys.byteorder != "little":
        return None
    out = np.empty((len(starts), *shape), np.float32)
    raw = np.frombuffer(data, np.uint8)
    scales = None if weights is None else np.ascontiguousarray(weights, np.float32)
    job = _KERNELS[f"decompress_{token.lower()}"].job(
        len(out), out.size, headers=starts + address(raw), out=out, rows=shape[0], cols=shape[1],
        weights=scales,
    )  # fmt: skip
    return out if run_compiling(job) else None

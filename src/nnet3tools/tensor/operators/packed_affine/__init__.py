"""Affine maps of a few rows with float weights in the order in which a kernel reads them.

BLAS reorders the weights in each product, which takes most of its time for few rows. Time relative
to OpenBLAS by number of rows (AMD EPYC, Zen 3, AVX2, one thread; least and largest of matrices with
1024 x 256, 256 x 256 and 336 x 128 weights):

| 1 | 2 | 3 | 4 | 6 | 8 | 12 | 16 |
|---|---|---|---|---|---|---|---|
| 1.0-1.2 | .29-.48 | .28-.48 | .49-.63 | .49-.60 | .59-.71 | .78-.84 | .82-.89 |

An output's sum does not depend on the number of rows. BLAS, whose sums differ in the last digits,
multiplies 1 row and more rows than BATCHES has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.operators.integer_affine import in_panels
from nnet3tools.tensor.registry import operator

BATCHES = range(2, 9)
"""Numbers of rows that the kernel multiplies faster than BLAS, with a margin for processors whose
BLAS has wider vectors."""

PANEL = 32
"""Outputs whose weights are next to each other."""


def packed(matrix: NDArray[np.float32], parts: int) -> NDArray[np.float32]:
    """A matrix (outputs, parts * columns) as (parts, panels, columns, PANEL), padded with zeros.

    Parts of the columns multiply different rows of the input. A panel has PANEL outputs.
    """
    return in_panels(matrix, parts, PANEL, matrix.shape[1] // parts, 1)[..., 0]


@operator(types=("float32",))
def packed_affine(
    out: Array,
    rows: Array,
    weights: Array,
    bias: Array | None = None,
    starts: Sequence[int] = (0,),
    stride: int = 1,
    adds: bool = False,
) -> None:
    """Set `out` to an affine map of `rows` or, with `adds`, add the map to `out`.

    `weights` are a result of `packed`. Output row r is `bias` (outputs,) plus the sum, over parts p
    of the weights, of the product with row starts[p] + stride * r.
    """
    total = np.zeros(out.shape) if bias is None else np.tile(bias.astype(np.float64), (len(out), 1))
    for start, part in zip(starts, weights, strict=True):
        at = slice(start, start + stride * (len(out) - 1) + 1, stride)
        matrix = part.swapaxes(1, 2).reshape(-1, part.shape[1])[: out.shape[1]]
        total += rows[at].astype(np.float64) @ matrix.T
    np.copyto(out, out + total if adds else total, casting="same_kind")

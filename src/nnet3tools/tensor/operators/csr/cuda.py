"""Products of sparse matrices on CUDA."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


def _host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _transposed(indexes: Any, offsets: Any, num_rows: int) -> dict[str, np.ndarray]:
    """The CSR arrays of a sparse matrix sorted by columns.

    "offsets" is where columns begin, "order" the entries' numbers by column, "rows" their rows.
    """
    columns, starts = _host(indexes), _host(offsets)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.argsort(columns, kind="stable")
    begins = np.searchsorted(columns[order], np.arange(num_rows + 1))
    return {"offsets": begins, "order": order, "rows": rows[order]}


@implements("csr_dot", "cupy", binder=True)
def bind_csr_dot(
    out: Array, values: Array, indexes: Any, offsets: Any, b: Array, trans: bool = False,
    beta: float = 0.0,
) -> Step:  # fmt: skip
    """A callable that runs `csr_dot` with its arguments; `indexes`, `offsets`: of any device."""
    to, of = (x[:, None] if x.ndim == 1 else x for x in (out, b))
    if not trans:
        return _functions["csr_dot"].on_grid(
            to.shape, out=to, values=values, b=of, columns=uploaded(_host(indexes)),
            offsets=uploaded(_host(offsets)), beta=beta,
        )  # fmt: skip
    found = {n: uploaded(a) for n, a in _transposed(indexes, offsets, len(to)).items()}
    return _functions["csr_dot_transposed"].on_grid(
        to.shape, out=to, values=values, b=of, beta=beta, **found
    )

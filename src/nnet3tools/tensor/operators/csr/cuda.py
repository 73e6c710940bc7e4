"""Products of sparse matrices on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.indexes import uploaded
from nnet3tools.tensor.cuda.strided import grid_step
from nnet3tools.tensor.registry import implements

Step = Callable[[], None]


def _host(array: Any) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def _transposed(indexes: Any, offsets: Any, num_rows: int) -> dict[str, np.ndarray]:
    """Where the entries of each column are: offsets, the entries in order, and their rows."""
    columns, starts = _host(indexes), _host(offsets)
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.argsort(columns, kind="stable")
    begins = np.searchsorted(columns[order], np.arange(num_rows + 1))
    return {"offsets": begins, "order": order, "from": rows[order]}


@implements("csr_dot", "cupy", binder=True)
def bind_csr_dot(
    out: Array, values: Array, indexes: Any, offsets: Any, b: Array, trans: bool = False,
    beta: float = 0.0,
) -> Step:  # fmt: skip
    """One thread an output, over the entries of its row (column, with `trans`)."""
    to, of = (x[:, None] if x.ndim == 1 else x for x in (out, b))
    if trans:
        found = _transposed(indexes, offsets, len(to))
        order, source = "order[[k]]", found["from"]
    else:
        found = {"offsets": _host(offsets), "order": np.zeros(1, np.int32)}
        order, source = "k", _host(indexes)
    arrays = {
        "out": to, "values": values, "b": of, "source": uploaded(source),
        "offsets": uploaded(found["offsets"]), "order": uploaded(found["order"]),
    }  # fmt: skip
    body = f"""
      T sum = 0;
      for (long long k = offsets[[r]]; k < offsets[[r + 1]]; ++k)
        sum += values[[{order}]] * b[[source[[k]], c]];
      out[[r, c]] = beta == T(0) ? sum : sum + beta * out[[r, c]];"""
    space = {"r": to.shape[0], "c": to.shape[1]}
    return grid_step("csr_dot", space, arrays, body, beta=out.dtype.type(beta))

"""Row and column operations on CUDA: a thread for each element that is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnet3tools.errors import ProgramError
from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import check_rows, table, uploaded
from nnet3tools.tensor.cuda.launch import Step
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


def _bind_one(name: str, out: Array, src: Array, indexes: Any, alpha: float | None = None) -> Step:
    """A step in which a thread for each element of out finds its source row or column."""
    axis = 1 if name == "copy_cols" else 0
    check_rows(indexes, src.shape[axis], out.shape[axis])
    factor: dict[str, Any] = {} if alpha is None else {"alpha": alpha}
    return _functions[name].on_grid(out.shape, out=out, src=src, at=uploaded(indexes), **factor)


implements("copy_rows", "cupy", binder=True)(partial(_bind_one, "copy_rows"))
implements("copy_cols", "cupy", binder=True)(partial(_bind_one, "copy_cols"))


@implements("add_rows", "cupy", binder=True)
def bind_add_rows(out: Array, src: Array, indexes: Any, alpha: float = 1.0) -> Step:
    """Bind the operator `add_rows`: a thread for each element of out finds its source row."""
    return _bind_one("add_rows", out, src, indexes, alpha)


@implements("add_row_ranges", "cupy", binder=True)
def bind_add_row_ranges(out: Array, src: Array, ranges: Any, alpha: float = 1.0) -> Step:
    """Bind the operator `add_row_ranges`: a thread adds up one column of a range, in order."""
    check_rows(ranges, len(src) + 1, len(out), lowest=-1 << 31)
    return _functions["add_row_ranges"].on_grid(
        out.shape, out=out, src=src, ranges=uploaded(ranges), alpha=alpha
    )


def _multi(
    first: str, matrix: Array, others: Sequence[Array], which: Any, at: Any
) -> dict[str, Array]:
    """Operands of a kernel for several matrices, by name; ProgramError for rows beyond a matrix."""
    which_host, at_host = (np.asarray(x.get() if hasattr(x, "get") else x) for x in (which, at))
    check_rows(which_host, len(others), len(matrix))
    sizes = np.array([len(o) for o in others] + [0])
    taken = which_host >= 0
    if (at_host[taken] >= sizes[which_host[taken]]).any() or (at_host[taken] < 0).any():
        raise ProgramError("row indexes beyond the matrices of a multi-row operation")
    return {
        first: matrix, "table": table(list(others)), "which": uploaded(which), "at": uploaded(at)
    }  # fmt: skip


@implements("copy_rows_multi", "cupy", binder=True)
def bind_copy_rows_multi(out: Array, sources: Sequence[Array], which: Any, at: Any) -> Step:
    """Bind `copy_rows_multi`: a thread for each element of out finds its source matrix and row."""
    arrays = _multi("out", out, sources, which, at)
    return _functions["copy_rows_multi"].on_grid(out.shape, reads=sources, **arrays)


@implements("add_rows_multi", "cupy", binder=True)
def bind_add_rows_multi(
    out: Array, sources: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """Bind `add_rows_multi`: a thread for each element of out finds its source matrix and row."""
    arrays = _multi("out", out, sources, which, at)
    return _functions["add_rows_multi"].on_grid(out.shape, reads=sources, alpha=alpha, **arrays)


@implements("copy_to_rows_multi", "cupy", binder=True)
def bind_copy_to_rows_multi(src: Array, dests: Sequence[Array], which: Any, at: Any) -> Step:
    """Bind `copy_to_rows_multi`: a thread for each element of src finds its destination."""
    arrays = _multi("src", src, dests, which, at)
    return _functions["copy_to_rows_multi"].on_grid(src.shape, writes=dests, **arrays)


@implements("add_to_rows_multi", "cupy", binder=True)
def bind_add_to_rows_multi(
    src: Array, dests: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """Bind `add_to_rows_multi`: one thread adds all that goes to an element, in a fixed order."""
    _multi("src", src, dests, which, at)
    which, at = (np.asarray(x.get() if hasattr(x, "get") else x, np.int64) for x in (which, at))
    taken = np.flatnonzero(which >= 0)
    if not len(taken):
        return lambda: None
    places = (which[taken] << 32) + at[taken]
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    return _functions["add_to_rows_multi"].on_grid(
        (len(distinct), src.shape[1]), src=src, table=table(list(dests)),
        which=uploaded((distinct >> 32).astype(np.int32)),
        at=uploaded((distinct & 0xFFFFFFFF).astype(np.int32)),
        offsets=uploaded(np.append(starts, len(order)).astype(np.int32)),
        order=uploaded(taken[order].astype(np.int32)), alpha=alpha, writes=dests,
    )  # fmt: skip

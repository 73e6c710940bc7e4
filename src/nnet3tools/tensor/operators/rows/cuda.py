"""Row and column operations on CUDA: a thread for each element that is written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnet3tools.tensor.cuda.device import Array
from nnet3tools.tensor.cuda.function_files import cuda_functions
from nnet3tools.tensor.cuda.indexes import table, uploaded
from nnet3tools.tensor.cuda.launches import Step
from nnet3tools.tensor.operators.rows import check_rows, checked_places
from nnet3tools.tensor.registry import implements

_functions = cuda_functions(__file__)


def _on_grid(name: str, shape: tuple[int, ...], alpha: float, **operands: Any) -> Step:
    """A callable that runs CUDA function `name` on all of `shape`, with `alpha` if it has that."""
    if "alpha" in _functions[name].numbers:
        operands["alpha"] = alpha
    return _functions[name].on_grid(shape, **operands)


def _bind_one(name: str, out: Array, src: Array, indexes: Any, alpha: float = 1.0) -> Step:
    """A callable that runs `name` (copy_rows, copy_cols, add_rows), a thread per element of out."""
    axis = 1 if name == "copy_cols" else 0
    check_rows(indexes, src.shape[axis], out.shape[axis])
    return _on_grid(name, out.shape, alpha, out=out, src=src, at=uploaded(indexes))


def _bind_multi(
    name: str, matrix: Array, others: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """A callable that runs operator `name`, copy_rows_multi, add_rows_multi or copy_to_rows_multi.

    It moves rows between row i of `matrix` and row at[i] of others[which[i]].
    """
    checked_places(which, at, others, len(matrix))
    others_are = "writes" if name == "copy_to_rows_multi" else "reads"
    return _on_grid(
        name, matrix.shape, alpha, matrix=matrix, table=table(list(others)), which=uploaded(which),
        at=uploaded(at), **{others_are: others},
    )  # fmt: skip


for _name in ("copy_rows", "copy_cols", "add_rows"):
    implements(_name, "cupy", binder=True)(partial(_bind_one, _name))
for _name in ("copy_rows_multi", "add_rows_multi", "copy_to_rows_multi"):
    implements(_name, "cupy", binder=True)(partial(_bind_multi, _name))


@implements("add_row_ranges", "cupy", binder=True)
def bind_add_row_ranges(out: Array, src: Array, ranges: Any, alpha: float = 1.0) -> Step:
    """A callable that runs `add_row_ranges`: a thread adds up one column of a range, in order."""
    check_rows(ranges, len(src) + 1, len(out), lowest=-1 << 31)
    return _on_grid("add_row_ranges", out.shape, alpha, out=out, src=src, ranges=uploaded(ranges))


@implements("add_to_rows_multi", "cupy", binder=True)
def bind_add_to_rows_multi(
    src: Array, dests: Sequence[Array], which: Any, at: Any, alpha: float = 1.0
) -> Step:
    """A callable: dests[which[i]][at[i]] += alpha * src[i], in fixed order; which[i] = -1: none."""
    which, at = checked_places(which, at, dests, len(src))
    taken = np.flatnonzero(which >= 0)
    places = (which[taken] << 32) + at[taken]
    order = np.argsort(places, kind="stable")
    distinct, starts = np.unique(places[order], return_index=True)
    return _functions["add_to_rows_multi"].on_grid(
        (len(distinct), src.shape[1]), src=src, table=table(list(dests)),
        which=uploaded(distinct >> 32), at=uploaded(distinct & 0xFFFFFFFF),
        offsets=uploaded(np.append(starts, len(order))), order=uploaded(taken[order]),
        alpha=alpha, writes=dests,
    )  # fmt: skip

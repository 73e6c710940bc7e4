"""Functions of whole rows, one number each, as steps of a formula: (rows, D) to (rows, 1).

BLAS adds up twice as fast as NumPy's sum, but one number after the other. Where both signs occur, a
sum is NumPy's: by halves it loses less; means are BLAS's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

__all__ = ["REDUCING", "ROW_STEPS", "as_dot", "of_positive"]

Step = Callable[..., Any]


def _max(x: np.ndarray, out: np.ndarray) -> None:
    np.maximum.reduce(x, axis=-1, out=out, keepdims=True)


def _min(x: np.ndarray, out: np.ndarray) -> None:
    np.minimum.reduce(x, axis=-1, out=out, keepdims=True)


def _sum(x: np.ndarray, out: np.ndarray) -> None:
    np.add.reduce(x, axis=-1, out=out, keepdims=True)


def _sum_by_blas(x: np.ndarray, out: np.ndarray) -> None:
    np.matmul(x, _ones(x.shape[-1], x.dtype), out=out[..., 0])


def _dot(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    np.matmul(a[..., None, :], b[..., :, None], out=out[..., None])


def _mean(total: Step, *operands: np.ndarray) -> None:
    total(*operands)
    out = operands[-1]
    np.divide(out, operands[0].shape[-1], out=out)


@lru_cache(maxsize=16)
def _ones(size: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(size, dtype)


ROW_STEPS: dict[str, Step] = {
    "row_max": _max, "row_min": _min, "row_sum": _sum, "row_mean": partial(_mean, _sum_by_blas),
}  # fmt: skip

_BY_BLAS = {_sum: _sum_by_blas}
_DOTS: dict[Step, Step] = {_sum: _dot, ROW_STEPS["row_mean"]: partial(_mean, _dot)}

REDUCING = frozenset({*ROW_STEPS.values(), *_BY_BLAS.values(), *_DOTS.values()})
"""All of them."""


def of_positive(function: Step) -> Step:
    """The same function of numbers of one sign."""
    return _BY_BLAS.get(function, function)


def as_dot(function: Step | None) -> Step | None:
    """The same function of a product, from its two factors; None if there is none."""
    return None if function is None else _DOTS.get(function)

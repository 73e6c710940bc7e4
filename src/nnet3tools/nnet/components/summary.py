"""Summaries of vectors and parameters on nnet3-info's lines, as Kaldi prints them.

Kaldi's nnet-parse.cc (SummarizeVector, PrintParameterStats). Arithmetic is in float32 as in Kaldi,
so that the same digits are printed.
"""

from __future__ import annotations

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.tensor.arrays import Array

_PERCENTILES = ((0, 1, 2, 5), (10, 20, 50, 80, 90), (95, 98, 99, 100))


def _general(value: float | np.float32, digits: int) -> str:
    """Format a number as C's %.<digits>g; NaN (root of a negative rounding error) becomes -nan."""
    return "-nan" if np.isnan(value) else f"{value:.{digits}g}"


def _succinct(value: float | np.float32) -> str:
    """Format a float with few digits (Kaldi's PrintFloatSuccinctly)."""
    size = abs(float(value))
    if 10.0 <= size < 10000.0:
        return f"{value:.0f}"
    if size >= 0.995:
        return f"{value:.1f}"
    if size >= 0.01:
        return f"{value:.2f}"
    return _general(value, 1)


def _mean_and_stddev(values: np.ndarray) -> tuple[np.float32, np.float32]:
    size = np.float32(values.size)
    mean = np.float32(values.sum(dtype=np.float64)) / size
    with np.errstate(invalid="ignore"):
        return mean, np.sqrt(_sum_of_squares(values) / size - mean * mean)


def _sum_of_squares(values: np.ndarray) -> np.float32:
    wide = values.astype(np.float64).ravel()
    return np.float32(wide @ wide)


def summarize_vector(vector: Array) -> str:
    """Format all elements `[ a b c ]` if fewer than ten, else percentiles, mean and deviation."""
    values = tensor.to_host(vector).astype(np.float32)
    if values.size < 10:
        return "[ " + "".join(f"{_succinct(v)} " for v in values) + "]"
    ordered = np.sort(values)
    names = " ".join(",".join(map(str, group)) for group in _PERCENTILES)
    picked = " ".join(
        ",".join(_succinct(ordered[(values.size - 1) * p // 100]) for p in group)
        for group in _PERCENTILES
    )
    mean, stddev = _mean_and_stddev(values)
    numbers = f"mean={_general(mean, 3)}, stddev={_general(stddev, 3)}"
    return f"[percentiles({names})=({picked}), {numbers}]"


def parameter_stats(
    name: str, params: Array, include_mean: bool = False, include_norms: bool = False
) -> str:
    """The info text `name-rms=...`, or `name-{mean,stddev}=...` with `include_mean`.

    `include_norms` adds summaries of the norms of rows and columns, and of the singular values if
    the verbose level is at least 2.
    """
    values = tensor.to_host(params)
    if include_mean:
        mean, stddev = _mean_and_stddev(values)
        parts = [f"{name}-{{mean,stddev}}={_general(mean, 4)},{_general(stddev, 4)}"]
    else:
        rms = np.sqrt(_sum_of_squares(values) / np.float32(values.size))
        parts = [f"{name}-rms={_general(rms, 4)}"]
    if include_norms:
        squares = values.astype(np.float64) ** 2
        parts.append(f"{name}-row-norms={summarize_vector(np.sqrt(squares.sum(axis=1)))}")
        parts.append(f"{name}-col-norms={summarize_vector(np.sqrt(squares.sum(axis=0)))}")
        if log.get_verbose() >= 2:
            singular = np.linalg.svd(values, compute_uv=False)
            parts.append(f"{name}-singular-values={summarize_vector(singular)}")
    return ", ".join(parts)

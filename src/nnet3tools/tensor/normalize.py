"""Normalization of rows to a given root mean square, as in Kaldi's NormalizeComponent.

Mean squares over target_rms squared are floored as in Kaldi (cu-math.cc, NormalizePerRow and
DiffNormalizePerRow).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from nnet3tools.tensor.addresses import same_place
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import Element, element

SQUARED_NORM_FLOOR = 2.0**-66
"""Floor of the mean square over target_rms squared (cu-math.cc, kSquaredNormFloor)."""

# d: the number of columns times target_rms squared
_SCALE = "square = row_sum(x * x); scale = 1 / sqrt(max(square / d, floor)); "
_normalize = element(_SCALE + "out = x * scale", "out x d floor")
_normalize_with_log = element(
    _SCALE + "out = x * scale; log_stddev = log_rms - log(scale)",
    "out log_stddev x d floor log_rms",
)


@functools.cache
def _derivative(in_place: bool, with_log: bool) -> Element:
    """The formula of normalize_per_row's derivative: scale * e + c * x, with one c for each row.

    x is the input, e the derivative by the output. With `in_place` the result is assigned, else
    added. `with_log`: there is a column of logarithms. If the mean square of a row was floored, c
    has only the term of the logarithm.
    """
    return element(
        _SCALE
        + "c = where(square / d <= floor, 0, -scale * scale * scale * row_sum(x * e) / d)"
        + (" + at_log / max(square, dim * floor); " if with_log else "; ")
        + ("in_deriv = " if in_place else "in_deriv = in_deriv + ")
        + "scale * e + c * x",
        "in_deriv x e d floor" + (" at_log dim" if with_log else ""),
    )


@operator_of_formulas()
def normalize_per_row(
    out: Array, x: Array, target_rms: float, add_log_stddev: bool
) -> Iterator[Call]:
    """Set out to x (N, D) with each row scaled to root mean square target_rms.

    With add_log_stddev out is (N, D + 1) and its last column the log of the row's root mean square
    in x. out's first D columns may be x. The decorator runs the yielded Calls.
    """
    dim = x.shape[1]
    d = dim * float(target_rms) ** 2
    if not add_log_stddev:
        yield Call.of(_normalize, out, x, d, SQUARED_NORM_FLOOR)
        return
    parts = out[:, :dim], out[:, dim:]
    log_rms = math.log(target_rms)
    yield Call.of(_normalize_with_log, *parts, x, d, SQUARED_NORM_FLOOR, log_rms)


@operator_of_formulas(writes=("in_deriv",))
def diff_normalize_per_row(
    in_deriv: Array, in_value: Array, out_deriv: Array, target_rms: float, add_log_stddev: bool
) -> Iterator[Call]:
    """Add the derivative of normalize_per_row by its input `in_value` to in_deriv (N, D).

    out_deriv is the derivative by its output. If in_deriv is (the first D columns of) out_deriv
    itself, the derivative replaces it. The decorator runs the yielded Calls.
    """
    dim = in_value.shape[1]
    e, log = out_deriv[:, :dim], (out_deriv[:, dim:], float(dim)) if add_log_stddev else ()
    formula = _derivative(same_place(in_deriv, out_deriv), add_log_stddev)
    d = dim * float(target_rms) ** 2
    yield Call.of(formula, in_deriv, in_value, e, d, SQUARED_NORM_FLOOR, *log)

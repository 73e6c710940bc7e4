"""Normalization of columns (batch norm) and rows (layer norm, RMS norm, NormalizeComponent).

Batch norm brings every column of a matrix to mean 0 and a given root mean square. With N rows, m
and v mean and variance of a column (Ioffe and Szegedy 2015; Kaldi's nnet-normalize-component.cc):

    scale = target_rms / sqrt(v + epsilon),   z = scale (x - m)
    dF/dx = scale (dF/dz - mean of dF/dz) - z scale / target_rms^2 (mean of z dF/dz)

Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) are, for each row,

    layer norm:  n = (x - mean) / sqrt(variance + eps),   rms norm:  n = x / sqrt(mean square + eps)

(the variance is divided by the number of columns D), then out = n * scale + offset; scale and
offset (D,) are optional. In Kaldi's NormalizeComponent, mean squares over target_rms squared are
floored (cu-math.cc, NormalizePerRow and DiffNormalizePerRow).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from nnet3tools.tensor.addresses import same_place
from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import Array, empty
from nnet3tools.tensor.basics import copy, fill
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import Element, element

_normalize_columns = element(
    # `mean` comes in as the first row: the variance of x - mean keeps its digits in one pass
    "d = x - mean; m = col_mean(d); v = max(col_mean(d * d) - m * m, 0);"
    "s = target / sqrt(v + epsilon); whole = mean + m;"
    "square = v + whole * whole; scale = s; out = (x - whole) * s; mean = whole",
    "out mean square scale x epsilon target",
)
_batch_norm_derivative = element(
    "in_deriv = (e - col_mean(e)) * scale - z * (col_mean(z * e) * scale / (target * target))",
    "in_deriv z e scale target",
)


@operator_of_formulas(writes=("out", "stats"))
def batch_norm(
    out: Array, stats: Array, x: Array, epsilon: float, target_rms: float
) -> Iterator[Call]:
    """Set out to x with columns of mean 0 and root mean square `target_rms`; both are (N, D).

    out may be x. stats (3, D) is set to the columns' means, mean squares and scales. Variances are
    exact even if a column's mean is much larger than its deviation. `epsilon` is added to
    variances. The decorator runs the yielded Calls.
    """
    yield Call.of(copy, stats[0], x[0]) if len(x) else Call.of(fill, stats[0], 0.0)
    yield Call.of(_normalize_columns, out, *stats, x, float(epsilon), float(target_rms))


@operator_of_formulas(writes=("in_deriv",))
def batch_norm_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, scale: Array, target_rms: float
) -> Iterator[Call]:
    """Set in_deriv (N, D) to the objective's derivative with respect to `batch_norm`'s input.

    `out_value` is the output of `batch_norm`, `out_deriv` its derivative, `scale` (D,) the row
    stats[2]. in_deriv may be out_value or out_deriv. The decorator runs the yielded Calls.
    """
    yield Call.of(_batch_norm_derivative, in_deriv, out_value, out_deriv, scale, float(target_rms))


_CENTRED = {True: "mean = row_mean(x); c = x - mean; ", False: "c = x; "}
_INVERSE = "inverse = 1 / sqrt(row_mean(c * c) + eps); "
_column_sums = aggregate("_1", "sum", axis=0)


@functools.cache
def _layer_norm(centred: bool, scaled: bool, shifted: bool) -> Element:
    """The formula of layer norm (if `centred`) or RMS norm.

    Its operands are out, x, eps, then scale if `scaled`, then offset if `shifted`.
    """
    value = "c * inverse" + scaled * " * scale" + shifted * " + offset"
    operands = "out x eps" + scaled * " scale" + shifted * " offset"
    return element(f"{_CENTRED[centred]}{_INVERSE}out = {value}", operands)


@functools.cache
def _layer_norm_deriv(centred: bool, scaled: bool, add: bool, wanted: tuple[bool, bool]) -> Element:
    """The formula of layer_norm_backprop: derivatives by x, and by scale before rows are summed.

    Its operands are in_deriv, the product of out_deriv and the normalized x, x, out_deriv, eps,
    then scale if `scaled`. `wanted`: which of the first two are computed; the other is no operand.
    """
    results = {
        "in_deriv": f"in_deriv {'+=' if add else '='} g * inverse"
        " - c * (inverse * inverse * inverse * row_mean(g * c))"
        + centred
        * " - inverse * row_mean(g)",
        "product": "product = e * (c * inverse)",
    }
    names = [name for name, is_wanted in zip(results, wanted, strict=True) if is_wanted]
    return element(
        f"{_CENTRED[centred]}{_INVERSE}g = e{scaled * ' * scale'}; "
        + "; ".join(results[name] for name in names),
        " ".join([*names, "x e eps", *["scale"] * scaled]),
    )


@operator_of_formulas()
def layer_norm(
    out: Array,
    x: Array,
    scale: Array | None = None,
    offset: Array | None = None,
    eps: float = 1e-9,
    centred: bool = True,
) -> Iterator[Call]:
    """Set out to x (N, D), each row normalized to mean 0 and variance 1, times scale plus offset.

    If not `centred`, rows are scaled to mean square 1 (RMS norm). `eps` is added to the variance or
    mean square. out may be x. The decorator runs the yielded Calls.
    """
    given = [row for row in (scale, offset) if row is not None]
    formula = _layer_norm(centred, scale is not None, offset is not None)
    yield Call.of(formula, out, x, float(eps), *given)


@operator_of_formulas(writes=("in_deriv", "scale_deriv", "offset_deriv"))
def layer_norm_backprop(
    x: Array,
    out_deriv: Array,
    scale: Array | None = None,
    eps: float = 1e-9,
    in_deriv: Array | None = None,
    scale_deriv: Array | None = None,
    offset_deriv: Array | None = None,
    add: bool = True,
    centred: bool = True,
) -> Iterator[Call]:
    """Add the derivatives of `layer_norm` by x, scale and offset to the given arrays.

    With e = out_deriv, g = e * scale, n the normalized x: (g - mean of g - n * mean of g n) /
    sqrt(variance + eps) for x (without the mean of g if not `centred`), the column sums of e n for
    scale, those of e for offset. Without `add`, in_deriv is set. The outputs must not overlap the
    other operands. The decorator runs the yielded Calls.
    """
    product = None if scale_deriv is None else empty(x.shape, like=x)
    results = [out for out in (in_deriv, product) if out is not None]
    if results:
        given = [] if scale is None else [scale]
        wanted = in_deriv is not None, product is not None
        formula = _layer_norm_deriv(centred, scale is not None, add, wanted)
        yield Call.of(formula, *results, x, out_deriv, float(eps), *given)
    if scale_deriv is not None:
        yield Call.of(_column_sums, scale_deriv, product, beta=1.0)
    if offset_deriv is not None:
        yield Call.of(_column_sums, offset_deriv, out_deriv, beta=1.0)


SQUARED_NORM_FLOOR = 2.0**-66
"""Floor of the mean square over target_rms squared (cu-math.cc, kSquaredNormFloor)."""

# d: the number of columns times target_rms squared
_SCALE = "square = row_sum(x * x); scale = 1 / sqrt(max(square / d, floor)); "
_normalize_rows = element(_SCALE + "out = x * scale", "out x d floor")
_normalize_rows_with_log = element(
    _SCALE + "out = x * scale; log_stddev = log_rms - log(scale)",
    "out log_stddev x d floor log_rms",
)


@functools.cache
def _row_derivative(in_place: bool, with_log: bool) -> Element:
    """The formula of normalize_per_row's derivative: scale * e + c * x, with scale and c by row.

    x is the input, e the derivative by the output; x * scale was the output, and c * x is for the
    derivative of scale. With `in_place` the result is assigned, else added. `with_log`: c has a
    term for a column of logarithms, its only term if the row's mean square was floored.
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
        yield Call.of(_normalize_rows, out, x, d, SQUARED_NORM_FLOOR)
        return
    parts = out[:, :dim], out[:, dim:]
    log_rms = math.log(target_rms)
    yield Call.of(_normalize_rows_with_log, *parts, x, d, SQUARED_NORM_FLOOR, log_rms)


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
    formula = _row_derivative(same_place(in_deriv, out_deriv), add_log_stddev)
    d = dim * float(target_rms) ** 2
    yield Call.of(formula, in_deriv, in_value, e, d, SQUARED_NORM_FLOOR, *log)

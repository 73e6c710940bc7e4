"""Batch normalization: every column of a matrix to mean 0 and a given root mean square.

With N rows, m and v mean and variance of a column (Ioffe and Szegedy 2015; Kaldi's
BatchNormComponent, nnet-normalize-component.cc):

    scale = target_rms / sqrt(v + epsilon),   z = scale (x - m)
    dF/dx = scale (dF/dz - mean of dF/dz) - z scale / target_rms^2 (mean of z dF/dz)
"""

from __future__ import annotations

from collections.abc import Iterator

from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import element

_begin = element("mean = first", "mean first")
_normalize = element(
    # `mean` comes in as the first row: the variance of x - mean keeps its digits in one pass
    "d = x - mean; m = col_mean(d); v = max(col_mean(d * d) - m * m, 0);"
    "s = target / sqrt(v + epsilon); whole = mean + m;"
    "square = v + whole * whole; scale = s; out = (x - whole) * s; mean = whole",
    "out mean square scale x epsilon target",
)
_derivative = element(
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
    yield Call.of(_begin, stats[0], x[0] if len(x) else 0.0)
    yield Call.of(_normalize, out, *stats, x, float(epsilon), float(target_rms))


@operator_of_formulas(writes=("in_deriv",))
def batch_norm_backprop(
    in_deriv: Array, out_value: Array, out_deriv: Array, scale: Array, target_rms: float
) -> Iterator[Call]:
    """Set in_deriv (N, D) to the derivative of the objective by the input of `batch_norm`.

    `out_value` is the output of `batch_norm`, `out_deriv` the derivative by it, `scale` (D,) the
    row stats[2]. in_deriv may be out_value or out_deriv. The decorator runs the yielded Calls.
    """
    yield Call.of(_derivative, in_deriv, out_value, out_deriv, scale, float(target_rms))

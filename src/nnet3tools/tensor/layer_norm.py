"""Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) of the rows of a matrix.

    layer norm:  n = (x - mean) / sqrt(variance + eps),   rms norm:  n = x / sqrt(mean square + eps)

for each row (the variance is divided by the number of columns D), then out = n * scale + offset;
scale and offset (D,) are optional.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import Array, empty
from nnet3tools.tensor.call import Call, operator_of_formulas
from nnet3tools.tensor.element import Element, element

_MEAN = {True: "mean = row_mean(x); c = x - mean; ", False: "c = x; "}
_INVERSE = "inverse = 1 / sqrt(row_mean(c * c) + eps); "
_column_sums = aggregate("_1", "sum", axis=0)


@functools.cache
def _forward(centred: bool, scaled: bool, shifted: bool) -> Element:
    """The formula of layer norm (if `centred`) or RMS norm.

    Its operands are out, x, eps, then scale if `scaled`, then offset if `shifted`.
    """
    value = "c * inverse" + scaled * " * scale" + shifted * " + offset"
    operands = "out x eps" + scaled * " scale" + shifted * " offset"
    return element(f"{_MEAN[centred]}{_INVERSE}out = {value}", operands)


@functools.cache
def _backward(centred: bool, scaled: bool, add: bool, wanted: tuple[bool, bool]) -> Element:
    """The formula of layer_norm_backprop: derivatives by x, and by scale before rows are summed.

    Its operands are in_deriv, the product of out_deriv and the normalized x, x, out_deriv, eps,
    then scale if `scaled`. `wanted` says which of the first two are computed; the other is no
    operand.
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
        f"{_MEAN[centred]}{_INVERSE}g = e{scaled * ' * scale'}; "
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
    formula = _forward(centred, scale is not None, offset is not None)
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
        formula = _backward(centred, scale is not None, add, wanted)
        yield Call.of(formula, *results, x, out_deriv, float(eps), *given)
    if scale_deriv is not None:
        yield Call.of(_column_sums, scale_deriv, product, beta=1.0)
    if offset_deriv is not None:
        yield Call.of(_column_sums, offset_deriv, out_deriv, beta=1.0)

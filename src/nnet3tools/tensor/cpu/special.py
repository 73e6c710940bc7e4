"""Operators that are not formulas, as jobs: by formulas and sums of columns where these will do."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from nnet3tools.tensor.cpu.batch_norm import batch_norm, batch_norm_backprop
from nnet3tools.tensor.cpu.element import element_jobs
from nnet3tools.tensor.cpu.kernels import Job
from nnet3tools.tensor.cpu.products import product
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.gru import gru_columns
from nnet3tools.tensor.plain.operands import is_number

__all__ = ["SPECIAL"]

Jobs = list[Job] | None

_copy, _scale = element("_1 = _2"), element("_1 = _1 * _2")
_add, _subtract, _add_scaled = (
    element("_1 += _2"), element("_1 -= _2"), element("_1 += _2 * _3")
)  # fmt: skip
_add_measured = element("_1 += where(_3 != 0, _2 * _3, 0)")


def _jobs(formula: Element, *operands: Any) -> Jobs:
    return element_jobs(formula.assignments, operands)


def _copied(out: Any, src: Any) -> Jobs:
    return _jobs(_copy, out, src)


def _filled(out: Any, value: Any) -> Jobs:
    return _jobs(_copy, out, value) if out.dtype.kind == "f" else None


def _scaled(out: Any, alpha: Any) -> Jobs:
    return _jobs(_scale, out, alpha)


def _added(out: Any, src: Any, alpha: Any = 1.0) -> Jobs:
    if isinstance(src, np.ndarray) and src.dtype != out.dtype:
        return None
    if is_number(alpha):
        return _jobs(_add_measured, out, src, alpha)
    if alpha == 0.0:
        return []
    if alpha == 1.0:
        return _jobs(_add, out, src)
    return _jobs(_subtract, out, src) if alpha == -1.0 else _jobs(_add_scaled, out, src, alpha)


# -- LSTM

_FORWARD = (
    "i = sigmoid(x_i + w_i * before){by_i}; f = sigmoid(x_f + w_f * before){by_f};"
    "c = f * before + i * tanh(x_g);"
    "m = sigmoid(x_o + w_o * c){by_o} * tanh(c)"
)
_BACKWARD = (
    "i = sigmoid(x_i + w_i * before); f = sigmoid(x_f + w_f * before); g = tanh(x_g);"
    "c = f{by_f} * before + i{by_i} * g; o = sigmoid(x_o + w_o * c); h = tanh(c);"
    "dm = at_m{by_o};"
    "d_o = o * (1 - o) * (h * dm) - (2 * o - 1) * repair_o;"
    "dc = (1 - h * h) * (o * dm) + at_c + d_o * w_o - h * repair_h;"
    "d_i = dc * g{by_i} * i * (1 - i) - (2 * i - 1) * repair_i;"
    "d_f = dc * before{by_f} * f * (1 - f) - (2 * f - 1) * repair_f;"
    "d_g = (1 - g * g) * (i * dc{by_i}) - g * repair_g;"
    "at_i = d_i; at_f = d_f; at_g = d_g; at_o = d_o;"
    "at_before = w_i * d_i + w_f * d_f + f * dc{by_f};"
    "p_i = col_sum(d_i * before); p_f = col_sum(d_f * before); p_o = col_sum(d_o * c);"
    "v_i += col_sum(i); v_f += col_sum(f); v_g += col_sum(g); v_o += col_sum(o); v_h += col_sum(h);"
    "s_i += col_sum(i * (1 - i)); s_f += col_sum(f * (1 - f)); s_g += col_sum(1 - g * g);"
    "s_o += col_sum(o * (1 - o)); s_h += col_sum(1 - h * h)"
)
_IN_DERIV = "at_i at_f at_g at_o at_before"
_TOTALS = {"params_deriv": "p_i p_f p_o", "value_sum": "v_i v_f v_g v_o v_h",
           "deriv_sum": "s_i s_f s_g s_o s_h"}  # fmt: skip
"""The rows of each array that takes sums of columns."""
_READ = "x_i x_f x_g x_o before w_i w_f w_o at_c at_m repair_i repair_f repair_g repair_o repair_h"


_ALL_TARGETS = " ".join([_IN_DERIV, *_TOTALS.values()]).split()


def _by_scales(text: str, dropout: bool) -> str:
    return text.format(**{f"by_{k}": f" * scale_{k}" if dropout else "" for k in "ifo"})


@functools.cache
def _forward(dropout: bool) -> Element:
    scales = " scale_i scale_f scale_o" * dropout
    names = f"c m x_i x_f x_g x_o before w_i w_f w_o{scales}"
    return element(_by_scales(_FORWARD, dropout), names)


@functools.cache
def _backward(dropout: bool, in_deriv: bool, totals: tuple[str, ...]) -> Element:
    """The derivatives and the totals that are asked for."""
    targets = [_IN_DERIV] * in_deriv + [_TOTALS[name] for name in totals]
    names = f"{_READ}{' scale_i scale_f scale_o' * dropout} {' '.join(targets)}"
    wanted = " ".join(targets).split()
    lines = [
        line for line in map(str.strip, _by_scales(_BACKWARD, dropout).split(";"))
        if line.split()[0] not in _ALL_TARGETS or line.split()[0] in wanted
    ]  # fmt: skip
    return element("; ".join(lines), names)


def _parts(x: np.ndarray, dim: int) -> list[np.ndarray]:
    """The five blocks of columns, and the scales if there are any."""
    blocks = [x[:, k * dim : (k + 1) * dim] for k in range(5)]
    return blocks + [x[:, k : k + 1] for k in range(5 * dim, x.shape[1])]


def _lstm(out: Any, x: Any, params: Any) -> Jobs:
    dim = params.shape[1]
    parts = _parts(x, dim)
    formula = _forward(len(parts) > 5)
    return _jobs(formula, out[:, :dim], out[:, dim:], *parts[:5], *params, *parts[5:])


def _lstm_backprop(
    x: Any, params: Any, out_deriv: Any, repair: Any, in_deriv: Any = None,
    params_deriv: Any = None, value_sum: Any = None, deriv_sum: Any = None,
) -> Jobs:  # fmt: skip
    dim = params.shape[1]
    parts = _parts(x, dim)
    totals = {"params_deriv": params_deriv, "value_sum": value_sum, "deriv_sum": deriv_sum}
    given = {name: total for name, total in totals.items() if total is not None}
    at = out_deriv[:, :dim], out_deriv[:, dim:]
    targets = [row for total in given.values() for row in total]
    if in_deriv is not None:
        targets = [*_parts(in_deriv, dim)[:5], *targets]
    formula = _backward(len(parts) > 5, in_deriv is not None, tuple(given))
    jobs = _jobs(formula, *parts[:5], *params, *at, *repair, *parts[5:], *targets)
    if jobs is None or in_deriv is None or in_deriv.shape[1] == 5 * dim:
        return jobs
    zeroed = _filled(in_deriv[:, 5 * dim :], 0.0)
    return None if zeroed is None else [*jobs, *zeroed]


# -- GRU

_OUTPUT_GATED = element(
    "h = tanh(x_h + before * w_h); c = (1 - z) * h + z * before", "h c x_h before w_h z"
)


def _gru(out: Any, x: Any, w_h: Any) -> Jobs:
    columns = gru_columns(w_h)
    if columns.recurrent_dim:  # there is a product in between
        return None
    h, c = out[:, : columns.cell_dim], out[:, columns.cell_dim :]
    gates = columns.argument_of(x), columns.cell_of(x), w_h, columns.update_of(x)
    return _jobs(_OUTPUT_GATED, h, c, *gates)


SPECIAL: dict[str, Callable[..., Jobs]] = {
    "copy": _copied, "fill": _filled, "scale": _scaled, "add": _added,
    "batch_norm": batch_norm, "batch_norm_backprop": batch_norm_backprop,
    "lstm_nonlinearity": _lstm, "lstm_nonlinearity_backprop": _lstm_backprop,
    "gru_nonlinearity": _gru,
    "prod": product,
}  # fmt: skip
"""Operator -> its jobs; None where that is left to NumPy."""

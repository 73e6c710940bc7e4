"""The LSTM cell on NumPy: formulas, block of rows by block of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.basics import add, fill
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.plain.row_blocks import row_slices
from nnet3tools.tensor.plain.threads import LOCK
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 15
"""Elements of one gate worked on at a time: a dozen such blocks stay in a core's second cache."""


_GATES = "x_i x_f x_g x_o before w_i w_f w_o"
"""The gates' arguments, the cell before, the peepholes' weights."""


def _scaled(gates: str, dropout: bool) -> dict[str, str]:
    """Factors of a formula by gate, and `operands`, their names: none without dropout."""
    factors = {f"by_{gate}": f" * scale_{gate}" if dropout else "" for gate in "ifo"}
    return {**factors, "operands": "".join(f" scale_{gate}" for gate in gates * dropout)}


def _forward(dropout: bool) -> Element:
    """The cell c and its output m."""
    t = _scaled("ifo", dropout)
    return element(
        f"i = sigmoid(x_i + w_i * before){t['by_i']}; f = sigmoid(x_f + w_f * before){t['by_f']};"
        "c = f * before + i * tanh(x_g);"
        f"m = sigmoid(x_o + w_o * c){t['by_o']} * tanh(c)",
        f"c m {_GATES}{t['operands']}",
    )


def _values(dropout: bool) -> Element:
    """The gates, the cell c and h, its tanh."""
    t = _scaled("if", dropout)
    return element(
        "i = sigmoid(x_i + w_i * before); f = sigmoid(x_f + w_f * before); g = tanh(x_g);"
        f"c = f{t['by_f']} * before + i{t['by_i']} * g;"
        "o = sigmoid(x_o + w_o * c); h = tanh(c)",
        f"i f g c o h {_GATES}{t['operands']}",
    )


def _derivs(dropout: bool) -> Element:
    """The derivatives at the arguments of i, f, g, o and at the cell before.

    Of the values, the derivatives at c and m, the weights, the self-repair (repair_i and so on).
    """
    t = _scaled("ifo", dropout)
    return element(
        f"dm = at_m{t['by_o']};"
        "at_o = o * (1 - o) * (h * dm) - (2 * o - 1) * repair_o;"
        "dc = (1 - h * h) * (o * dm) + at_c + at_o * w_o - h * repair_h;"
        f"at_i = dc * g{t['by_i']} * i * (1 - i) - (2 * i - 1) * repair_i;"
        f"at_f = dc * before{t['by_f']} * f * (1 - f) - (2 * f - 1) * repair_f;"
        f"at_g = (1 - g * g) * (i * dc{t['by_i']}) - g * repair_g;"
        f"at_before = w_i * at_i + w_f * at_f + f * dc{t['by_f']}",
        "at_i at_f at_g at_o at_before i f g o h before at_c at_m w_i w_f w_o "
        f"repair_i repair_f repair_g repair_o repair_h{t['operands']}",
    )


_forwards, _all_values, _all_derivs = (
    [formula(dropout) for dropout in (False, True)] for formula in (_forward, _values, _derivs)
)
_sum_products = aggregate("_1 * _2", "sum", axis=0)
# of several functions at once: (functions, rows, cells)
_sum = aggregate("_1", "sum", axis=1)
_sum_sigmoid_derivs = aggregate("_1 * (1 - _1)", "sum", axis=1)
_sum_tanh_derivs = aggregate("1 - _1 * _1", "sum", axis=1)


def _gates(x: Array, dim: int) -> list[Array]:
    """x_i, x_f, x_g, x_o, c' and, if they are there, the three scales, each (rows, 1)."""
    gates = [x[:, k * dim : (k + 1) * dim] for k in range(5)]
    return gates + [x[:, k : k + 1] for k in range(5 * dim, x.shape[1])]


@implements("lstm_nonlinearity", "numpy", binder=True)
def bind_lstm_nonlinearity(out: Array, x: Array, params: Array) -> Callable[[], None]:
    """One formula."""
    dim = params.shape[1]
    gates = _gates(x, dim)
    forward = _forwards[len(gates) > 5]
    return forward.bind(out[:, :dim], out[:, dim:], *gates[:5], *params, *gates[5:])


@implements("lstm_nonlinearity_backprop", "numpy", binder=True)
def bind_lstm_nonlinearity_backprop(
    x: Array,
    params: Array,
    out_deriv: Array,
    repair: Array,
    in_deriv: Array | None = None,
    params_deriv: Array | None = None,
    value_sum: Array | None = None,
    deriv_sum: Array | None = None,
) -> Callable[[], None]:
    """The values are computed again block by block, while they stay in the cache."""
    dim, num_rows = params.shape[1], x.shape[0]
    steps: list[Callable[[], object]] = []
    if params_deriv is not None:
        steps.append(fill.bind(params_deriv, 0.0))
    size = _block_rows(x, dim)
    work, sums = _work(11 * size * dim, x.dtype).reshape(11, size, dim), _sums(5 * dim)
    for rows in row_slices(num_rows, size):
        gates = _gates(x[rows], dim)
        dropout = len(gates) > 5
        i, f, o, g, h, c = work[:6, : rows.stop - rows.start]
        steps.append(
            _all_values[dropout].bind(i, f, g, c, o, h, *gates[:5], *params, *gates[5:7])
        )  # fmt: skip
        derivs = _deriv_views(in_deriv, work, rows, dim)
        out = out_deriv[rows]
        operands = (i, f, g, o, h, gates[4], out[:, :dim], out[:, dim:], *params, *repair)
        steps.append(_all_derivs[dropout].bind(*derivs, *operands, *gates[5:]))
        if params_deriv is not None:
            for row, a, b in ((0, gates[4], 0), (1, gates[4], 1), (2, c, 3)):
                steps.append(_sum_products.bind(params_deriv[row], a, derivs[b], beta=1.0))
        values = work[:5, : rows.stop - rows.start]
        steps += _stats_steps(values, sums.reshape(5, dim), value_sum, deriv_sum)
    if in_deriv is not None and in_deriv.shape[1] > 5 * dim:
        steps.append(fill.bind(in_deriv[:, 5 * dim :], 0.0))
    return functools.partial(_run, steps)


def _run(steps: Sequence[Callable[[], object]]) -> None:
    with LOCK:  # the work space is shared
        for step in steps:
            step()


@functools.lru_cache(maxsize=2)
def _work(size: int, dtype: np.dtype) -> Array:
    """Space for the values and derivatives of a block; bound operators of one size share it."""
    return np.empty(size, dtype)


@functools.lru_cache(maxsize=2)
def _sums(size: int) -> Array:
    return np.empty(size, np.float64)


def _deriv_views(in_deriv: Array | None, work: Array, rows: slice, dim: int) -> list[Array]:
    """Where the five derivatives of these rows go: into in_deriv, or into the work space."""
    if in_deriv is None:
        return list(work[6:11, : rows.stop - rows.start])
    return _gates(in_deriv[rows, : 5 * dim], dim)


def _stats_steps(
    values: Array, sums: Array, value_sum: Array | None, deriv_sum: Array | None
) -> list[Callable[[], object]]:
    """The step that adds the rows' sums of i, f, o, g, h and their derivatives to Kaldi's."""
    steps: list[Callable[[], object]] = []
    if value_sum is not None:
        steps.append(_sum.bind(sums, values))
        steps += _add_in_order(value_sum, sums)
    if deriv_sum is not None:
        steps.append(_sum_sigmoid_derivs.bind(sums[:3], values[:3]))
        steps.append(_sum_tanh_derivs.bind(sums[3:], values[3:]))
        steps += _add_in_order(deriv_sum, sums)
    return steps


def _add_in_order(total: Array, sums: Array) -> list[Callable[[], object]]:
    """The step that adds sums in the order i, f, o, g, h to others in the order i, f, g, o, h."""
    pairs = ((total[:2], sums[:2]), (total[2], sums[3]), (total[3], sums[2]), (total[4], sums[4]))
    return [add.bind(to, part) for to, part in pairs]


def _block_rows(x: Array, dim: int) -> int:
    """Rows to work on at a time."""
    return max(1, min(int(x.shape[0]), _BLOCK // dim))

"""The LSTM cell on NumPy: formulas, block of rows by block of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from nnet3tools.tensor.aggregate import aggregate
from nnet3tools.tensor.arrays import Array
from nnet3tools.tensor.basics import add, fill
from nnet3tools.tensor.element import Element, element
from nnet3tools.tensor.numpy_backend.row_blocks import row_slices
from nnet3tools.tensor.numpy_backend.threads import LOCK
from nnet3tools.tensor.registry import implements

_BLOCK = 1 << 15
"""Elements of one gate worked on at a time: a dozen such blocks stay in a core's second cache."""


def _forward_formula(dropout: bool) -> str:
    """(_1 c, _2 m) of (_3 x_i, _4 x_f, _5 x_g, _6 x_o, _7 c', _8 w_i, _9 w_f, _10 w_o, scales)."""
    i_scale, f_scale, o_scale = (f" * _{n}" if dropout else "" for n in (11, 12, 13))
    return (
        f"i = sigmoid(_3 + _8 * _7){i_scale}; f = sigmoid(_4 + _9 * _7){f_scale}; "
        "_1 = f * _7 + i * tanh(_5); "
        f"_2 = sigmoid(_6 + _10 * _1){o_scale} * tanh(_1)"
    )


def _values_formula(dropout: bool) -> str:
    """(_1 i, _2 f, _3 g, _4 c, _5 o, _6 h) of (_7 x_i .. _10 x_o, _11 c', _12 w_i .., scales)."""
    i_scale, f_scale = (f" * _{n}" if dropout else "" for n in (15, 16))
    return (
        "_1 = sigmoid(_7 + _12 * _11); _2 = sigmoid(_8 + _13 * _11); _3 = tanh(_9); "
        f"_4 = _2{f_scale} * _11 + _1{i_scale} * _3; "
        "_5 = sigmoid(_10 + _14 * _4); _6 = tanh(_4)"
    )


def _derivs_formula(dropout: bool) -> str:
    """(_1 .. _4 derivatives at the arguments of i, f, g, o, _5 at c') of the values and weights.

    _6 i, _7 f, _8 g, _9 o, _10 h, _11 c', _12 dc, _13 dm, _14 w_i, _15 w_f, _16 w_o, then the
    self-repair of i, f, g, o, h: _17 .. _21, then the scales.
    """
    i_scale, f_scale, o_scale = (f" * _{n}" if dropout else "" for n in (22, 23, 24))
    return (
        f"dm = _13{o_scale}; "
        "_4 = _9 * (1 - _9) * (_10 * dm) - (2 * _9 - 1) * _20; "
        "dc = (1 - _10 * _10) * (_9 * dm) + _12 + _4 * _16 - _10 * _21; "
        f"_1 = dc * _8{i_scale} * _6 * (1 - _6) - (2 * _6 - 1) * _17; "
        f"_2 = dc * _11{f_scale} * _7 * (1 - _7) - (2 * _7 - 1) * _18; "
        f"_3 = (1 - _8 * _8) * (_6 * dc{i_scale}) - _8 * _19; "
        f"_5 = _14 * _1 + _15 * _2 + _7 * dc{f_scale}"
    )


def _pair(formula: object) -> tuple[Element, Element]:
    """The operator without and with dropout scales."""
    return element(formula(False)), element(formula(True))  # type: ignore[operator]


_forward, _values, _derivs = (
    _pair(_forward_formula),
    _pair(_values_formula),
    _pair(_derivs_formula),
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
    forward = _forward[len(gates) > 5]
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
            _values[dropout].bind(i, f, g, c, o, h, *gates[:5], *params, *gates[5:7])
        )  # fmt: skip
        derivs = _deriv_views(in_deriv, work, rows, dim)
        out = out_deriv[rows]
        operands = (i, f, g, o, h, gates[4], out[:, :dim], out[:, dim:], *params, *repair)
        steps.append(_derivs[dropout].bind(*derivs, *operands, *gates[5:]))
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
    """What adds the sums over the rows of i, f, o, g, h and of their derivatives to Kaldi's."""
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
    """What adds sums in the order i, f, o, g, h to those in the order i, f, g, o, h."""
    pairs = ((total[:2], sums[:2]), (total[2], sums[3]), (total[3], sums[2]), (total[4], sums[4]))
    return [add.bind(to, part) for to, part in pairs]


def _block_rows(x: Array, dim: int) -> int:
    """Rows to work on at a time."""
    return max(1, min(int(x.shape[0]), _BLOCK // dim))

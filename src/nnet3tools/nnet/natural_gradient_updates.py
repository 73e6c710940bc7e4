"""Updates of natural gradient's estimates: immediate, or deferred and done for many estimates.

An update consists of small dense operations (tensor/operators/fisher). On a GPU, one block per
estimate, one estimate after another, would leave the device idle. While a program is recorded for
replay (tensor/recording.py), updates are therefore deferred and applied together when the segment
of the program ends, or earlier if an estimate is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nnet3tools import tensor
from nnet3tools.tensor import recording
from nnet3tools.tensor.arrays import padded
from nnet3tools.tensor.operators.fisher import (
    check_finite,
    fisher_products,
    fisher_replace,
    fisher_step,
    orthonormalize,
)
from nnet3tools.tensor.registry import device_of

if TYPE_CHECKING:
    from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

Array = Any


class UpdateBuffers(NamedTuple):
    """Memory of one update, for an estimate of rank R and a minibatch X (N, D), with H = X W^T.

    `j` (R, D) is J = H^T X. `products` (2, R, R) are K = J J^T and L = H^T H. The new W is formed
    from `transform` (R, R) and `coefficients` (R, 1). `trace` (1,) is tr(X X^T), on a device.
    """

    j: Array
    products: Array
    transform: Array
    coefficients: Array
    trace: Array


class Update(NamedTuple):
    """An update of `estimate` by a minibatch X of `num_rows` rows, from sums over these rows.

    The sums are `j` and `products` in `buffers`, and `trace`, tr(X X^T): a float or an array (1,).
    """

    estimate: OnlineNaturalGradient
    buffers: UpdateBuffers
    trace: Any
    num_rows: int


def make_buffers(w: Array) -> UpdateBuffers:
    """Allocate permanent UpdateBuffers for an estimate whose matrix W is `w`, on its device."""
    rank = w.shape[0]
    return UpdateBuffers(
        padded(w.shape, like=w),
        tensor.empty((2, rank, rank), like=w),
        tensor.empty((rank, rank), like=w),
        tensor.empty((rank, 1), like=w),
        tensor.empty((1,), like=w, dtype=np.float64),
    )


def small_products(w: Array, buffers: UpdateBuffers, h: Array) -> None:
    """Compute `buffers.products` for an update of an estimate: K = J J^T and L = H^T H = W J^T.

    J is `buffers.j`; `h` (N, R) is H = X W^T for a minibatch X.
    """
    if device_of(w) != "numpy":
        fisher_products([buffers.products], [buffers.j], [w])
        return
    j, (k, l) = buffers.j, buffers.products  # noqa: E741
    tensor.prod(k, j, j, trans_b=True)
    if h.shape[0] > j.shape[1]:
        tensor.prod(l, w, j, trans_b=True)
    else:
        tensor.prod(l, h, h, trans_a=True)


@contextmanager
def buffers_of(estimate: OnlineNaturalGradient) -> Iterator[UpdateBuffers]:
    """Context manager: the buffers kept by the estimate on a GPU; on the host, scratch memory."""
    if estimate.buffers is not None:
        yield estimate.buffers
        return
    w = estimate.w
    assert w is not None
    rank = w.shape[0]
    with (
        tensor.scratch(w.shape, like=w) as j,
        tensor.scratch((2, rank, rank), like=w) as products,
        tensor.scratch((rank, rank), like=w) as transform,
        tensor.scratch((rank, 1), like=w) as coefficients,
    ):
        yield UpdateBuffers(j, products, transform, coefficients, None)


def update_estimates(updates: Sequence[Update]) -> None:
    """Update natural-gradient estimates from their buffers. On the host, UserError for NaN."""
    if not updates:
        return
    estimates, all_buffers, traces, numbers_of_rows = map(list, zip(*updates, strict=True))
    j, products, transform, coefficients, _ = map(list, zip(*all_buffers, strict=True))
    states = [e.d for e in estimates], [e.numbers for e in estimates]
    rates = [
        (e.eta(num_rows), num_rows, e.alpha, e.dim)
        for e, num_rows in zip(estimates, numbers_of_rows, strict=True)
    ]
    fisher_step(*states, transform, coefficients, products, traces, rates)
    for estimate in estimates:  # has no effect on a GPU
        check_finite(estimate.numbers)
    w = [estimate.w for estimate in estimates]
    fisher_replace(w, j, transform, coefficients)
    orthonormalize(w, *states, [e.alpha for e in estimates])


# deferred updates

_pending: dict[OnlineNaturalGradient, int] = {}
"""Estimate -> number of rows of the minibatch whose J and trace are in its buffers."""


def defer(estimate: OnlineNaturalGradient, num_rows: int) -> None:
    """Note that `estimate` is to be updated later by sums over `num_rows` rows in its buffers."""
    _pending[estimate] = num_rows


def take_pending(estimate: OnlineNaturalGradient) -> int:
    """Forget the update that `defer` noted for an estimate; returns its `num_rows`, 0 if none."""
    return _pending.pop(estimate, 0)


def apply_pending(estimate: OnlineNaturalGradient, num_rows: int) -> None:
    """Do an update of `num_rows` rows (from `take_pending`) that `defer` put off; none if it is 0.

    The caller has set products to full precision.
    """
    if num_rows:
        _apply([_update(estimate, num_rows)])


def apply_all_pending() -> None:
    """Update all natural-gradient estimates noted by `defer`, together, and drop the notes."""
    with tensor.precise_products():
        _apply([_update(*each) for each in recording.decide(_take_all)])


def _apply(updates: Sequence[Update]) -> None:
    if updates:
        buffers = [update.buffers for update in updates]
        w = [update.estimate.w for update in updates]
        fisher_products([b.products for b in buffers], [b.j for b in buffers], w)
    update_estimates(updates)


def _take_all() -> tuple[tuple[OnlineNaturalGradient, int], ...]:
    found = tuple(_pending.items())
    _pending.clear()
    return found


def _update(estimate: OnlineNaturalGradient, num_rows: int) -> Update:
    buffers = estimate.buffers
    assert buffers is not None
    return Update(estimate, buffers, buffers.trace, num_rows)


def forget_pending() -> None:
    """Forget, after an error, all updates that `defer` has noted."""
    _pending.clear()

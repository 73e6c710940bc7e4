"""Updates of online natural gradient's estimates: at once, or for many estimates together.

What an update leaves for later minibatches is small and dense (tensor/fisher.py): on a GPU one
block of threads for each estimate, one after the other, would leave the device idle. Where notes
are taken for replays (tensor/recording.py) updates are therefore deferred there and applied
together when the segment of the program ends, or when an estimate is needed again before that.
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

__all__ = [
    "Update",
    "UpdateBuffers",
    "apply_all_pending",
    "apply_pending",
    "buffers_of",
    "defer",
    "forget_pending",
    "make_buffers",
    "small_products",
    "take_pending",
    "update_estimates",
]

Array = Any


class UpdateBuffers(NamedTuple):
    """Memory of one update: J (R, D), K and L (2, R, R), A (R, R), its coefficients (R, 1)."""

    j: Array
    products: Array
    transform: Array
    coefficients: Array
    trace: Array
    """tr(X X^T) (1,), where it is on a device."""


class Update(NamedTuple):
    """Facts for an estimate to learn: `trace` and the products in `buffers` of `num_rows` rows."""

    estimate: OnlineNaturalGradient
    buffers: UpdateBuffers
    trace: Any
    """A number, or on a device an array (1,)."""
    num_rows: int


def make_buffers(w: Array) -> UpdateBuffers:
    """UpdateBuffers that stays, for an estimate on a device."""
    rank = w.shape[0]
    return UpdateBuffers(
        padded(w.shape, like=w),
        tensor.empty((2, rank, rank), like=w),
        tensor.empty((rank, rank), like=w),
        tensor.empty((rank, 1), like=w),
        tensor.empty((1,), like=w, dtype=np.float64),
    )


def small_products(w: Array, buffers: UpdateBuffers, h: Array) -> None:
    """K = J J^T and L = H^T H = W J^T, on the host by the cheaper way."""
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
    """The estimate's own buffers, or scratch memory where it has none, on the host."""
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
    """Let each estimate learn; J is overwritten. UserError on the host if it is not finite."""
    if not updates:
        return
    estimates = [update.estimate for update in updates]
    all_buffers = [update.buffers for update in updates]
    states = [e.d for e in estimates], [e.numbers for e in estimates]
    fisher_step(
        *states,
        [buffers.transform for buffers in all_buffers],
        [buffers.coefficients for buffers in all_buffers],
        [buffers.products for buffers in all_buffers],
        [update.trace for update in updates],
        [
            (e.eta(update.num_rows), update.num_rows, e.alpha, e.dim)
            for e, update in zip(estimates, updates, strict=True)
        ],
    )
    for estimate in estimates:  # nobody looks on a GPU
        check_finite(estimate.numbers)
    w = [estimate.w for estimate in estimates]
    fisher_replace(
        w,
        [buffers.j for buffers in all_buffers],
        [buffers.transform for buffers in all_buffers],
        [buffers.coefficients for buffers in all_buffers],
    )
    orthonormalize(w, *states, [e.alpha for e in estimates])


# -- later

_pending: dict[OnlineNaturalGradient, int] = {}
"""Estimate -> number of rows of a minibatch of which J and trace are in its buffers."""


def defer(estimate: OnlineNaturalGradient, num_rows: int) -> None:
    """Let an estimate learn from what is in its buffers at the next `apply_all_pending`."""
    _pending[estimate] = num_rows


def take_pending(estimate: OnlineNaturalGradient) -> int:
    """The number of rows of what was put off for an estimate, which is not any more; 0: nothing."""
    return _pending.pop(estimate, 0)


def apply_pending(estimate: OnlineNaturalGradient, num_rows: int) -> None:
    """Do what was put off for one estimate, as `take_pending` told; the products are precise."""
    if num_rows:
        _apply([_update(estimate, num_rows)])


def apply_all_pending() -> None:
    """Do what was put off."""
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
    """Drop what was put off, as after an error."""
    _pending.clear()

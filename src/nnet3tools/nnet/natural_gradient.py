"""Online natural gradient: multiplies derivatives by the inverse of a running Fisher estimate.

Povey, Zhang and Khudanpur, "Parallel training of DNNs with natural gradient and parameter
averaging" (ICLR workshop 2015), appendix "Online estimation of a low-rank Fisher matrix". Defaults,
floors and the update schedule are those of Kaldi's natural-gradient-online.{h,cc}.

The Fisher matrix of D-dimensional vectors, the rows of X_t (N x D), is approximated by

    F_t = R_t^T D_t R_t + rho_t I          R_t: R x D with orthonormal rows, D_t diagonal

and smoothed to G_t = F_t + (alpha / D) tr(F_t) I = R_t^T D_t R_t + beta_t I. By Woodbury

    beta_t X_t G_t^-1 = X_t - X_t W_t^T W_t,    W_t = E_t^1/2 R_t,    e_t = 1 / (beta_t / d_t + 1)

so only W_t, d_t and rho_t are stored. F_{t+1} approximates T_t = eta / N X_t^T X_t + (1 - eta) F_t
by one step of the power method from R_t (tensor/operators/fisher has the formulas).

All arrays, and the scales that `precondition` returns, stay on the device of the rows, so that no
call waits for a GPU. There NaN and infinity are counted, and `check_finite` reports them.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.nnet.natural_gradient_updates import (
    Update,
    UpdateBuffers,
    apply_pending,
    buffers_of,
    defer,
    make_buffers,
    small_products,
    take_pending,
    update_estimates,
)
from nnet3tools.nnet.parts import product_with, transposed_product
from nnet3tools.tensor import recording
from nnet3tools.tensor.arrays import padded
from nnet3tools.tensor.number import store
from nnet3tools.tensor.operators.fisher import EPSILON, RHO, check_finite, norm_ratio, residual_norm
from nnet3tools.tensor.registry import device_of
from nnet3tools.tensor.settings import HasSettings, begin_settings
from nnet3tools.tensor.side_stream import wait_for_side_stream

Array = Any


class Factored(NamedTuple):
    """Preconditioned rows as factors: they are x - h @ w, where x are the rows before.

    `scale` restores the norm; the caller multiplies the learning rate by it.
    """

    h: Array
    w: Array
    scale: Any


_INITIAL_UPDATES = 10
"""The first calls each update F; `update_period` applies to later calls."""


class OnlineNaturalGradient(HasSettings):
    """Running estimate of the Fisher matrix of a matrix's rows, to precondition them.

    The estimate is R^T diag(d) R + rho I; `w` is R with scaled rows, `numbers` holds rho. Model
    files contain the options, but not this state. `num_calls` counts calls of `precondition`; 0
    means that there is no estimate yet.
    """

    NO_SETTINGS = frozenset({"frozen", "num_calls"})

    def __init__(
        self,
        rank: int = 40,
        update_period: int = 1,
        num_samples_history: float = 2000.0,
        alpha: float = 4.0,
        num_minibatches_history: float = 0.0,
    ) -> None:
        self.rank = rank
        self.update_period = update_period
        self.num_samples_history = num_samples_history
        self.num_minibatches_history = num_minibatches_history
        self.alpha = alpha
        self.frozen = False
        self.num_calls = 0
        self.w: Array | None = None
        self.d: Array = np.empty(0)
        self.numbers: Array = np.zeros(3)
        """rho and two flags: see tensor/operators/fisher."""
        self.buffers: UpdateBuffers | None = None
        """On a GPU: an update's memory, as updates may be deferred to the side stream."""

    @property
    def dim(self) -> int:
        """Dimension D of the rows; defined after the first call."""
        assert self.w is not None
        return int(self.w.shape[1])

    @property
    def rho(self) -> float:
        """Weight of the identity in the Fisher estimate; reading it waits for the device."""
        wait_for_side_stream()
        return float(tensor.to_host(self.numbers)[RHO])

    def problem(self) -> str | None:
        """A sentence about an invalid option; None if all are valid."""
        if self.rank <= 0:
            return f"natural-gradient rank must be positive, found {self.rank}"
        if self.update_period <= 0:
            return f"update-period must be positive, found {self.update_period}"
        if not 0.0 < self.num_samples_history < 1.0e6:
            return f"num-samples-history must be in (0, 1e6), found {self.num_samples_history:g}"
        if self.num_minibatches_history != 0.0 and not self.num_minibatches_history > 1.0:
            return (
                f"num-minibatches-history must be above 1, found {self.num_minibatches_history:g}"
            )
        if not self.alpha >= 0.0:
            return f"alpha must not be negative, found {self.alpha:g}"
        return None

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        wait_for_side_stream()
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return made

    def map_arrays(self, function: Callable[[Array], Array]) -> None:
        """Replace each array of the state by `function` of the array."""
        wait_for_side_stream()
        if self.w is not None:
            w, self.d, self.numbers = map(function, (self.w, self.d, self.numbers))
            self.w, self.buffers = _stored(w)

    def precondition(self, x: Array) -> float:
        """Replace x (N x D) by x times the smoothed inverse Fisher matrix, up to a scale.

        Returns the factor that restores the Frobenius norm of x; the caller applies it to the
        learning rate. Also updates the estimate if the schedule requires it.
        """
        if x.shape[1] == 1:  # rows of one element need no preconditioning
            return 1.0
        with tensor.precise_products():  # the estimate needs more than half precision
            product, updating = self._begin([x])
            with self._projected([x], product, updating) as h:
                tensor.prod(x, h, self.w, alpha=-1.0, beta=1.0)
        return norm_ratio(product, tensor.dot(x, x))

    @contextmanager
    def factored(self, parts: Sequence[Array]) -> Iterator[Factored]:
        """Precondition X, but leave X unchanged and yield Factored(H, W, scale): X - H W, scaled.

        X has the columns of `parts` in order. A product with the result takes one with X and two as
        narrow as the rank. The estimate is updated at the end of the `with` block.
        """
        with tensor.precise_products():
            product, updating = self._begin(parts)
            with self._projected(parts, product, updating) as h:
                after = residual_norm(h, self.w, parts, product)
                yield Factored(h, self.w, norm_ratio(product, after))

    def _begin(self, parts: Sequence[Array]) -> tuple[Any, bool]:
        """Count a call with the matrix X; return (tr(X X^T), whether to update the estimate).

        X has the columns of `parts`. The first call makes the estimate.
        """
        # one event for everything, because a minibatch has dozens of calls
        is_first, updating, pending_rows = recording.decide(
            self._plan_on_host if device_of(parts[0]) == "numpy" else self._plan
        )
        if is_first is None:
            # recorded, so that replays of the first minibatch are valid for later ones
            recording.run("estimate at first", partial(self._initialize_once, parts))
        elif is_first:
            recording.not_capturable()
            self._initialize(parts)
        apply_pending(self, pending_rows)
        return _trace(parts), updating

    def check_finite(self) -> None:
        """Raise DivergedError if NaN or infinity was preconditioned; waits for the device."""
        wait_for_side_stream()
        check_finite.reference(tensor.to_host(self.numbers))

    # schedule

    def _plan(self) -> tuple[bool, bool, int]:
        """Count a call; return (is it the first, does it update the estimate, num_rows).

        num_rows is that of an earlier minibatch whose update was put off until now, or 0.
        """
        wait_for_side_stream()
        before = self.num_calls
        # bypasses HasSettings for speed: a minibatch has dozens of calls
        self.__dict__["num_calls"] = before + 1
        later = before - _INITIAL_UPDATES
        updating = not self.frozen and (later <= 0 or later % self.update_period == 0)
        return before == 0, updating, take_pending(self)

    def _plan_on_host(self) -> tuple[None, bool, int]:
        """Count a call; return (None, is the estimate updated, rows of a put-off update or 0)."""
        _, updating, pending_rows = self._plan()
        return None, updating, pending_rows  # the host records first calls like all others

    def eta(self, num_rows: int) -> float:
        """Weight of the scatter matrix of `num_rows` new rows in the estimate, 0 < eta <= 0.9."""
        if self.num_minibatches_history > 0.0:
            return 1.0 / self.num_minibatches_history
        return min(0.9, 1.0 - math.exp(-num_rows / self.num_samples_history))

    # initialization

    def _initialize_once(self, parts: Sequence[Array]) -> None:
        if self.w is None:
            with recording.unrecorded():
                self._initialize(parts)

    def _initialize(self, parts: Sequence[Array]) -> None:
        """Make the first estimate from X, all `parts`, by power-method steps from a fixed start."""
        like, num_rows = parts[0], parts[0].shape[0]
        dim = sum(part.shape[1] for part in parts)
        if self.rank >= dim:
            log.warning(
                f"rank {self.rank} of online natural gradient is >= dim {dim}, setting it to "
                f"{dim - 1} (but this is probably still too high)"
            )
            begin_settings(self, rank=dim - 1)
        start = math.sqrt(1.0 / (2.0 + (dim + self.rank) * self.alpha / dim))
        w = start * _special_orthonormal(self.rank, dim)
        kept, buffers = _stored(tensor.asarray(w.astype(np.float32), like=like))
        d = tensor.asarray(np.full(self.rank, EPSILON), like=like)
        numbers = tensor.asarray(np.array([EPSILON, 0.0, 0.0]), like=like)
        begin_settings(self, w=kept, buffers=buffers, d=d, numbers=numbers)
        # With at most `rank` rows, one step finds their row space.
        trace = _trace(parts)
        for _ in range(1 if num_rows <= self.rank else 3):
            with self._projected(parts, trace, updating=True, at_once=True):
                pass

    # -- one step

    @contextmanager
    def _projected(
        self, parts: Sequence[Array], trace: Any, updating: bool, at_once: bool = False
    ) -> Iterator[Array]:
        """Context manager that yields H = X W^T, in scratch memory; X has the columns of `parts`.

        If `updating`, the estimate is updated after the block. While operations on a GPU are
        recorded for replay, `defer` puts this off, unless `at_once`. `trace` is tr(X X^T).
        """
        w, first = self.w, parts[0]
        assert w is not None
        num_rows = first.shape[0]
        with tensor.scratch((num_rows, self.rank), like=first) as h:
            product_with(parts, w, h)  # H = X W^T
            if not updating:
                yield h
                return
            with buffers_of(self) as buffers:
                transposed_product(h, parts, buffers.j)  # J = H^T X
                has_own = self.buffers is not None
                later = has_own and not at_once and recording.state.event_recorder is not None
                if not later:
                    small_products(w, buffers, h)
                yield h
                if later:
                    store(buffers.trace, trace)
                    recording.act(partial(defer, self, num_rows))
                else:
                    number = getattr(trace, "array", trace)
                    update_estimates([Update(self, buffers, number, num_rows)])


def _stored(w: Array) -> tuple[Array, UpdateBuffers | None]:
    """(W with padded rows, memory for its updates) on a GPU; on the host (W, None)."""
    if device_of(w) == "numpy":
        return w, None
    made = padded(w.shape, like=w)
    tensor.copy(made, w)
    return made, make_buffers(w)


def _trace(parts: Sequence[Array]) -> Any:
    """The trace of X X^T, a float or Number, for X with the columns of all `parts`."""
    return functools.reduce(operator.add, [tensor.dot(part, part) for part in parts])


def _special_orthonormal(num_rows: int, num_cols: int) -> np.ndarray:
    """A matrix with orthonormal rows and no zero row or column.

    Row r has entries at columns r, r + num_rows, ... The first is 1.1 times the others, so that no
    sum of rows is constant: in some networks the derivative in the direction of all ones is zero.
    """
    column = np.arange(num_cols)
    rows = np.zeros((num_rows, num_cols))
    rows[column % num_rows, column] = np.where(column < num_rows, 1.1, 1.0)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)

"""Applies a minibatch's parameter change to the model: l2, maximum change, statistics.

The formulas and their order are those of Kaldi's nnet-utils.cc, in single precision, so that
logs and models agree with Kaldi's to the printed digits. Norms, factors and counts are vectors with
an entry per component on the device of the parameters: the host does not wait for a GPU, and all
operations can be recorded.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor import recording
from nnet3tools.tensor.number import Number, store
from nnet3tools.tensor.operators.order import cumulative_sum
from nnet3tools.tensor.registry import device_of
from nnet3tools.training.example import NnetIo

_LARGEST = float(np.finfo(np.float32).max)

# factor (_1) and squared norm once limited (_2) of squared norms (_3), limits (_4), |scale| (_5)
_limit_each = tensor.element(
    "norm = sqrt(_3) * _5; f = where(_4 != 0 and norm > _4, _4 / norm, 1.0);_1 = f; _2 = f * f * _3"
)
# counts (_1) of the factors (_2) that are not 1; and once and for all the number (_3), which is one
# more than that of the minibatches before (_5), of the first whose squared norm (_4) is not finite
_count = tensor.element(
    f"_1 += where(_2 != 1.0, 1.0, 0.0); _3 = where(_3 == 0 and not (_4 <= {_LARGEST}), _5 + 1, _3)"
)
_norm = tensor.element("_1 = sqrt(_2) * _3")
# the whole change's factor (_1; 0 where it is not finite) of its norm (_2), scale (_3), limit (_4,
# 0 for none); _5 counts what was limited, _6 what was not finite, _7 by _8
_limit_all = tensor.element(
    f"finite = _2 <= {_LARGEST}; over = _4 != 0 and not (_2 <= _4); "
    "_1 = where(over, where(finite, _3 * (_4 / _2), 0.0), _3); "
    "_5 += where(over and finite, 1.0, 0.0); _6 += where(over and not finite, 1.0, 0.0); _7 += _8"
)
_products = tensor.element("_1 = _2 * _3")
_kept_if = tensor.element("_1 = where(_2 != 0, _1, 0)")


class MaxChange:
    """Adds parameter changes to a model, limits their norms, and counts the limited changes.

    Each component and the whole model have a limit of the Euclidean norm; 0 means no limit.
    """

    def __init__(
        self, num_components: int, like: Array | None = None, limit_components: bool = True
    ) -> None:
        """Prepare for a model with `num_components` updatable components, on the device of `like`.

        Without `limit_components` only the whole change is limited.
        """
        self._limit_components = limit_components
        self.num_minibatches = 0
        shape = (num_components,)
        self._squares, self._factors, self._limited, self._sums = (
            tensor.zeros(shape, like=like, dtype=np.float32) for _ in range(4)
        )
        self._norm, self._whole = (tensor.zeros(1, like, np.float32) for _ in range(2))
        self._counts = tensor.zeros(shape, like, np.float64)
        self._num_limited, self._num_infinite = (
            tensor.zeros(1, like, np.float64) for _ in range(2)
        )
        self._first_infinite = tensor.zeros(shape, like, np.float64)
        self._num_before = tensor.zeros(1, like, np.float64)
        self._scales = tensor.zeros(shape, like, np.float64)
        self._limits: tuple[list[float], Array] | None = None
        self._on_host = device_of(self._squares) == "numpy"

    @property
    def factor(self) -> Array:
        """The factor (1,) that limited the last change as a whole; 0 if it was not applied."""
        return self._whole

    def apply(
        self,
        delta: Nnet,
        nnet: Nnet,
        max_param_change: float,
        limit_scale: float,
        scale: float,
        is_last: bool = True,
    ) -> None:
        """Add `scale` times `delta` to `nnet`, each change limited to its component's max_change.

        The whole change is limited to `max_param_change`. `limit_scale` multiplies both limits.
        Nothing is changed if the whole change is infinite or NaN. `is_last` says that the next call
        is about another minibatch.
        """
        recording.act(self._count_minibatch)
        components = delta.updatable_components()
        factor = np.float32(limit_scale)
        for i, (_, component) in enumerate(components):
            store(self._squares[i : i + 1], component.dot_product(component))
        limits = [
            float(np.float32(c.max_change) * factor) if self._limit_components else 0.0
            for _, c in components
        ]
        limit = float(np.float32(max_param_change) * factor)
        if components:
            self._limit(limits, limit, float(np.float32(scale)), is_last)
        else:
            tensor.fill(self._whole, scale)
        if self._on_host:
            names = [name for name, _ in components]
            recording.run("log limits", partial(self._log, names, limits, limit, factor, scale))
        self._add(delta, nnet)

    def _count_minibatch(self) -> None:
        self.num_minibatches += 1

    def _limit(self, limits: list[float], limit: float, scale: float, is_last: bool) -> None:
        _limit_each(
            self._factors, self._limited, self._squares, self._on_device(limits), abs(scale)
        )
        _count(self._counts, self._factors, self._first_infinite, self._squares, self._num_before)
        cumulative_sum(self._sums, self._limited, 0, False, False)
        _norm(self._norm, self._sums[-1:], abs(scale))
        counts = (self._num_limited, self._num_infinite, self._num_before, float(is_last))
        _limit_all(self._whole, self._norm, scale, limit, *counts)

    def _on_device(self, limits: list[float]) -> Array:
        """The limits as an array on the device, which is uploaded only when they change."""
        if self._limits is None or self._limits[0] != limits:
            array = np.array(limits, np.float32)
            self._limits = limits, tensor.asarray(array, like=self._squares)
        return self._limits[1]

    def _add(self, delta: Nnet, nnet: Nnet) -> None:
        """Add the parameter changes in `delta` to `nnet`, scaled as the limits require."""
        _products(self._scales, self._factors, self._whole)
        pairs = zip(delta.updatable_components(), nnet.updatable_components(), strict=True)
        for place, ((_, source), (_, dest)) in enumerate(pairs):
            dest.add(Number(self._scales[place : place + 1]), source)  # type: ignore[arg-type]

    def drop_if_not_applied(self, delta: Nnet) -> None:
        """Zero `delta`, which momentum would keep, if the last change was not finite."""
        for _, component in delta.updatable_components():
            for array in component.parameters().values():
                _kept_if(array, self._whole)

    def first_infinite(self, nnet: Nnet) -> tuple[int, list[str]]:
        """The number (from 1) of the first minibatch with an infinite change, and its components.

        0 and no components if all changes were finite.
        """
        firsts = tensor.to_host(self._first_infinite)
        if not firsts.any():
            return 0, []
        first = int(firsts[firsts > 0].min())
        names = [name for name, _ in nnet.updatable_components()]
        return first, [names[i] for i in np.flatnonzero(firsts == first)]

    # -- what is logged

    def print(self, nnet: Nnet, warn: bool = True) -> None:
        """Log the percentage of limited changes; if `warn`, warn of infinite changes on a GPU."""
        counts = (tensor.to_host(a) for a in (self._counts, self._num_limited, self._num_infinite))
        each, (whole,), (infinite,) = counts
        for (name, _), count in zip(nnet.updatable_components(), each, strict=True):
            if count:
                log.log(
                    f"For {name}, per-component max-change was enforced "
                    f"{100.0 * count / self.num_minibatches:g} % of the time."
                )
        if whole:
            log.log(
                "The global max-change was enforced "
                f"{100.0 * whole / self.num_minibatches:g} % of the time."
            )
        if infinite and warn and not self._on_host:
            log.warning(f"Infinite parameter change, not applied, {infinite:g} times.")

    def _log(
        self, names: list[str], limits: list[float], limit: float, limit_scale: Any, scale: float
    ) -> None:
        """Log the components `names` that exceeded their limits, and a too large change as a whole.

        `limits` and the whole's `limit` contain the factor `limit_scale`. Norms of changes are
        multiplied by `scale`. On a GPU nothing is logged.
        """
        active = [i for i, factor in enumerate(self._factors) if factor != 1.0]
        for i in active:
            log.vlog(
                2,
                f"Parameters in {names[i]} change too big: {np.sqrt(self._squares[i]):g} * "
                f"{scale:g} > max-change * max-change-scale={limits[i] / limit_scale:g} * "
                f"{limit_scale:g}, scaling by {self._factors[i]:g}",
            )
        norm = self._norm[0]
        is_over = limit != 0.0 and not norm <= limit
        if is_over and not math.isfinite(norm):
            log.warning("Infinite parameter change, will not apply.")
            return
        if is_over and not self._limit_components:
            log.log(
                f"Parameter change too big: {norm:g} > --max-param-change={limit:g}, scaling by "
                f"{np.float32(limit) / norm:g}"
            )
            return
        parts = []
        smallest = int(np.argmin(self._factors)) if names else 0
        if names and self._factors[smallest] < 1.0:
            parts.append(
                f"Per-component max-change active on {len(active)} / {len(names)} Updatable "
                f"Components. (Smallest factor={self._factors[smallest]:g} on {names[smallest]} "
                f"with max-change={limits[smallest] / limit_scale:g}). "
            )
        if is_over:
            parts.append(
                f"Global max-change factor was {np.float32(limit) / norm:g} with "
                f"max-change={limit / limit_scale:g}."
            )
        if parts:
            log.log("".join(parts))


def scale_change(delta: Nnet, scale: float) -> None:
    """Multiply a parameter change, and the statistics of components with parameters, by `scale`.

    Components without parameters store statistics directly in the model, never in a change.
    """
    if scale != 1.0:
        for _, component in delta.updatable_components():
            component.scale(scale)


class L2Regularization:
    """Adds the gradient of -scale * l2_regularize * |parameters|^2, times the learning rate.

    The scale is the number of sequences in a minibatch. Factors are read from memory on the device,
    so recorded operations stay valid when the scale changes.
    """

    def __init__(self, num_components: int, like: Array | None = None) -> None:
        """Prepare for `num_components` updatable components on the device of the array `like`."""
        self._on_device = tensor.zeros((num_components,), like, np.float64)
        self._alphas: list[float] = []

    def prepare(self, scale: float, delta: Nnet) -> bool:
        """Store -2 * scale * learning_rate * l2_regularize for each component of `delta`.

        Returns whether any of these numbers is not 0.
        """
        components = [component for _, component in delta.updatable_components()]
        alphas = [-2.0 * scale * c.learning_rate * c.l2_regularize for c in components]
        if alphas != self._alphas:
            self._alphas = alphas
            tensor.copy(self._on_device, tensor.asarray(np.array(alphas), like=self._on_device))
        return any(alphas)

    def apply(self, nnet: Nnet, delta: Nnet) -> None:
        """Add the l2 gradient at the parameters of `nnet` to the parameter change `delta`."""
        pairs = zip(nnet.updatable_components(), delta.updatable_components(), strict=True)
        for place, ((_, source), (_, dest)) in enumerate(pairs):
            if self._alphas[place] != 0.0:
                alpha = Number(self._on_device[place : place + 1])
                dest.add(alpha, source)  # type: ignore[arg-type]


def num_sequences(ios: Sequence[NnetIo]) -> int:
    """The number of sequences (values of n) of a minibatch, by which l2 is scaled.

    The number is one more than the n of each last index. Sometimes, at random as in Kaldi, all
    indexes are checked. DataError if inputs and outputs disagree.
    """
    counts = {int(io.indexes[-1, 0]) + 1 for io in ios}
    if tensor.random.rand_int(0, 100) == 0:
        counts |= {int(np.ptp(io.indexes[:, 0])) + 1 for io in ios}
    if len(counts) != 1:
        raise DataError(
            "inputs and outputs of an example differ in their number of sequences: "
            f"{sorted(counts)}"
        )
    return counts.pop()

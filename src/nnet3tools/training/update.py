"""From a minibatch's parameter change to the model: l2, maximum change, statistics.

The formulas and their order are those of Kaldi's nnet-utils.cc, in single precision, so that what
is logged and what is written agree with Kaldi's to the digits printed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.tensor import recording
from nnet3tools.training.device_update import DeviceUpdate
from nnet3tools.training.example import NnetIo

__all__ = [
    "MaxChangeStats",
    "apply_l2_regularization",
    "num_sequences",
    "update_with_max_change",
]


@dataclass
class MaxChangeStats:
    """How often changes were scaled down: per updatable component, and all together."""

    num_components: int
    num_minibatches: int = 0
    num_global: int = 0
    num_per_component: list[int] = field(default_factory=list)
    device: DeviceUpdate | None = None
    """Where norms stay on a GPU: counts there, on top of these."""

    def __post_init__(self) -> None:
        """Start all counts at zero."""
        self.num_per_component = [0] * self.num_components

    def count_minibatch(self) -> None:
        """Note that there was another one."""
        self.num_minibatches += 1

    def print(self, nnet: Nnet, warn: bool = True) -> None:
        """Log the percentages that are not zero; `warn` of changes that were not finite."""
        self._fetch(warn)
        for (name, _), count in zip(
            nnet.updatable_components(), self.num_per_component, strict=True
        ):
            if count:
                log.log(
                    f"For {name}, per-component max-change was enforced "
                    f"{100.0 * count / self.num_minibatches:g} % of the time."
                )
        if self.num_global:
            log.log(
                "The global max-change was enforced "
                f"{100.0 * self.num_global / self.num_minibatches:g} % of the time."
            )

    def _fetch(self, warn: bool) -> None:
        if self.device is None:
            return
        each, whole, infinite = self.device.counts()
        self.num_per_component, self.num_global = each, whole
        if infinite and warn:
            log.warning(f"Infinite parameter change, not applied, {infinite} times.")


@dataclass
class _Change:
    """One component's change: its name, squared norm, limit and the factor that keeps the limit."""

    name: str
    squared_norm: np.float32
    max_change: np.float32
    factor: np.float32


def _component_changes(
    delta: Nnet, max_change_scale: np.float32, scale: np.float32
) -> list[_Change]:
    changes = []
    for name, component in delta.updatable_components():
        limit = np.float32(component.max_change)
        squared = np.float32(component.dot_product(component))
        norm = np.sqrt(squared) * abs(scale)
        active = limit != 0.0 and norm > limit * max_change_scale
        factor = limit * max_change_scale / norm if active else np.float32(1.0)
        changes.append(_Change(name, squared, limit, factor))
        if active:
            log.vlog(
                2,
                f"Parameters in {name} change too big: {np.sqrt(squared):g} * {scale:g} > "
                f"max-change * max-change-scale={limit:g} * {max_change_scale:g}, scaling by "
                f"{factor:g}",
            )
    return changes


def update_with_max_change(
    delta: Nnet,
    max_param_change: float,
    max_change_scale: float,
    scale: float,
    nnet: Nnet,
    stats: MaxChangeStats,
) -> bool:
    """Add `scale` times `delta` to `nnet`, each component's and the whole change limited.

    A component's change is scaled down to its max_change, then all changes to `max_param_change`
    (Euclidean norms; both limits are multiplied by `max_change_scale`; 0 is no limit). Returns
    False, and changes nothing, if the whole change is infinite or NaN.
    """
    recording.act(stats.count_minibatch)
    if stats.device is not None:
        stats.device.run(delta, nnet, max_param_change, max_change_scale, scale)
        return True
    limit_scale, signed_scale = np.float32(max_change_scale), np.float32(scale)
    with np.errstate(over="ignore", invalid="ignore"):
        changes = _component_changes(delta, limit_scale, signed_scale)
        squares = [change.factor**2 * change.squared_norm for change in changes]
        total = np.sqrt(np.add.reduce(squares, dtype=np.float32)) * abs(signed_scale)
    limit = np.float32(max_param_change) * limit_scale
    for i, change in enumerate(changes):
        stats.num_per_component[i] += bool(change.factor != 1.0)
    if max_param_change != 0.0 and not total <= limit:
        if not math.isfinite(total):
            log.warning("Infinite parameter change, will not apply.")
            return False
        signed_scale *= limit / total
        stats.num_global += 1
    _log_limits(changes, total, limit, max_param_change)
    factors = {change.name: change.factor for change in changes}
    for name, source, dest in zip(
        delta.component_names, delta.components, nnet.components, strict=True
    ):
        dest.add(float(factors.get(name, np.float32(1.0)) * signed_scale), source)
    return True


def _log_limits(
    changes: Sequence[_Change], total: np.float32, limit: np.float32, max_param_change: float
) -> None:
    parts = []
    smallest = min(changes, key=lambda change: change.factor, default=None)
    if smallest is not None and smallest.factor < 1.0:
        active = sum(change.factor != 1.0 for change in changes)
        parts.append(
            f"Per-component max-change active on {active} / {len(changes)} Updatable Components. "
            f"(Smallest factor={smallest.factor:g} on {smallest.name} with "
            f"max-change={smallest.max_change:g}). "
        )
    if max_param_change != 0.0 and total > limit:
        parts.append(
            f"Global max-change factor was {limit / total:g} with max-change={max_param_change:g}."
        )
    if parts:
        log.log("".join(parts))


def apply_l2_regularization(nnet: Nnet, scale: float, delta: Nnet) -> None:
    """Add the gradient of -scale * l2_regularize * |parameters|^2 (times the learning rate)."""
    if scale == 0.0:
        return
    pairs = zip(nnet.updatable_components(), delta.updatable_components(), strict=True)
    for (_, source), (_, dest) in pairs:
        alpha = -2.0 * scale * dest.learning_rate * dest.l2_regularize
        if alpha != 0.0:
            dest.add(alpha, source)


def num_sequences(ios: Sequence[NnetIo]) -> int:
    """How many sequences (values of n) a minibatch has: l2 is counted per sequence.

    Taken from each last index, since n runs from 0 in an example; checked in full now and then,
    as Kaldi does. DataError if inputs and outputs disagree.
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

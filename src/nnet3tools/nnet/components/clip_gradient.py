"""ClipGradientComponent: identity whose derivatives are limited in size, for recurrent networks.

Formulas and file fields: Kaldi's ClipGradientComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.io.stream import Reader
from nnet3tools.nnet.components.array_fields import Count
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Component,
    Indexes,
    Memo,
    Properties,
)
from nnet3tools.nnet.components.common import summed
from nnet3tools.nnet.components.fields import Flag, Int, NotNegative
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.derivative_scale import as_derivative
from nnet3tools.tensor import recording
from nnet3tools.tensor.registry import device_of

_REPAIR_PROBABILITY = 0.5

_clip = tensor.element("_1 = clip(_2, -_3, _3)")
_row_squares = tensor.aggregate("_1 * _1", "sum", axis=1)
_mean_root = tensor.aggregate("sqrt(_1)", "mean", axis=0)
_total = tensor.aggregate("_1", "sum", axis=None)
_number_above = tensor.aggregate("where(float64(_1) / _2 > 1.0, 1.0, 0.0)", "sum", axis=None)
_to_scales = tensor.element("_1 = max(float64(_1) / _2, 1.0) ** -0.5")
# The excess over the target, against which self-repair pulls the input.
_excess = tensor.element("_1 = where(_2 > 0, 1, -1) * max(abs(_2) - _3, 0)")
_scale_rows = tensor.element("_1 = _2 * _3")
_truncate = tensor.element("_1 = where(_2 < 0, ceil(_2), floor(_2))")
_add_rows = tensor.element("_1 += _2 * _3")

# Inputs: clipped rows (_2), all rows (_3), threshold (_4). _is_due: whether self-repair is due.
# _set_pull: factor of the pull, from the norms of derivatives (_5) and pull (_6). _restore: factor
# that restores the norm (_6: norm after the pull).
_is_due = tensor.element("_1 = where(_2 / _3 > _4, 1.0, 0.0)")
_set_pull = tensor.element(
    "_1 = where(_2 / _3 > _4 and _6 != 0, -_7 * (_2 / _3) * _5 / where(_6 != 0, _6, 1), 0)"
)
_restore = tensor.element("_1 = where(_2 / _3 > _4 and _6 != 0, _5 / where(_6 != 0, _6, 1), 1)")


class _SelfRepair(NotNegative):
    """Field for a self-repair option; old files lack it, and `of_old` is its value for them."""

    def __init__(self, token: str, config: str, default: float, of_old: float) -> None:
        super().__init__(token, config, default, optional=True)
        self.of_old = of_old

    def read(self, reader: Reader, owner: Any) -> None:
        setattr(owner, self.name, self.of_old)
        super().read(reader, owner)

    def info(self, owner: Any) -> str:
        return super().info(owner) if owner.self_repair_scale != 0.0 else ""


class _WholeCount(Count):
    """Field for a count stored as an integer; scaling and adding models truncates it."""

    METHODS = "read_int32", "write_int32", ""

    def file_value(self, owner: Any) -> int:
        return int(getattr(owner, self.name))

    def scale(self, owner: Any, scale: float) -> None:
        if not (number := getattr(owner, self.name)).is_zero():
            setattr(owner, self.name, _truncated(number * scale))

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        if not (number := getattr(other, self.name)).is_zero():
            setattr(owner, self.name, _truncated(getattr(owner, self.name) + alpha * number))


class _Calls(_WholeCount):
    """Field for a number of calls of backprop in this process; scaling and adding keep it."""

    def scale(self, owner: Any, scale: float) -> None:
        pass

    def add(self, owner: Any, alpha: float, other: Any) -> None:
        pass


@register
class ClipGradientComponent(Component):
    """Limits each derivative or, with norm-based clipping, the norm of each derivative row.

    `num_clipped` of `count` rows were clipped so far. If this proportion exceeds a threshold,
    self-repair pulls the input back.
    """

    FORMULA = "y = x; dx = min(max(dy, -c), c), or dy min(1, c / |dy|); c is clipping-threshold"
    PROPERTIES = Properties.IN_PLACE | Properties.BACKPROP_NEEDS_INPUT
    INFO = (
        "dim norm_based_clipping clipping_threshold clipped_proportion "
        "self_repair_clipped_proportion_threshold self_repair_target self_repair_scale"
    )

    dim = Int("<Dim>", "dim", positive=True)
    clipping_threshold = NotNegative("<ClippingThreshold>", "clipping-threshold", 15.0)
    norm_based_clipping = Flag("<NormBasedClipping>", "norm-based-clipping", False)
    self_repair_clipped_proportion_threshold = _SelfRepair(
        "<SelfRepairClippedProportionThreshold>",
        "self-repair-clipped-proportion-threshold",
        0.01,
        of_old=1.0,
    )
    self_repair_target = _SelfRepair("<SelfRepairTarget>", "self-repair-target", 0.0, of_old=0.0)
    self_repair_scale = _SelfRepair("<SelfRepairScale>", "self-repair-scale", 1.0, of_old=0.0)
    num_clipped = _WholeCount("<NumElementsClipped>")
    count = _WholeCount("<NumElementsProcessed>")
    num_self_repaired = _Calls("<NumSelfRepaired>", optional=True)
    num_backpropped = _Calls("<NumBackpropped>", optional=True)

    @property
    def clipped_proportion(self) -> float:
        """Proportion of rows whose derivatives were clipped."""
        return self.num_clipped / self.count if self.count.is_positive() else 0.0

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        if out_value is not in_value:
            tensor.copy(out_value, in_value)

    def backprop(self, args: BackpropArgs) -> None:
        assert args.to_update is None or isinstance(args.to_update, ClipGradientComponent)
        if self.clipping_threshold == 0.0:
            tensor.fill(args.in_deriv, 0.0)
            return
        if self.norm_based_clipping:
            self._clip_norms(args.out_deriv, args.in_deriv, args.to_update)
        else:
            _clip(args.in_deriv, args.out_deriv, as_derivative(self.clipping_threshold))
        if args.to_update is not None:
            args.to_update.num_backpropped += 1
            with recording.optional(self._repairs_now, args.in_deriv) as is_now:
                if is_now:
                    self._pull(args.debug_info, args.in_value, args.in_deriv, args.to_update)

    def _clip_norms(
        self, out_deriv: Array, in_deriv: Array, to_update: ClipGradientComponent | None
    ) -> None:
        limit = as_derivative(self.clipping_threshold)
        limit = limit * limit
        with tensor.scratch((out_deriv.shape[0], 1), like=out_deriv) as squares:
            _row_squares(squares, out_deriv)
            if to_update is not None:
                to_update.num_clipped += summed(_number_above(squares, limit))
                to_update.count += out_deriv.shape[0]
            _to_scales(squares, limit)
            _scale_rows(in_deriv, out_deriv, squares)

    def _repairs_now(self) -> bool:
        """Whether to self-repair now: a random choice, False if disabled or without counts."""
        off = self.self_repair_clipped_proportion_threshold >= 1.0 or self.self_repair_scale == 0.0
        if off or self.count.is_zero():
            return False
        return bool(tensor.random.rand_uniform() <= _REPAIR_PROBABILITY)

    def _pull(
        self, debug_info: str, in_value: Array, in_deriv: Array, to_update: ClipGradientComponent
    ) -> None:
        """If too many rows are clipped, change `in_deriv` to pull inputs to `self_repair_target`.

        The norm of the derivatives stays the same. On a GPU, where the host does not know the
        counts, the change is always computed, and is 0 if few rows are clipped. `debug_info` is the
        node's name for a log line.
        """
        threshold = self.self_repair_clipped_proportion_threshold
        on_host = device_of(in_deriv) == "numpy"
        if on_host and self.clipped_proportion <= threshold:
            return
        clipped = self.num_clipped, self.count, threshold
        with (
            tensor.scratch((4, 1), like=in_deriv, dtype=np.float64) as numbers,
            tensor.scratch(in_value.shape, like=in_deriv) as repair,
        ):
            norm, repair_norm, now, factor = numbers
            _is_due(factor, *clipped)
            to_update.num_self_repaired += summed(_total(factor))
            if on_host and to_update.num_self_repaired == 1:
                to_update._log_first_repair(debug_info)
            _mean_norm(norm, in_deriv)
            _excess(repair, in_value, self.self_repair_target)
            _mean_norm(repair_norm, repair)
            scale = self.self_repair_scale / _REPAIR_PROBABILITY
            _set_pull(factor, *clipped, norm, repair_norm, scale)
            _add_rows(in_deriv, repair, factor)
            _mean_norm(now, in_deriv)
            _restore(factor, *clipped, norm, now)
            _scale_rows(in_deriv, in_deriv, factor)

    def _log_first_repair(self, debug_info: str) -> None:
        log.log(
            f"ClipGradientComponent(node_name={debug_info})'s self-repair was activated as "
            f"the first time at the {int(self.num_backpropped)}-th call of Backprop() in this "
            "training job."
        )


def _truncated(number: Any) -> Any:
    """Truncate a number, on the host or a device, to an integer."""
    return int(number) if isinstance(number, (int, float)) else number.mapped(_truncate)


def _mean_norm(out: Array, matrix: Array) -> None:
    """Set `out` (1,) to the mean Euclidean norm of the rows of `matrix`."""
    with tensor.scratch((matrix.shape[0], 1), like=matrix) as squares:
        _row_squares(squares, matrix)
        _mean_root(out, squares)

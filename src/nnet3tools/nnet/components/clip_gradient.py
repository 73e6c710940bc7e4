"""Identity forward; backward the derivatives are limited in size (for recurrent networks).

Formulas and file fields: Kaldi's ClipGradientComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.io import log
from nnet3tools.nnet.components.base import (
    Array,
    Component,
    PrecomputedIndexes,
    Properties,
)
from nnet3tools.nnet.components.common import (
    get_positive,
    optional_field,
    rand_uniform,
    read_field,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.derivative_scale import as_derivative

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["ClipGradientComponent"]

_REPAIR_PROBABILITY = 0.5

_clip = tensor.element("_1 = clip(_2, -_3, _3)")
_row_squares = tensor.aggregate("_1 * _1", "sum", axis=1)
# What lies outside the target, towards which self-repair pulls the input.
_excess = tensor.element("_1 = where(_2 > 0, 1, -1) * max(abs(_2) - _3, 0)")
_scale_rows = tensor.element("_1 = _2 * _3")


@register
class ClipGradientComponent(Component):
    """Limits each derivative, or with norm-based clipping the norm of each row of them.

    `num_clipped` of `count` rows were clipped so far. Where that is a larger part than a
    threshold, self-repair pulls the input back.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.clipping_threshold = 15.0
        self.norm_based_clipping = False
        self.self_repair_clipped_proportion_threshold = 0.01
        self.self_repair_target = 0.0
        self.self_repair_scale = 1.0
        self.num_clipped = 0
        self.count = 0
        self.num_self_repaired = 0
        self.num_backpropped = 0

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.PROPAGATE_IN_PLACE
            | Properties.BACKPROP_IN_PLACE
            | Properties.BACKPROP_NEEDS_INPUT
        )

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(get_positive(line, "dim"))
        component.norm_based_clipping = line.get_bool("norm-based-clipping", False)
        for name in (
            "clipping_threshold",
            "self_repair_clipped_proportion_threshold",
            "self_repair_target",
            "self_repair_scale",
        ):
            key = name.replace("_", "-")
            value = line.get_float(key, getattr(component, name))
            if value < 0.0:
                raise line.error(f"{key} must not be negative")
            setattr(component, name, value)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(read_field(reader, "<Dim>", reader.read_int32))
        component.clipping_threshold = read_field(reader, "<ClippingThreshold>", reader.read_float)
        component.norm_based_clipping = read_field(reader, "<NormBasedClipping>", reader.read_bool)
        for token, name, default in (
            ("<SelfRepairClippedProportionThreshold>", "clipped_proportion_threshold", 1.0),
            ("<SelfRepairTarget>", "target", 0.0),
            ("<SelfRepairScale>", "scale", 0.0),
        ):
            value = optional_field(reader, token, reader.read_float, default)
            setattr(component, f"self_repair_{name}", value)
        component.num_clipped = read_field(reader, "<NumElementsClipped>", reader.read_int32)
        component.count = read_field(reader, "<NumElementsProcessed>", reader.read_int32)
        component.num_self_repaired = optional_field(
            reader, "<NumSelfRepaired>", reader.read_int32, 0
        )
        component.num_backpropped = optional_field(reader, "<NumBackpropped>", reader.read_int32, 0)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<Dim>", self.dim)
        write_field(writer, "<ClippingThreshold>", float(self.clipping_threshold))
        write_field(writer, "<NormBasedClipping>", self.norm_based_clipping)
        write_field(
            writer,
            "<SelfRepairClippedProportionThreshold>",
            float(self.self_repair_clipped_proportion_threshold),
        )
        write_field(writer, "<SelfRepairTarget>", float(self.self_repair_target))
        write_field(writer, "<SelfRepairScale>", float(self.self_repair_scale))
        write_field(writer, "<NumElementsClipped>", int(self.num_clipped))
        write_field(writer, "<NumElementsProcessed>", int(self.count))
        write_field(writer, "<NumSelfRepaired>", int(self.num_self_repaired))
        write_field(writer, "<NumBackpropped>", int(self.num_backpropped))
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = (
            f"{self.type_name}, dim={self.dim}"
            f", norm-based-clipping={'true' if self.norm_based_clipping else 'false'}"
            f", clipping-threshold={self.clipping_threshold:g}"
            f", clipped-proportion={self._clipped_proportion():g}"
        )
        if self.self_repair_scale != 0.0:
            text += (
                ", self-repair-clipped-proportion-threshold="
                f"{self.self_repair_clipped_proportion_threshold:g}"
                f", self-repair-target={self.self_repair_target:g}"
                f", self-repair-scale={self.self_repair_scale:g}"
            )
        return text

    def _clipped_proportion(self) -> float:
        return self.num_clipped / self.count if self.count > 0 else 0.0

    def propagate(
        self, indexes: PrecomputedIndexes | None, in_value: Array, out_value: Array
    ) -> object:
        if out_value is not in_value:
            tensor.copy(out_value, in_value)
        return None

    def backprop(
        self,
        debug_info: str,
        indexes: PrecomputedIndexes | None,
        in_value: Array | None,
        out_value: Array | None,
        out_deriv: Array,
        memo: object,
        to_update: Component | None,
        in_deriv: Array | None,
    ) -> None:
        assert to_update is None or isinstance(to_update, ClipGradientComponent)
        if in_deriv is None:
            return
        if self.clipping_threshold == 0.0:
            tensor.fill(in_deriv, 0.0)
            return
        if self.norm_based_clipping:
            self._clip_norms(out_deriv, in_deriv, to_update)
        else:
            _clip(in_deriv, out_deriv, as_derivative(self.clipping_threshold))
        if to_update is not None:
            to_update.num_backpropped += 1
            self._self_repair(debug_info, in_value, in_deriv, to_update)

    def _clip_norms(
        self, out_deriv: Array, in_deriv: Array, to_update: ClipGradientComponent | None
    ) -> None:
        squares = tensor.to_host(self._row_norms_squared(out_deriv)).astype(np.float64)
        excess = squares / float(as_derivative(self.clipping_threshold)) ** 2
        scales = tensor.asarray(np.maximum(excess, 1.0)[:, None] ** -0.5, like=in_deriv)
        _scale_rows(in_deriv, out_deriv, scales.astype(in_deriv.dtype))
        if to_update is not None:
            to_update.num_clipped += int((excess > 1.0).sum())
            to_update.count += len(excess)

    @staticmethod
    def _row_norms_squared(matrix: Array) -> Array:
        squares = tensor.empty((matrix.shape[0],), like=matrix)
        _row_squares(squares, matrix)
        return squares

    def _mean_norm(self, matrix: Array) -> float:
        """Mean over the rows of their norms."""
        return float(np.sqrt(tensor.to_host(self._row_norms_squared(matrix))).mean())

    def _self_repair(
        self, debug_info: str, in_value: Array, in_deriv: Array, to_update: ClipGradientComponent
    ) -> None:
        """Pull the input towards the target where too many rows are clipped.

        The pull is proportional to the derivatives' norm, which is the same afterwards.
        """
        proportion = self._clipped_proportion()
        if (
            self.self_repair_clipped_proportion_threshold >= 1.0
            or self.self_repair_scale == 0.0
            or self.count == 0
            or rand_uniform() > _REPAIR_PROBABILITY
            or proportion <= self.self_repair_clipped_proportion_threshold
        ):
            return
        to_update.num_self_repaired += 1
        if to_update.num_self_repaired == 1:
            log.log(
                f"ClipGradientComponent(node_name={debug_info})'s self-repair was activated as "
                f"the first time at the {to_update.num_backpropped}-th call of Backprop() in this "
                "training job."
            )
        norm = self._mean_norm(in_deriv)
        with tensor.scratch(in_value.shape, like=in_deriv) as repair:
            _excess(repair, in_value, self.self_repair_target)
            repair_norm = self._mean_norm(repair)
            if repair_norm != 0.0:
                scale = self.self_repair_scale * proportion * norm / repair_norm
                tensor.add(in_deriv, repair, alpha=-scale / _REPAIR_PROBABILITY)
        repaired_norm = self._mean_norm(in_deriv)
        if repaired_norm != 0.0:
            tensor.scale(in_deriv, norm / repaired_norm)

    def zero_stats(self) -> None:
        self.count = self.num_clipped = self.num_self_repaired = self.num_backpropped = 0

    # Kaldi keeps these as integers, so that fractions are cut off here, too.

    def scale(self, scale: float) -> None:
        self.count = int(self.count * scale)
        self.num_clipped = int(self.num_clipped * scale)

    def add(self, alpha: float, other: Component) -> None:
        assert isinstance(other, ClipGradientComponent)
        self.count = int(self.count + alpha * other.count)
        self.num_clipped = int(self.num_clipped + alpha * other.num_clipped)

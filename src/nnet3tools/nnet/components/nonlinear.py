"""What nonlinearities share: dimension, statistics of values and derivatives, self-repair options.

Statistics and file fields: Kaldi's NonlinearComponent (nnet-component-itf.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from nnet3tools import tensor
from nnet3tools.nnet.components.base import Array, Component
from nnet3tools.nnet.components.common import (
    get_positive,
    optional_field,
    read_field,
    rounded_average,
    write_double_field,
    write_field,
)
from nnet3tools.nnet.components.summary import summarize_vector
from nnet3tools.nnet.derivative_scale import derivative_scale
from nnet3tools.tensor import host
from nnet3tools.tensor.counter import Counter

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = ["REPAIR_PROBABILITY", "UNSET_THRESHOLD", "NonlinearComponent"]

UNSET_THRESHOLD = -1000.0
"""A self-repair threshold that was not given; each nonlinearity has its own default then."""

REPAIR_PROBABILITY = 0.5
"""Self-repair runs on about this part of the minibatches, and is scaled up to make up for it."""

_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_squares = tensor.aggregate("sqr(_1)", "sum", axis=0)
# without what overflowed, which would spoil the sum for good
_sum_unscaled_squares = tensor.aggregate(
    "where(abs(_1) < 1e37, sqr(float64(_1) / _2), 0)", "sum", axis=0
)

_VECTORS = ("value_sum", "deriv_sum", "oderiv_sumsq")
_COUNTS = ("count", "oderiv_count", "num_dims_self_repaired", "num_dims_processed")


class NonlinearComponent(Component):
    """A nonlinearity of `dim` columns, treated as blocks of `block_dim`, and its statistics.

    `value_sum` and `deriv_sum` (dim,) sum the outputs and the derivatives of the function over
    `count` rows; `oderiv_sumsq` sums the squares of the objective's derivatives over
    `oderiv_count` rows. They are float64, and None until there is something to sum. Files may hold
    vectors of another size; those are kept but not used, and new statistics replace them.
    """

    count, oderiv_count = Counter(), Counter()
    num_dims_self_repaired, num_dims_processed = Counter(), Counter()

    sum_derivatives: Any = None
    """The `aggregate` that sums dy/dx over the rows, given y; None: no such statistics."""

    def __init__(self, dim: int, block_dim: int | None = None) -> None:
        self.dim = dim
        self.block_dim = dim if block_dim is None else block_dim
        self.self_repair_lower_threshold = UNSET_THRESHOLD
        self.self_repair_upper_threshold = UNSET_THRESHOLD
        self.self_repair_scale = 0.0
        self.value_sum: Array | None = None
        self.deriv_sum: Array | None = None
        self.oderiv_sumsq: Array | None = None
        self.count = 0.0
        self.oderiv_count = 0.0
        self.num_dims_self_repaired = 0.0
        self.num_dims_processed = 0.0

    @property
    def input_dim(self) -> int:
        return self.dim

    @property
    def output_dim(self) -> int:
        return self.dim

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls(dim := get_positive(line, "dim"), get_positive(line, "block-dim", dim))
        if component.dim % component.block_dim != 0:
            raise line.error(f"block-dim must divide dim, which is {component.dim}")
        for name in ("self_repair_lower_threshold", "self_repair_upper_threshold"):
            setattr(component, name, line.get_float(name.replace("_", "-"), UNSET_THRESHOLD))
        component.self_repair_scale = line.get_float("self-repair-scale", 0.0)
        component.check_self_repair(line)
        return component

    def check_self_repair(self, line: ConfigLine) -> None:
        """Raise the error of this line for self-repair options that cannot work."""

    # -- files: averages instead of sums, the derivative's squares as root mean square

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls(read_field(reader, "<Dim>", reader.read_int32))
        component.block_dim = optional_field(reader, "<BlockDim>", reader.read_int32, component.dim)
        value_avg, deriv_avg = (
            read_field(reader, token, lambda: reader.read_vector(np.float64))
            for token in ("<ValueAvg>", "<DerivAvg>")
        )
        component.count = read_field(reader, "<Count>", reader.read_double)
        component.value_sum = _sum_or_none(value_avg, component.count)
        component.deriv_sum = _sum_or_none(deriv_avg, component.count)
        if reader.peek_token() == "<OderivRms>":
            reader.read_token()
            rms = reader.read_vector(np.float64)
            component.oderiv_count = read_field(reader, "<OderivCount>", reader.read_double)
            component.oderiv_sumsq = _sum_or_none(rms * rms, component.oderiv_count)
        component._read_self_repair(reader)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def _read_self_repair(self, reader: Reader) -> None:
        fields = (
            ("<NumDimsSelfRepaired>", reader.read_double, "num_dims_self_repaired"),
            ("<NumDimsProcessed>", reader.read_double, "num_dims_processed"),
            ("<SelfRepairLowerThreshold>", reader.read_float, "self_repair_lower_threshold"),
            ("<SelfRepairUpperThreshold>", reader.read_float, "self_repair_upper_threshold"),
            ("<SelfRepairScale>", reader.read_float, "self_repair_scale"),
        )
        for token, read, name in fields:
            setattr(self, name, optional_field(reader, token, read, getattr(self, name)))

    def write(self, writer: Writer) -> None:
        writer.write_token(f"<{self.type_name}>")
        write_field(writer, "<Dim>", self.dim)
        if self.block_dim != self.dim:
            write_field(writer, "<BlockDim>", self.block_dim)
        write_field(writer, "<ValueAvg>", rounded_average(self.value_sum, self.count))
        write_field(writer, "<DerivAvg>", rounded_average(self.deriv_sum, self.count))
        write_double_field(writer, "<Count>", self.count)
        # An average may be negative where models were subtracted from each other.
        mean_square = rounded_average(self.oderiv_sumsq, self.oderiv_count)
        write_field(writer, "<OderivRms>", np.sqrt(np.maximum(mean_square, np.float32(0.0))))
        write_double_field(writer, "<OderivCount>", self.oderiv_count)
        write_double_field(writer, "<NumDimsSelfRepaired>", self.num_dims_self_repaired)
        write_double_field(writer, "<NumDimsProcessed>", self.num_dims_processed)
        if self.self_repair_lower_threshold != UNSET_THRESHOLD:
            write_field(
                writer, "<SelfRepairLowerThreshold>", float(self.self_repair_lower_threshold)
            )
        if self.self_repair_upper_threshold != UNSET_THRESHOLD:
            write_field(
                writer, "<SelfRepairUpperThreshold>", float(self.self_repair_upper_threshold)
            )
        if self.self_repair_scale != 0.0:
            write_field(writer, "<SelfRepairScale>", float(self.self_repair_scale))
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        parts = [f"{self.type_name}, dim={self.dim}"]
        if self.block_dim != self.dim:
            parts.append(f"block-dim={self.block_dim}")
        if self.self_repair_lower_threshold != UNSET_THRESHOLD:
            parts.append(f"self-repair-lower-threshold={self.self_repair_lower_threshold:g}")
        if self.self_repair_upper_threshold != UNSET_THRESHOLD:
            parts.append(f"self-repair-upper-threshold={self.self_repair_upper_threshold:g}")
        if self.self_repair_scale != 0.0:
            parts.append(f"self-repair-scale={self.self_repair_scale:g}")
        if self.count > 0 and self._fits(self.value_sum):
            processed = self.num_dims_processed
            proportion = self.num_dims_self_repaired / processed if processed > 0 else 0.0
            parts.append(f"count={self.count:.3g}, self-repaired-proportion={proportion:g}")
            parts.append(
                f"value-avg={summarize_vector(rounded_average(self.value_sum, self.count))}"
            )
            if self._fits(self.deriv_sum):
                deriv_avg = tensor.to_host(self.deriv_sum) / self.count
                parts.append(f"deriv-avg={summarize_vector(deriv_avg)}")
        if self.oderiv_count > 0 and self._fits(self.oderiv_sumsq):
            mean_square = tensor.to_host(self.oderiv_sumsq) / self.oderiv_count
            rms = summarize_vector(np.sqrt(np.maximum(mean_square, 0.0)))
            parts.append(f"oderiv-rms={rms}, oderiv-count={self.oderiv_count:g}")
        return ", ".join(parts)

    # -- statistics

    def _fits(self, vector: Array | None) -> bool:
        return vector is not None and vector.shape[0] == self.dim

    def store_stats(self, in_value: Array, out_value: Array, memo: object) -> None:
        """Sum values and derivatives on about every other minibatch, and on the first."""
        if host.decide(lambda: tensor.random.rand_int(0, 1) == 0 and self.count != 0.0):
            return
        self.sum_stats(out_value)

    def sum_stats(self, out_value: Array) -> None:
        """Add one minibatch to the value statistics, and to the derivative statistics if kept."""
        with_derivatives = self.sum_derivatives is not None
        if host.decide(
            lambda: not (self._fits(self.value_sum) and self._fits(self.deriv_sum))
            if with_derivatives
            else not self._fits(self.value_sum)
        ):
            host.not_capturable()
            self.count = 0.0
            self.value_sum = tensor.zeros((self.dim,), like=out_value, dtype=np.float64)
            if with_derivatives:
                self.deriv_sum = tensor.zeros((self.dim,), like=out_value, dtype=np.float64)
        self.count += out_value.shape[0]
        _sum_rows(self.value_sum, out_value, beta=1.0)
        if with_derivatives:
            type(self).sum_derivatives(self.deriv_sum, out_value, beta=1.0)

    def store_backprop_stats(self, out_deriv: Array) -> None:
        """Sum squares of the objective's derivatives on 3 of 4 minibatches, and on the first."""
        if host.decide(lambda: tensor.random.rand_int(0, 3) == 0 and self.oderiv_count != 0.0):
            return
        if host.decide(lambda: not self._fits(self.oderiv_sumsq)):
            host.not_capturable()
            self.oderiv_sumsq = tensor.zeros((self.dim,), like=out_deriv, dtype=np.float64)
            self.oderiv_count = 0.0
        if (scale := derivative_scale()) is None:
            _sum_squares(self.oderiv_sumsq, out_deriv, beta=1.0)
        else:
            _sum_unscaled_squares(self.oderiv_sumsq, out_deriv, scale.array, beta=1.0)
        self.oderiv_count += out_deriv.shape[0]

    def zero_stats(self) -> None:
        self.scale(0.0)

    def scale(self, scale: float) -> None:
        for name in _VECTORS:
            if (vector := getattr(self, name)) is not None:
                if scale == 0.0:
                    tensor.fill(vector, 0.0)
                else:
                    tensor.scale(vector, scale)
        for name in _COUNTS:
            count = getattr(self, name)
            count *= scale
            setattr(self, name, count)

    def add(self, alpha: float, other: Component) -> None:
        assert isinstance(other, NonlinearComponent)
        for name in _VECTORS:
            if (theirs := getattr(other, name)) is None:
                continue
            if getattr(self, name) is None:
                setattr(self, name, tensor.zeros(theirs.shape, like=theirs, dtype=np.float64))
            tensor.add(getattr(self, name), theirs, alpha=alpha)
        for name in _COUNTS:
            count = getattr(self, name)
            if getattr(other, name) != 0.0:
                count += alpha * getattr(other, name)
            setattr(self, name, count)


def _sum_or_none(average: np.ndarray, count: float) -> Array | None:
    return average * count if average.size else None

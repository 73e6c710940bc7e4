"""y = s x: a trainable scale for every column.

Formulas and file fields: Kaldi's PerElementScaleComponent and
NaturalGradientPerElementScaleComponent (nnet-simple-component.cc).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from nnet3tools import tensor
from nnet3tools.nnet.components.base import (
    Array,
    BackpropArgs,
    Indexes,
    Memo,
    Properties,
    UpdatableComponent,
)
from nnet3tools.nnet.components.common import (
    checked_natural_gradient,
    get_positive,
    optional_field,
    random_normal,
    read_field,
    vector_from_file,
    write_field,
)
from nnet3tools.nnet.components.registry import register
from nnet3tools.nnet.components.summary import parameter_stats
from nnet3tools.nnet.natural_gradient import OnlineNaturalGradient

if TYPE_CHECKING:
    from nnet3tools.io.stream import Reader, Writer
    from nnet3tools.nnet.config import ConfigLine

__all__ = [
    "NaturalGradientPerElementScaleComponent",
    "PerElementScaleComponent",
    "add_preconditioned_rows",
    "random_vector",
]

_multiply = tensor.element("_1 = _2 * _3")
_sum_rows = tensor.aggregate("_1", "sum", axis=0)
_sum_products = tensor.aggregate("_1 * _2", "sum", axis=0)

_min = tensor.aggregate("_1", "min", axis=None)
_max = tensor.aggregate("_1", "max", axis=None)


def add_preconditioned_rows(
    params: Array, derivs: Array, rate: float, preconditioner: OnlineNaturalGradient
) -> None:
    """Add rate * the sum of the rows of derivs, preconditioned; derivs is overwritten."""
    scale = preconditioner.precondition(derivs)
    _sum_rows(params, derivs, alpha=rate * scale, beta=1.0)


def random_vector(line: ConfigLine, dim: int, default_mean: float) -> Array:
    """A vector of param-mean plus noise of param-stddev (default 0)."""
    mean = line.get_float("param-mean", default_mean)
    stddev = line.get_float("param-stddev", 0.0)
    if stddev < 0.0:
        raise line.error("param-stddev must not be negative")
    return random_normal((dim,), stddev, mean)


@register
class PerElementScaleComponent(UpdatableComponent):
    """y = scales * x; `scales` (dim,)."""

    file_key = "vector"
    """Config key of a file with the initial scales."""

    def __init__(self, scales: Array | None = None) -> None:
        self.scales = tensor.zeros((0,)) if scales is None else scales

    @property
    def input_dim(self) -> int:
        return int(self.scales.shape[0])

    @property
    def output_dim(self) -> int:
        return self.input_dim

    @property
    def properties(self) -> Properties:
        return (
            Properties.SIMPLE
            | Properties.UPDATABLE
            | Properties.BACKPROP_NEEDS_INPUT
            | Properties.PROPAGATE_IN_PLACE
            | Properties.BACKPROP_IN_PLACE
        )

    def parameters(self) -> dict[str, Array]:
        return {"scales": self.scales}

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = cls()
        component.read_updatable_config(line)
        if cls.file_key in line:
            component.scales = vector_from_file(line.get_string(cls.file_key))
            if line.get_int("dim", component.input_dim) != component.input_dim:
                raise line.error(f"dim differs from that of the file ({component.input_dim})")
        else:
            component.scales = random_vector(line, get_positive(line, "dim"), 1.0)
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component.read_updatable_common(reader)
        component.scales = read_field(reader, "<Params>", reader.read_vector)
        component.is_gradient = optional_field(
            reader, "<IsGradient>", reader.read_bool, component.is_gradient
        )
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Params>", self.scales)
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        text = f"{super().info()}, scales-min={_min(self.scales):g}"
        text += f", scales-max={_max(self.scales):g}"
        return text + parameter_stats("scales", self.scales, include_mean=True)

    def propagate(self, indexes: Indexes, in_value: Array, out_value: Array) -> Memo:
        _multiply(out_value, in_value, self.scales)

    def backprop(self, args: BackpropArgs) -> None:
        if args.to_update is not None:  # first, for in_deriv may be out_deriv
            assert isinstance(args.to_update, PerElementScaleComponent)
            assert args.in_value is not None
            if args.to_update.is_gradient:
                args.to_update._update_simple(args.in_value, args.out_deriv)
            else:
                args.to_update._update(args.in_value, args.out_deriv)
        if args.in_deriv is not None:
            _multiply(args.in_deriv, args.out_deriv, self.scales)

    def _update_simple(self, in_value: Array, out_deriv: Array) -> None:
        _sum_products(self.scales, out_deriv, in_value, alpha=self.learning_rate, beta=1.0)

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        self._update_simple(in_value, out_deriv)


@register
class NaturalGradientPerElementScaleComponent(PerElementScaleComponent):
    """PerElementScaleComponent with natural gradient; its rank is small to spare memory."""

    file_key = "scales"

    def __init__(self, scales: Array | None = None) -> None:
        super().__init__(scales)
        self.preconditioner = OnlineNaturalGradient(rank=8, update_period=10)

    @classmethod
    def from_config(cls, line: ConfigLine) -> Self:
        component = super().from_config(line)
        component.preconditioner = checked_natural_gradient(
            OnlineNaturalGradient(
                line.get_int("rank", 8),
                line.get_int("update-period", 10),
                line.get_float("num-samples-history", 2000.0),
                line.get_float("alpha", 4.0),
            ),
            line,
        )
        return component

    @classmethod
    def read(cls, reader: Reader) -> Self:
        component = cls()
        component.read_updatable_common(reader)
        component.scales = read_field(reader, "<Params>", reader.read_vector)
        component.is_gradient = read_field(reader, "<IsGradient>", reader.read_bool)
        component.preconditioner = checked_natural_gradient(
            OnlineNaturalGradient(
                read_field(reader, "<Rank>", reader.read_int32),
                read_field(reader, "<UpdatePeriod>", reader.read_int32),
                read_field(reader, "<NumSamplesHistory>", reader.read_float),
                read_field(reader, "<Alpha>", reader.read_float),
            ),
            reader,
        )
        optional_field(reader, "<MaxChangePerMinibatch>", reader.read_float, 0.0)
        reader.expect_token(f"</{cls.type_name}>")
        return component

    def write(self, writer: Writer) -> None:
        self.write_updatable_common(writer)
        write_field(writer, "<Params>", self.scales)
        write_field(writer, "<IsGradient>", self.is_gradient)
        write_field(writer, "<Rank>", self.preconditioner.rank)
        write_field(writer, "<UpdatePeriod>", self.preconditioner.update_period)
        write_field(writer, "<NumSamplesHistory>", float(self.preconditioner.num_samples_history))
        write_field(writer, "<Alpha>", float(self.preconditioner.alpha))
        writer.write_token(f"</{self.type_name}>")

    def info(self) -> str:
        options = self.preconditioner
        return (
            f"{super().info()}, rank={options.rank}, update-period={options.update_period}"
            f", num-samples-history={options.num_samples_history:g}, alpha={options.alpha:g}"
        )

    def freeze_natural_gradient(self, freeze: bool) -> None:
        self.preconditioner.frozen = freeze

    def _update(self, in_value: Array, out_deriv: Array) -> None:
        with tensor.scratch(in_value.shape, like=in_value) as derivs:
            _multiply(derivs, in_value, out_deriv)
            add_preconditioned_rows(self.scales, derivs, self.learning_rate, self.preconditioner)

"""Convolutions over time and height (columns are height x filters), and averages of channels."""

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer
from nnet3tools.xconfig.options import (
    ANY,
    FLAG,
    INTEGER,
    NON_NEGATIVE,
    NUMBER,
    OFFSETS,
    POSITIVE,
    PROPORTION,
    Option,
    check_value,
    options,
)
from nnet3tools.xconfig.registry import register

CONVOLUTION = "TimeHeightConvolutionComponent"

PREPARATION = options(
    param_stddev=Option("", NUMBER),
    bias_stddev=Option("", NUMBER),
    use_natural_gradient=Option("", FLAG),
    max_change=Option(0.75, ANY),
    rank_in=Option("", INTEGER),
    rank_out=Option("", INTEGER),
    num_minibatches_history=Option("", NUMBER),
    alpha_in=Option("", NUMBER),
    alpha_out=Option("", NUMBER),
)
"""Options that every convolution copies to its component, in this order."""
PREPARED = " ".join(PREPARATION)


@register(
    "relu-conv-layer conv-layer conv-relu-layer conv-renorm-layer relu-conv-renorm-layer "
    "batchnorm-conv-layer conv-relu-renorm-layer batchnorm-conv-relu-layer "
    "relu-batchnorm-conv-layer relu-batchnorm-noconv-layer relu-noconv-layer "
    "conv-relu-batchnorm-layer conv-relu-batchnorm-so-layer conv-relu-batchnorm-dropout-layer "
    "conv-relu-dropout-layer"
)
class ConvLayer(Layer):
    """The operations that the type names, in its order; one is a time-height convolution."""

    OPTIONS = options(
        INPUT,
        PREPARATION,
        height_in=Option(-1, POSITIVE),
        height_subsample_out=Option(1, POSITIVE),
        height_out=Option(-1, POSITIVE),
        height_offsets=Option("", ANY),
        num_filters_out=Option(-1, POSITIVE),
        time_offsets=Option("", ANY),
        required_time_offsets=Option("", ANY),
        target_rms=Option(1.0, POSITIVE),
        self_repair_scale=Option(2.0e-05, ANY),
        self_repair_lower_threshold=Option(0.05, ANY),
        learning_rate_factor=Option("", NUMBER),
        l2_regularize=Option("", NUMBER),
        dropout_proportion=Option(0.5, ANY),
    )

    def derive(self) -> None:
        """Set the number of filters of the input: its dimension divided by its height."""
        check_value(self.line, "height-in", self["height-in"], POSITIVE)
        self.values["num-filters-in"] = num_filters(self, "height-in")

    def check(self) -> None:
        """Raise ConfigError unless offsets are lists and the heights of input and output fit."""
        if "conv" in self.operations:
            required = ("required-time-offsets",) if self["required-time-offsets"] else ()
            for key in ("height-offsets", "time-offsets", *required):
                check_value(self.line, key, self[key], OFFSETS)
        if "dropout" in self.operations:
            check_value(self.line, "dropout-proportion", self["dropout-proportion"], PROPORTION)
        height, sub = self["height-in"], self["height-subsample-out"]
        least = height - len(self["height-offsets"].split(","))
        self.require(
            least <= self["height-out"] * sub <= height,
            f"option 'height-out': expected {least} to {height} (height-in) when multiplied by "
            f"height-subsample-out={sub}, found {self['height-out']}",
        )

    @property
    def dim(self) -> int:
        """Columns of the main output: filters times height."""
        return self["num-filters-out"] * self["height-out"]

    def write(self, out: ConfigLines) -> str:
        """Add lines for each operation; return the last node's name."""
        node, height, filters = self.input.node, self["height-in"], self["num-filters-in"]
        for operation in self.operations:
            node = self._write_operation(out, operation, node, height * filters, filters)
            if operation == "conv":
                height, filters = self["height-out"], self["num-filters-out"]
        return node

    def _write_operation(
        self, out: ConfigLines, operation: str, node: str, dim: int, filters: int
    ) -> str:
        part = f".{operation}"
        match operation:
            case "conv":
                return out.step(part, CONVOLUTION, node, self._convolution())
            case "batchnorm":
                block, rms = f"block-dim={filters}", self.given("target-rms")
                return out.step(part, "BatchNormComponent", node, block, rms, dim=dim)
            case "renorm":
                return out.step(part, "NormalizeComponent", node, self.given("target-rms"), dim=dim)
            case "relu":
                return write_relu(self, out, part, node, dim, filters, "")
            case "dropout":
                proportion = self.given("dropout-proportion")
                return out.step(part, "DropoutComponent", node, proportion, dim=dim)
        return out.step(part, "ScaleAndOffsetComponent", node, dim=dim, block_dim=filters)

    def _convolution(self) -> str:
        return self.given(
            f"{PREPARED} num-filters-in num-filters-out height-in height-out height-subsample-out "
            "height-offsets time-offsets required-time-offsets learning-rate-factor l2-regularize"
        )


def num_filters(layer: Layer, key: str) -> int:
    """The input's columns / option `key`, the number of heights; ConfigError with a remainder."""
    height = layer[key]
    layer.require(
        layer.input.dim % height == 0,
        f"option '{key}': expected a divisor of the input's dimension {layer.input.dim}, "
        f"found {height}",
    )
    return layer.input.dim // height


def write_relu(
    layer: Layer, out: ConfigLines, suffix: str, node: str, dim: int, filters: int, number: str
) -> str:
    """Add the ReLU <layer><suffix> with input `node`; return its node's name.

    Blocks of `filters` columns share statistics. The threshold is the layer's option
    self-repair-lower-threshold<number>.
    """
    return out.step(
        suffix,
        "RectifiedLinearComponent",
        node,
        dim=dim,
        block_dim=filters,
        self_repair_scale=layer["self-repair-scale"],
        self_repair_lower_threshold=layer[f"self-repair-lower-threshold{number}"],
    )


@register("channel-average-layer")
class ChannelAverage(Layer):
    """The mean of the input's blocks of `dim` columns."""

    OPTIONS = options(INPUT, dim=Option(-1, POSITIVE))

    def derive(self) -> None:
        """Leave all options as given: dim has no default."""

    def check(self) -> None:
        """Raise ConfigError unless the blocks fill the input."""
        num_filters(self, "dim")

    def write(self, out: ConfigLines) -> str:
        """Add the component and node of the mean; return the node's name."""
        dims = {"input_dim": self.input.dim, "output_dim": self["dim"]}
        scale = self["dim"] * 1.0 / self.input.dim
        return out.step("", "SumBlockComponent", self.input.node, **dims, scale=scale)


@register("combine-feature-maps-layer")
class CombineFeatureMaps(Layer):
    """Two or three images of the same height, combined to one image with all their filters."""

    OPTIONS = options(
        INPUT,
        num_filters1=Option(-1, POSITIVE),
        num_filters2=Option(-1, POSITIVE),
        num_filters3=Option(0, NON_NEGATIVE),
        height=Option(-1, POSITIVE),
    )

    def _filters(self) -> list[int]:
        return [self[f"num-filters{number}"] for number in (1, 2, 3)]

    def check(self) -> None:
        """Raise ConfigError unless the images' columns sum to the input's."""
        dim = sum(self._filters()) * self["height"]
        self.require(
            dim == self.input.dim,
            f"expected an input of dimension {dim} (height times all filters), "
            f"found {self.input.dim}",
        )
        self.require_size(dim)

    def write(self, out: ConfigLines) -> str:
        """Add a component that permutes the input's columns, and its node; return the node."""
        columns, start, height = [], 0, self["height"]
        for filters in self._filters():
            starts = [start + h * filters for h in range(height)]
            columns.append([range(first, first + filters) for first in starts])
            start += height * filters
        order = [c for at_height in zip(*columns, strict=True) for part in at_height for c in part]
        map_of_columns = ",".join(map(str, order))
        return out.step("", "PermuteComponent", self.input.node, column_map=map_of_columns)

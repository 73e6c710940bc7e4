"""Residual blocks: two or three convolutions, and the sum of their output and the block's input."""

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer
from nnet3tools.xconfig.layers.convolution import (
    CONVOLUTION,
    PREPARATION,
    PREPARED,
    num_filters,
    write_relu,
)
from nnet3tools.xconfig.options import (
    ANY,
    NUMBER,
    POSITIVE,
    POSITIVE_OR_UNSET,
    Option,
    check_value,
    one_of,
    options,
)
from nnet3tools.xconfig.registry import register

_OPTIONS = options(
    INPUT,
    PREPARATION,
    num_bottleneck_filters=Option(-1, POSITIVE_OR_UNSET),
    time_period=Option(1, POSITIVE),
    self_repair_scale=Option(2.0e-05, ANY),
    self_repair_lower_threshold1=Option(0.05, ANY),
    self_repair_lower_threshold2=Option(0.05, ANY),
    self_repair_lower_threshold3=Option(0.05, ANY),
    allow_zero_padding=Option(True, ANY),
    l2_regularize=Option("", NUMBER),
)


def _around(distance: int) -> str:
    """The text of three offsets: -distance, 0, distance."""
    return f"-{distance},0,{distance}"


class _Block(Layer):
    """Base class of the two kinds of residual blocks of convolutions."""

    @property
    def _num_convolutions(self) -> int:
        return 2 if self["num-bottleneck-filters"] <= 0 else 3

    def _passed_on(self) -> tuple[str, str]:
        """Two texts of settings for all convolutions: required time offsets, and other options."""
        padding = "required-time-offsets=0" if self["allow-zero-padding"] else ""
        return padding, self.given(f"{PREPARED} l2-regularize")

    def _batchnorm(self, out: ConfigLines, n: int, node: str, dim: int, filters: int) -> str:
        part = f".batchnorm{n}"
        return out.step(part, "BatchNormComponent", node, dim=dim, block_dim=filters)


@register("res-block")
class ResBlock(_Block):
    """Two or three times ReLU, batch norm and convolution; height and filters stay the same."""

    OPTIONS = options(
        _OPTIONS,
        height=Option(-1, POSITIVE),
        num_filters=Option(-1, ANY),
        height_period=Option(1, POSITIVE),
        bypass_source=Option("noop", one_of("input", "noop", "relu", "batchnorm")),
    )

    def derive(self) -> None:
        """Set num-filters to input dimension / height; ConfigError if a given number disagrees."""
        check_value(self.line, "height", self["height"], POSITIVE)
        filters = num_filters(self, "height")
        self.require(
            self["num-filters"] in (-1, filters),
            f"option 'num-filters': expected {filters} (input dimension {self.input.dim}, "
            f"height={self['height']}), found {self['num-filters']}",
        )
        self.values["num-filters"] = filters

    def write(self, out: ConfigLines) -> str:
        """Add lines relu1, batchnorm1, conv1, ...; of three convolutions only conv2 has offsets.

        Returns the main output: the sum of the last convolution and the bypass-source.
        """
        node, height = self.input.node, self["height"]
        widths = [self["num-filters"]] * 3
        if self._num_convolutions == 3:
            widths = [widths[0], *[self["num-bottleneck-filters"]] * 2, widths[0]]
        for n in range(1, self._num_convolutions + 1):
            before, after = widths[n - 1 : n + 1]
            dim = before * height
            node = write_relu(self, out, f".relu{n}", node, dim, before, str(n))
            node = self._batchnorm(out, n, node, dim, before)
            wide = self._num_convolutions == 2 or n == 2
            node = out.step(
                f".conv{n}",
                CONVOLUTION,
                node,
                *self._passed_on(),
                height_in=height,
                height_out=height,
                height_offsets=_around(self["height-period"]) if wide else "0",
                time_offsets=_around(self["time-period"]) if wide else "0",
                num_filters_in=before,
                num_filters_out=after,
            )
        if self["bypass-source"] == "noop":
            out.add(f"component name={self.name}.noop dim={self.input.dim} type=NoOpComponent")
            return out.node(".noop", f"Sum({self.input.node}, {node})")
        sources = {"relu": f"{self.name}.relu1", "batchnorm": f"{self.name}.batchnorm1"}
        return f"Sum({node}, {sources.get(self['bypass-source'], self.input.node)})"


@register("res2-block")
class Res2Block(_Block):
    """Two or three times convolution, batch norm, scale and offset, ReLU; can halve the height."""

    OPTIONS = options(
        _OPTIONS,
        height=Option(-1, ANY),
        height_in=Option(-1, POSITIVE),
        height_out=Option(-1, POSITIVE),
        num_filters=Option(-1, POSITIVE),
    )

    def derive(self) -> None:
        """Set height-in and height-out from height; ConfigError unless height or both are given."""
        height, sides = self["height"], (self["height-in"], self["height-out"])
        self.require(
            (height > 0 and sides == (-1, -1)) or min(sides) > 0,
            "expected option 'height', or 'height-in' and 'height-out'",
        )
        if min(sides) <= 0:
            self.values["height-in"] = self.values["height-out"] = height
        self._num_filters_in = num_filters(self, "height-in")

    @property
    def _halves(self) -> bool:
        return self["height-in"] != self["height-out"]

    def check(self) -> None:
        """Raise ConfigError unless height-out is height-in or about half of it.

        If two convolutions halve the height, time-period must be even.
        """
        height_in, height_out = self["height-in"], self["height-out"]
        self.require(
            not self._halves or abs(height_out - height_in / 2) <= 1,
            f"option 'height-out': expected {height_in} (height-in) or about half of it, "
            f"found {height_out}",
        )
        self.require(
            not self._halves or self._num_convolutions == 3 or self["time-period"] % 2 == 0,
            "option 'time-period': expected an even number, because the height is halved, "
            f"found {self['time-period']}",
        )

    @property
    def dim(self) -> int:
        """Columns of the main output: height times filters."""
        return self["height-out"] * self["num-filters"]

    def write(self, out: ConfigLines) -> str:
        """Add conv1, batchnorm1, scaleoffset1, relu1 ...; return the last ReLU; it adds input."""
        source = self.input.node
        bypass = source
        if self._halves or self._num_filters_in != self["num-filters"]:
            bypass = f"{self.name}.conv_bypass"
        node, last = source, self._num_convolutions
        for n in range(1, last + 1):
            filters = self._filters_out(n)
            dim = self["height-out"] * filters
            node = self._convolution(out, n, node)
            node = self._batchnorm(out, n, node, dim, filters)
            kind = "ScaleAndOffsetComponent"
            node = out.step(f".scaleoffset{n}", kind, node, dim=dim, block_dim=filters)
            node = f"Sum({node}, {bypass})" if n == last else node
            node = write_relu(self, out, f".relu{n}", node, dim, filters, str(n))
        if bypass != source:
            self._bypass(out)
        return node

    def _filters_out(self, n: int) -> int:
        """The number of filters after the n-th convolution."""
        narrow = self._num_convolutions == 3 and n < 3
        return self["num-bottleneck-filters"] if narrow else self["num-filters"]

    def _convolution(self, out: ConfigLines, n: int, node: str) -> str:
        """Add convolution n (from 1) of `node`; return its node. The first can halve heights."""
        first, period = n == 1, self["time-period"]
        subsample = f"height-subsample-out={2 if first and self._halves else 1}"
        heights = self.given("height-in") if first else f"height-in={self['height-out']}"
        heights += f" {self.given('height-out')}"
        filters_in = self._num_filters_in if first else self._filters_out(n - 1)
        filters = f"num-filters-in={filters_in} num-filters-out={self._filters_out(n)}"
        if self._num_convolutions == 2:
            if first and self._halves:
                period //= 2
            time = f"time-offsets={_around(period)}"
            words = [heights, "height-offsets=-1,0,1", subsample, time, filters]
        else:
            height, time = ("-1,0,1", _around(period)) if n == 2 else ("0", "0")
            offsets = f"height-offsets={height} time-offsets={time}"
            words = [heights, offsets, filters, subsample]
        return out.step(f".conv{n}", CONVOLUTION, node, *words, *self._passed_on())

    def _bypass(self, out: ConfigLines) -> None:
        """Add nodes that convert the input to the output's height and number of filters."""
        out.step(
            ".conv_bypass",
            CONVOLUTION,
            self.input.node,
            self.given("height-in height-out"),
            "height-offsets=0 time-offsets=0",
            f"height-subsample-out={2 if self._halves else 1}",
            f"num-filters-in={self._num_filters_in} num-filters-out={self['num-filters']}",
            self._passed_on()[1],
        )

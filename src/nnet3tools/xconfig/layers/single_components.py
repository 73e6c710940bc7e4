"""Layers that are one component, or a range of columns."""

from typing import ClassVar

from nnet3tools.nnet.config import is_valid_name
from nnet3tools.xconfig.config_lines import ConfigLines
from nnet3tools.xconfig.layer import INPUT, Layer, Output
from nnet3tools.xconfig.layers.affine import AFFINE
from nnet3tools.xconfig.options import ANY, NON_NEGATIVE, NUMBER, POSITIVE, Option, options
from nnet3tools.xconfig.registry import register


class OneComponent(Layer):
    """Base class of layers of one component; its output is as wide as its input without `dim`."""

    KIND: ClassVar[str] = ""
    PASSED_ON: ClassVar[tuple[str, ...]] = ()
    """Options that are copied to the component's line, in order."""

    def outputs(self) -> dict[str, Output]:
        """The layer's main output: the component's node."""
        return {"": Output(self.name, self.values.get("dim", self.input.dim))}

    def write(self, out: ConfigLines) -> None:
        """Add the component and its node."""
        out.step("", self.KIND, self.input.node, self.given(*self.PASSED_ON), dim=self.input.dim)


@register("renorm-component")
class Renorm(OneComponent):
    """Scales each row to a given root mean square."""

    OPTIONS = options(INPUT, target_rms=Option(1.0, POSITIVE))
    KIND, PASSED_ON = "NormalizeComponent", ("target-rms",)


@register("batchnorm-component")
class Batchnorm(OneComponent):
    """Batch normalization."""

    OPTIONS = options(
        INPUT,
        target_rms=Option(1.0, POSITIVE),
        include_in_init=Option(False, ANY),
    )
    KIND, PASSED_ON = "BatchNormComponent", ("target-rms",)


@register("no-op-component")
class NoOp(OneComponent):
    """Passes its input on, which gives a descriptor a name."""

    KIND = "NoOpComponent"


@register("scale-component")
class Scale(OneComponent):
    """Multiplies each column by a trained factor."""

    OPTIONS = options(
        INPUT,
        l2_regularize=Option("", NUMBER),
        max_change=Option(0.75, ANY),
        param_mean=Option("", NUMBER),
        param_stddev=Option("", NUMBER),
        learning_rate_factor=Option("", NUMBER),
    )
    KIND = "NaturalGradientPerElementScaleComponent"
    PASSED_ON = (
        "learning-rate-factor",
        "max-change",
        "l2-regularize",
        "param-mean",
        "param-stddev",
    )


@register("offset-component")
class Offset(OneComponent):
    """Adds a trained term to each column."""

    OPTIONS, PASSED_ON = Scale.OPTIONS, Scale.PASSED_ON
    KIND = "PerElementOffsetComponent"


class _Linear(OneComponent):
    """Base class of layers that multiply by a trained matrix."""

    def write(self, out: ConfigLines) -> None:
        """Add the component with its dimensions, and its node."""
        options, dims = self.given(*self.PASSED_ON), (self.input.dim, self["dim"])
        out.step("", self.KIND, self.input.node, options, input_dim=dims[0], output_dim=dims[1])


@register("linear-component")
class Linear(_Linear):
    """A linear transform, with an option to keep it orthonormal."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        orthonormal_constraint=Option("", NUMBER),
        max_change=Option(0.75, ANY),
        l2_regularize=Option("", NUMBER),
        param_stddev=Option("", NUMBER),
        learning_rate_factor=Option("", NUMBER),
    )
    KIND = "LinearComponent"
    PASSED_ON = (
        "orthonormal-constraint",
        "max-change",
        "l2-regularize",
        "param-stddev",
        "learning-rate-factor",
    )


@register("affine-component")
class Affine(_Linear):
    """An affine transform with the component's own options."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        orthonormal_constraint=Option("", NUMBER),
        max_change=Option(0.75, ANY),
        param_stddev=Option("", NUMBER),
        bias_stddev=Option("", NUMBER),
        l2_regularize=Option("", NUMBER),
    )
    KIND = AFFINE
    PASSED_ON = (
        "orthonormal-constraint",
        "max-change",
        "l2-regularize",
        "param-stddev",
        "bias-stddev",
    )


def _require_node(layer: Layer) -> None:
    node = layer.input.node
    layer.require(is_valid_name(node), f"option 'input': expected one layer, found '{node}'")


@register("dim-range-component")
class DimRange(Layer):
    """A range of the input's columns."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        dim_offset=Option(0, NON_NEGATIVE),
    )

    def check(self) -> None:
        """Raise ConfigError unless the columns exist and the input is a node, not a descriptor."""
        _require_node(self)
        self.require(
            self["dim-offset"] + self["dim"] <= self.input.dim,
            f"columns {self['dim-offset']} to {self['dim-offset'] + self['dim']} were asked for, "
            f"the input has {self.input.dim}",
        )

    def write(self, out: ConfigLines) -> None:
        """Add the line of the dim-range-node."""
        source, dims = f"input-node={self.input.node}", self.given("dim", "dim-offset")
        out.add("dim-range-node", f"name={self.name}", source, dims)


@register("delta-layer")
class Delta(Layer):
    """The input, its first and second differences over time, batch-normalized."""

    def check(self) -> None:
        """Raise ConfigError unless the input is a node, as dim-range-nodes require."""
        _require_node(self)

    def outputs(self) -> dict[str, Output]:
        """The layer's main output, which has three times the input's columns."""
        return {"": Output(self.name, 3 * self.input.dim)}

    def write(self, out: ConfigLines) -> None:
        """Add scaled copies of the input, because a descriptor can put one scale on a node."""
        node, dim = self.input.node, self.input.dim
        for copy in (f"{node}_copy1", f"{node}_copy2"):
            out.add(f"dim-range-node name={copy} input-node={node} dim={dim} dim-offset=0")
        first = f"Sum(Offset(Scale(-1.0,{node}_copy1),-1), Offset({node},1))"
        second = f"Sum(Offset({node},-2), Offset({node},2), Offset(Scale(-2.0,{node}_copy2),0))"
        appended = ConfigLines(node)
        deltas = appended.step(
            "_2", "NoOpComponent", f"Append(Offset({node},0), {first}, {second})", dim=3 * dim
        )
        out.lines += appended.lines
        out.step("", "BatchNormComponent", deltas, dim=3 * dim)


@register("spec-augment-layer")
class SpecAugment(Layer):
    """Sets random bands of frequencies and ranges of time to zero."""

    OPTIONS = options(
        INPUT,
        freq_max_proportion=Option(0.5, POSITIVE),
        time_zeroed_proportion=Option(0.2, POSITIVE),
        time_mask_max_frames=Option(20, POSITIVE),
        include_in_init=Option(False, ANY),
    )

    def check(self) -> None:
        """Raise ConfigError if all of the data could be set to zero."""
        for key in ("freq-max-proportion", "time-zeroed-proportion"):
            self.require(self[key] < 1, f"option '{key}': expected less than 1, found {self[key]}")

    def outputs(self) -> dict[str, Output]:
        """The layer's main output: the node of the second mask."""
        return {"": Output(f"{self.name}.time-mask", self.input.dim)}

    def write(self, out: ConfigLines) -> None:
        """Add lines for the two masks: of frequencies, then of times."""
        dim = self.input.dim
        node = out.step(
            ".freq-mask",
            "GeneralDropoutComponent",
            self.input.node,
            dim=dim,
            specaugment_max_proportion=self["freq-max-proportion"],
        )
        out.step(
            ".time-mask",
            "SpecAugmentTimeMaskComponent",
            node,
            dim=dim,
            zeroed_proportion=self["time-zeroed-proportion"],
            time_mask_max_frames=self["time-mask-max-frames"],
        )

"""Layers that are one component, or a range of columns."""

from typing import ClassVar

from nnet3tools.nnet.config import is_valid_name
from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer
from nnet3tools.xconfig.layers.affine import AFFINE
from nnet3tools.xconfig.options import ANY, NON_NEGATIVE, NUMBER, POSITIVE, Option, options
from nnet3tools.xconfig.registry import register

_OWN_OPTIONS = ("input", "dim", "include-in-init")
"""Options of layers that are not options of their components."""


class OneComponent(Layer):
    """Base class of layers of one component, whose type is KIND."""

    KIND: ClassVar[str] = ""

    def write(self, out: ConfigLines) -> str:
        """Add the component and its node; return the node's name."""
        return out.step("", self.KIND, self.input.node, self.settings(), dim=self.input.dim)

    def settings(self) -> str:
        """The layer's options that go to the component, as text `key=value ...`."""
        return self.given(" ".join(key for key in self.OPTIONS if key not in _OWN_OPTIONS))


@register("renorm-component")
class Renorm(OneComponent):
    """Scales each row to a given root mean square."""

    OPTIONS = options(INPUT, target_rms=Option(1.0, POSITIVE))
    KIND = "NormalizeComponent"


@register("batchnorm-component")
class Batchnorm(OneComponent):
    """Batch normalization."""

    OPTIONS = options(INPUT, target_rms=Option(1.0, POSITIVE), include_in_init=Option(False, ANY))
    KIND = "BatchNormComponent"


@register("no-op-component")
class NoOp(OneComponent):
    """Passes its input on, which gives a descriptor a name."""

    KIND = "NoOpComponent"


@register("scale-component")
class Scale(OneComponent):
    """Multiplies each column by a trained factor."""

    OPTIONS = options(
        INPUT,
        learning_rate_factor=Option("", NUMBER),
        max_change=Option(0.75, ANY),
        l2_regularize=Option("", NUMBER),
        param_mean=Option("", NUMBER),
        param_stddev=Option("", NUMBER),
    )
    KIND = "NaturalGradientPerElementScaleComponent"


@register("offset-component")
class Offset(OneComponent):
    """Adds a trained term to each column."""

    OPTIONS = Scale.OPTIONS
    KIND = "PerElementOffsetComponent"


class _Linear(OneComponent):
    """Base class of layers that multiply by a trained matrix."""

    def write(self, out: ConfigLines) -> str:
        """Add the component with its dimensions, and its node; return the node's name."""
        dims = self.input.dim, self["dim"]
        return out.matrix("", self.KIND, self.input.node, dims, self.settings())


_MATRIX_OPTIONS = options(
    INPUT,
    dim=Option(-1, POSITIVE),
    orthonormal_constraint=Option("", NUMBER),
    max_change=Option(0.75, ANY),
    l2_regularize=Option("", NUMBER),
    param_stddev=Option("", NUMBER),
)


@register("linear-component")
class Linear(_Linear):
    """A linear transform, with an option to keep it orthonormal."""

    OPTIONS = options(_MATRIX_OPTIONS, learning_rate_factor=Option("", NUMBER))
    KIND = "LinearComponent"


@register("affine-component")
class Affine(_Linear):
    """An affine transform with the component's own options."""

    OPTIONS = options(_MATRIX_OPTIONS, bias_stddev=Option("", NUMBER))
    KIND = AFFINE


def _require_node(layer: Layer) -> None:
    node = layer.input.node
    layer.require(is_valid_name(node), f"option 'input': expected one layer, found '{node}'")


@register("dim-range-component")
class DimRange(Layer):
    """A range of the input's columns."""

    OPTIONS = options(INPUT, dim=Option(-1, POSITIVE), dim_offset=Option(0, NON_NEGATIVE))

    def check(self) -> None:
        """Raise ConfigError unless the columns exist and the input is a node, not a descriptor."""
        _require_node(self)
        self.require(
            self["dim-offset"] + self["dim"] <= self.input.dim,
            f"columns {self['dim-offset']} to {self['dim-offset'] + self['dim']} were asked for, "
            f"the input has {self.input.dim}",
        )

    def write(self, out: ConfigLines) -> str:
        """Add the line of the dim-range-node; return its name."""
        source, dims = f"input-node={self.input.node}", self.given("dim dim-offset")
        out.add("dim-range-node", f"name={self.name}", source, dims)
        return self.name


@register("delta-layer")
class Delta(Layer):
    """The input, its first and second differences over time, batch-normalized."""

    def check(self) -> None:
        """Raise ConfigError unless the input is a node, as dim-range-nodes require."""
        _require_node(self)

    @property
    def dim(self) -> int:
        """Columns of the main output: three times the input's."""
        return 3 * self.input.dim

    def write(self, out: ConfigLines) -> str:
        """Add differences over time, from copies of the input, and batch norm; return its node."""
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
        return out.step("", "BatchNormComponent", deltas, dim=3 * dim)


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

    def write(self, out: ConfigLines) -> str:
        """Add lines that mask frequencies and then times; return the last node's name."""
        dim = self.input.dim
        node = out.step(
            ".freq-mask",
            "GeneralDropoutComponent",
            self.input.node,
            dim=dim,
            specaugment_max_proportion=self["freq-max-proportion"],
        )
        return out.step(
            ".time-mask",
            "SpecAugmentTimeMaskComponent",
            node,
            dim=dim,
            zeroed_proportion=self["time-zeroed-proportion"],
            time_mask_max_frames=self["time-mask-max-frames"],
        )

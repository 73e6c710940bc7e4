"""Factorized TDNN layers, and the layer before the output of networks of them."""

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer
from nnet3tools.xconfig.layers.affine import AFFINE
from nnet3tools.xconfig.options import ANY, POSITIVE, Check, Option, one_of, options
from nnet3tools.xconfig.registry import register

_DROPOUT = Check(
    lambda value: isinstance(value, float) and (0 <= value < 1 or value == -1),
    "a number from 0 to less than 1, or -1 for none",
)
_SCALE = Check(lambda value: isinstance(value, float) and abs(value) <= 1, "a number from -1 to 1")


@register("tdnnf-layer")
class TdnnfLayer(Layer):
    """A matrix of low rank over two frames, ReLU, batch norm, dropout, and the input added."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        bottleneck_dim=Option(-1, POSITIVE),
        bypass_scale=Option(0.66, _SCALE),
        dropout_proportion=Option(-1.0, _DROPOUT),
        time_stride=Option(1, ANY),
        l2_regularize=Option(0.0, ANY),
        max_change=Option(0.75, ANY),
        self_repair_scale=Option(1.0e-05, ANY),
        context=Option("default", one_of("default", "left-only", "shift-left", "none")),
    )

    def derive(self) -> None:
        """Leave all options as given: the dimensions have no default."""

    def check(self) -> None:
        """Raise ConfigError if the bottleneck is too wide or the input cannot be added."""
        self.require(
            self["dim"] > self["bottleneck-dim"],
            f"option 'dim': expected more than bottleneck-dim={self['bottleneck-dim']}, "
            f"found {self['dim']}",
        )
        self.require(
            self["bypass-scale"] == 0 or self["dim"] == self.input.dim,
            f"option 'bypass-scale': expected 0, because dim={self['dim']} is not the input's "
            f"dimension {self.input.dim}; found {self['bypass-scale']}",
        )

    def _time_offsets(self) -> tuple[str, str]:
        """The text of the time offsets of the linear and of the affine component."""
        stride, context = self["time-stride"], self["context"]
        if stride == 0 or context == "none":
            return "0", "0"
        before = f"{-stride},0"
        return before, {"default": f"0,{stride}", "shift-left": before, "left-only": "0"}[context]

    def write(self, out: ConfigLines) -> str:
        """Add linear, affine, relu, batchnorm[, dropout][, noop: + input]; return the last node."""
        dim, bottleneck = self["dim"], self["bottleneck-dim"]
        offsets1, offsets2 = self._time_offsets()
        shared = self.given("l2-regularize max-change")
        kind, dims = "TdnnComponent", (self.input.dim, bottleneck)
        text = f"use-bias=false time-offsets={offsets1} orthonormal-constraint=-1.0"
        node = out.matrix(".linear", kind, self.input.node, dims, shared, text)
        text, dims = f"time-offsets={offsets2}", (bottleneck, dim)
        node = out.matrix(".affine", kind, node, dims, shared, text)
        repair = self.given("self-repair-scale")
        node = out.step(".relu", "RectifiedLinearComponent", node, repair, dim=dim)
        node = out.step(".batchnorm", "BatchNormComponent", node, dim=dim)
        if self["dropout-proportion"] != -1:
            dropout = self.given("dropout-proportion") + " continuous=true"
            node = out.step(".dropout", "GeneralDropoutComponent", node, dropout, dim=dim)
        if (scale := self["bypass-scale"]) != 0:
            bypass = f"Sum(Scale({scale}, {self.input.node}), {node})"
            node = out.step(".noop", "NoOpComponent", bypass, dim=dim)
        return node


@register("prefinal-layer")
class PrefinalLayer(Layer):
    """Affine, ReLU, batch norm, orthonormal bottleneck, batch norm."""

    OPTIONS = options(
        INPUT,
        big_dim=Option(-1, POSITIVE),
        small_dim=Option(-1, POSITIVE),
        l2_regularize=Option(0.0, ANY),
        max_change=Option(0.75, ANY),
        self_repair_scale=Option(1.0e-05, ANY),
    )

    def check(self) -> None:
        """Raise ConfigError unless small-dim is below big-dim."""
        self.require(
            self["big-dim"] > self["small-dim"],
            f"option 'big-dim': expected more than small-dim={self['small-dim']}, "
            f"found {self['big-dim']}",
        )

    @property
    def dim(self) -> int:
        """Columns of the bottleneck, which is the main output."""
        return self["small-dim"]

    def write(self, out: ConfigLines) -> str:
        """Add lines for affine, relu, batchnorm1, linear and batchnorm2; return the last node."""
        big, small = self["big-dim"], self["small-dim"]
        shared = self.given("l2-regularize max-change")
        node = out.matrix(".affine", AFFINE, self.input.node, (self.input.dim, big), shared)
        repair = self.given("self-repair-scale")
        node = out.step(".relu", "RectifiedLinearComponent", node, repair, dim=big)
        node = out.step(".batchnorm1", "BatchNormComponent", node, dim=big)
        text = "orthonormal-constraint=-1"
        node = out.matrix(".linear", "LinearComponent", node, (big, small), shared, text)
        return out.step(".batchnorm2", "BatchNormComponent", node, dim=small)

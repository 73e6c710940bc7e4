"""Inputs, outputs, and output-layer: affine (and log-softmax) before an output."""

import math

from nnet3tools.xconfig.layer import CONFIGS, INPUT, ConfigLines, Layer, Output
from nnet3tools.xconfig.layers.affine import AFFINE
from nnet3tools.xconfig.options import (
    ANY,
    NUMBER,
    POSITIVE,
    POSITIVE_OR_UNSET,
    Option,
    one_of,
    options,
)
from nnet3tools.xconfig.registry import register

_OUTPUT_OPTIONS = options(
    INPUT,
    dim=Option(-1, POSITIVE),
    objective_type=Option("linear", one_of("linear", "quadratic")),
    output_delay=Option(0, ANY),
)


@register("input")
class InputLayer(Layer):
    """An input of the network."""

    OPTIONS = options(dim=Option(-1, POSITIVE))

    def derive(self) -> None:
        """Leave all options as given: dim has no default."""

    def write(self, out: ConfigLines) -> str:
        """Add the line of the input-node; return its name."""
        out.add(f"input-node name={self.name} dim={self['dim']}")
        return self.name

    def configs(self) -> dict[str, list[str]]:
        """The layer's lines for each config file: the input-node in all of them."""
        return dict.fromkeys(CONFIGS, super().configs()["final"])


def _write_output(layer: Layer, out: ConfigLines, node: str) -> str:
    if layer["output-delay"] != 0:
        node = f"Offset({node}, {layer['output-delay']})"
    out.add(f"output-node name={layer.name} input={node} objective={layer['objective-type']}")
    return ""


@register("output")
class PlainOutput(Layer):
    """An output of the network that equals its input."""

    OPTIONS = _OUTPUT_OPTIONS

    def outputs(self) -> dict[str, Output]:
        """No outputs: an output-node cannot be an input."""
        return {}

    def write(self, out: ConfigLines) -> str:
        """Add the line of the output-node; return "", as no layer can read it."""
        return _write_output(self, out, self.input.node)


@register("output-layer")
class OutputLayer(Layer):
    """An affine transform, by default log-softmax, and an output of the network."""

    OPTIONS = options(
        _OUTPUT_OPTIONS,
        bottleneck_dim=Option(-1, POSITIVE_OR_UNSET),
        orthonormal_constraint=Option(1.0, POSITIVE),
        include_log_softmax=Option(True, ANY),
        ng_affine_options=Option("", ANY),
        ng_linear_options=Option("", ANY),
        learning_rate_factor=Option("", NUMBER),
        l2_regularize=Option("", NUMBER),
        max_change=Option(1.5, ANY),
        param_stddev=Option(0.0, ANY),
        bias_stddev=Option(0.0, ANY),
    )

    def check(self) -> None:
        """Raise ConfigError unless the bottleneck is narrower than its input and output."""
        self.require(
            self["bottleneck-dim"] < min(self.input.dim, self["dim"]),
            f"option 'bottleneck-dim': expected less than the dimensions of input "
            f"({self.input.dim}) and output ({self['dim']}), found {self['bottleneck-dim']}",
        )

    def outputs(self) -> dict[str, Output]:
        """The nodes before the output-node, "affine" and "log-softmax"; there is no main output."""
        parts = ["affine", "log-softmax"] if self["include-log-softmax"] else ["affine"]
        return {part: Output(f"{self.name}.{part}", self["dim"]) for part in parts}

    def write(self, out: ConfigLines) -> str:
        """Add lines for [linear,] affine[, log-softmax] and the output-node."""
        node, dim = self.input.node, self.input.dim
        shared = "learning-rate-factor l2-regularize max-change"
        if self["bottleneck-dim"] > 0:
            constraint = self["orthonormal-constraint"]
            node = out.step(
                ".linear",
                "LinearComponent",
                node,
                self["ng-linear-options"],
                self.given(shared),
                orthonormal_constraint=constraint,
                param_stddev=constraint / math.sqrt(dim),
                input_dim=dim,
                output_dim=self["bottleneck-dim"],
                max_change=0.75,
            )
            dim = self["bottleneck-dim"]
        given, dims = self.given(f"{shared} param-stddev bias-stddev"), (dim, self["dim"])
        node = out.matrix(".affine", AFFINE, node, dims, self["ng-affine-options"], given)
        if self["include-log-softmax"]:
            node = out.step(".log-softmax", "LogSoftmaxComponent", node, dim=self["dim"])
        return _write_output(self, out, node)

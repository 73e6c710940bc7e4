"""Affine transforms followed by nonlinearities, and affine transforms alone."""

import math

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer, flag
from nnet3tools.xconfig.options import (
    ANY,
    NON_NEGATIVE,
    NUMBER,
    POSITIVE,
    PROPORTION,
    Option,
    check_value,
    options,
)
from nnet3tools.xconfig.registry import register

AFFINE = "NaturalGradientAffineComponent"


@register(
    "relu-layer relu-renorm-layer relu-batchnorm-dropout-layer relu-dropout-layer "
    "relu-batchnorm-layer relu-batchnorm-so-layer batchnorm-so-relu-layer batchnorm-layer "
    "sigmoid-layer tanh-layer"
)
class BasicLayer(Layer):
    """An affine transform, then the operations that the type names, in its order."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        bottleneck_dim=Option(-1, ANY),
        self_repair_scale=Option(1.0e-05, PROPORTION),
        target_rms=Option(1.0, NON_NEGATIVE),
        ng_affine_options=Option("", ANY),
        ng_linear_options=Option("", ANY),
        dropout_proportion=Option(0.5, ANY),
        dropout_per_dim=Option(False, ANY),
        dropout_per_dim_continuous=Option(False, ANY),
        add_log_stddev=Option(False, ANY),
        bias_stddev=Option("", NUMBER),
        l2_regularize=Option("", NUMBER),
        learning_rate_factor=Option("", NUMBER),
        max_change=Option(0.75, ANY),
    )

    def check(self) -> None:
        """Raise ConfigError unless the bottleneck is narrow and add-log-stddev follows renorm."""
        if "dropout" in self.operations:
            check_value(self.line, "dropout-proportion", self["dropout-proportion"], PROPORTION)
        bottleneck = self["bottleneck-dim"]
        self.require(
            bottleneck < 0 or 0 < bottleneck < self["dim"],
            f"option 'bottleneck-dim': expected a number above 0 and below dim={self['dim']}, "
            f"found {bottleneck}",
        )
        self.require(
            not self["add-log-stddev"] or self.operations[-1] == "renorm",
            "option 'add-log-stddev': only a layer whose last operation is renorm can have it",
        )

    def write(self, out: ConfigLines) -> str:
        """Add lines for [linear,] affine and the operations; return the last node's name.

        add-log-stddev makes one of the `dim` columns.
        """
        node, input_dim = self.input.node, self.input.dim
        dim = self["dim"] - 1 if self["add-log-stddev"] else self["dim"]
        if (bottleneck := self["bottleneck-dim"]) > 0:
            node = out.step(
                ".linear",
                "LinearComponent",
                node,
                self["ng-linear-options"],
                self.given("max-change learning-rate-factor"),
                input_dim=input_dim,
                orthonormal_constraint=1.0,
                output_dim=bottleneck,
            )
            input_dim = bottleneck
        shared = self.given("max-change learning-rate-factor bias-stddev l2-regularize")
        dims = input_dim, dim
        node = out.matrix(".affine", AFFINE, node, dims, self["ng-affine-options"], shared)
        last = len(self.operations) - 1
        for number, operation in enumerate(self.operations):
            node = self.write_operation(out, operation, node, dim, number == last)
        return node

    def write_operation(
        self, out: ConfigLines, operation: str, node: str, dim: int, last: bool = False
    ) -> str:
        """Add the component and node of an operation on `dim` columns; return the node's name."""
        part = f".{operation}"
        match operation:
            case "relu" | "sigmoid" | "tanh":
                kind = {"relu": "RectifiedLinear", "sigmoid": "Sigmoid", "tanh": "Tanh"}[operation]
                scale = self["self-repair-scale"]
                return out.step(part, f"{kind}Component", node, dim=dim, self_repair_scale=scale)
            case "renorm":
                return out.step(
                    part,
                    "NormalizeComponent",
                    node,
                    dim=dim,
                    target_rms=self["target-rms"],
                    add_log_stddev=flag(last and self["add-log-stddev"]),
                )
            case "batchnorm":
                rms = self["target-rms"]
                return out.step(part, "BatchNormComponent", node, dim=dim, target_rms=rms)
            case "so":
                return out.step(part, "ScaleAndOffsetComponent", node, dim=dim, max_change=0.5)
        return self._write_dropout(out, part, node, dim)

    def _write_dropout(self, out: ConfigLines, part: str, node: str, dim: int) -> str:
        proportion, continuous = self["dropout-proportion"], self["dropout-per-dim-continuous"]
        shared = self["dropout-per-dim"] or continuous
        kind = "GeneralDropoutComponent" if shared else "DropoutComponent"
        text = "continuous=true" if continuous else ""
        return out.step(part, kind, node, text, dim=dim, dropout_proportion=proportion)


@register("affine-layer")
class AffineLayer(Layer):
    """An affine transform alone."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, POSITIVE),
        param_stddev=Option(-1.0, ANY),
        bias_stddev=Option(1.0, ANY),
        bias_mean=Option(0.0, ANY),
        max_change=Option(0.75, ANY),
        l2_regularize=Option(0.0, ANY),
        learning_rate_factor=Option(1.0, ANY),
        ng_affine_options=Option("", ANY),
    )

    def derive(self) -> None:
        """Set `dim` to the input's and param-stddev to 1/sqrt(input dimension), if not given."""
        super().derive()
        if self["param-stddev"] < 0:
            self.values["param-stddev"] = 1.0 / math.sqrt(self.input.dim)

    def write(self, out: ConfigLines) -> str:
        """Add a component (as in Kaldi without learning-rate-factor) and its node; return it."""
        shared = self.given("param-stddev bias-stddev bias-mean max-change l2-regularize")
        dims = self.input.dim, self["dim"]
        return out.matrix("", AFFINE, self.input.node, dims, shared, self["ng-affine-options"])

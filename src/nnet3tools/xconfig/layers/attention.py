"""Self-attention over neighbouring frames, with operations before or after it."""

import math

from nnet3tools.xconfig.layer import INPUT, ConfigLines
from nnet3tools.xconfig.layers.affine import AFFINE, BasicLayer
from nnet3tools.xconfig.options import ANY, NON_NEGATIVE, POSITIVE, PROPORTION, Option, options
from nnet3tools.xconfig.registry import register


@register(
    "attention-renorm-layer attention-relu-renorm-layer attention-relu-batchnorm-layer "
    "relu-renorm-attention-layer"
)
class AttentionLayer(BasicLayer):
    """An affine transform to keys, values and queries, then the operations that the type names."""

    OPTIONS = options(
        INPUT,
        dim=Option(-1, ANY),
        max_change=Option(0.75, ANY),
        self_repair_scale=Option(1.0e-05, PROPORTION),
        target_rms=Option(1.0, NON_NEGATIVE),
        learning_rate_factor=Option(1.0, POSITIVE),
        ng_affine_options=Option("", ANY),
        l2_regularize=Option(0.0, ANY),
        num_left_inputs_required=Option(-1, ANY),
        num_right_inputs_required=Option(-1, ANY),
        output_context=Option(True, ANY),
        time_stride=Option(1, ANY),
        num_heads=Option(1, POSITIVE),
        key_dim=Option(-1, POSITIVE),
        key_scale=Option(0.0, ANY),
        value_dim=Option(-1, POSITIVE),
        num_left_inputs=Option(-1, NON_NEGATIVE),
        num_right_inputs=Option(-1, NON_NEGATIVE),
        dropout_proportion=Option(0.5, ANY),
    )

    def check(self) -> None:
        """Set the option key-scale to 1/sqrt(key-dim) unless it is given."""
        if self["key-scale"] == 0:
            self.values["key-scale"] = 1.0 / math.sqrt(self["key-dim"])

    def _dims(self) -> tuple[int, int]:
        """Columns of the attention component's input and of its output."""
        context = self["num-left-inputs"] + 1 + self["num-right-inputs"]
        key, value = self["key-dim"], self["value-dim"]
        output = value + context if self["output-context"] else value
        return self["num-heads"] * (key + value + key + context), self["num-heads"] * output

    @property
    def dim(self) -> int:
        """Columns of the attention component's output."""
        return self._dims()[1]

    def write(self, out: ConfigLines) -> str:
        """Add lines for the affine transform and the operations; return the last node's name."""
        dim, after = self._dims()
        node = out.matrix(
            ".affine",
            AFFINE,
            self.input.node,
            (self.input.dim, dim),
            self.given("max-change"),
            self["ng-affine-options"],
            self.given("learning-rate-factor") if self["learning-rate-factor"] != 1 else "",
            self.given("l2-regularize") if self["l2-regularize"] != 0 else "",
        )
        for operation in self.operations:
            node = self.write_operation(out, operation, node, dim)
            dim = after if operation == "attention" else dim
        return node

    def write_operation(
        self, out: ConfigLines, operation: str, node: str, dim: int, last: bool = False
    ) -> str:
        """Add the component and node of an operation on `dim` columns; return the node's name."""
        part, rms = f".{operation}", self["target-rms"]
        if operation == "attention":
            return out.step(part, "RestrictedAttentionComponent", node, self._attention())
        if operation == "renorm":
            return out.step(part, "NormalizeComponent", node, dim=dim, target_rms=rms)
        return super().write_operation(out, operation, node, dim, last)

    def _attention(self) -> str:
        return self.given(
            "value-dim key-dim num-left-inputs num-right-inputs num-left-inputs-required "
            "num-right-inputs-required output-context time-stride num-heads key-scale"
        )

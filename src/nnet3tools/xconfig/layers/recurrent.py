"""The base of LSTM and GRU layers: options, projections, truncation of derivatives."""

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer, delayed, flag
from nnet3tools.xconfig.layers.affine import AFFINE
from nnet3tools.xconfig.options import ANY, DROPOUT, NON_ZERO, POSITIVE, PROPORTION, Option, options

PRODUCT = "ElementwiseProductComponent"

RECURRENCE = options(
    INPUT,
    cell_dim=Option(-1, POSITIVE),
    delay=Option(-1, NON_ZERO),
    clipping_threshold=Option(30.0, ANY),
    zeroing_interval=Option(20, ANY),
    zeroing_threshold=Option(15.0, ANY),
)
DECAY = {"l2-regularize": Option(0.0, ANY), "decay-time": Option(-1.0, ANY)}
NONLINEARITIES = options(
    ng_affine_options=Option("max-change=0.75", ANY),
    ng_per_element_scale_options=Option("max-change=0.75", ANY),
    self_repair_scale_nonlinearity=Option(1.0e-05, PROPORTION),
)
"""Options of layers whose nonlinearities are separate components."""
PROJECTION = options(
    recurrent_projection_dim=Option(-1, POSITIVE),
    non_recurrent_projection_dim=Option(-1, POSITIVE),
)
DROPOUT_OPTIONS = options(
    dropout_proportion=Option(-1.0, DROPOUT),
    dropout_per_frame=Option(True, ANY),
)


class RecurrentLayer(Layer):
    """Base class of LSTM and GRU layers: layers with a cell."""

    def derive(self) -> None:
        """Set cell-dim to the input's columns unless it is given."""
        if self["cell-dim"] <= 0:
            self.values["cell-dim"] = self.input.dim

    def check(self) -> None:
        """Raise ConfigError unless decay-time, if any, is longer than the delay."""
        self.require(
            self._recurrence_scale() > 0,
            f"option 'decay-time': expected more than the delay {abs(self['delay'])} or none "
            f"(less than 0), found {self.values.get('decay-time')}",
        )

    @property
    def recurrent_dim(self) -> int:
        """Number of columns of the recurrent value, without projection the cell's."""
        return self["cell-dim"]

    def node(self, name: str) -> str:
        """The name of a node of this layer in configs: `<layer>.<name>`."""
        return f"{self.name}.{name}"

    def before(self, name: str) -> str:
        """The descriptor of the node `<layer>.<name>` at the previous time."""
        return delayed(self.node(name), self["delay"])

    def with_input(self, recurrent: str) -> str:
        """The descriptor of the layer's input and the previous value of `<layer>.<recurrent>`."""
        return f"Append({self.input.node}, {self.before(recurrent)})"

    def _recurrence_scale(self) -> float:
        time = self.values.get("decay-time", -1.0)
        return 1.0 if time < 0 else 1.0 - abs(self["delay"]) / time if time else 0.0

    def truncation(self) -> str:
        """Settings of BackpropTruncationComponent, with the cell's decay if the type allows one."""
        text = self.given("clipping-threshold zeroing-threshold zeroing-interval")
        text += f" recurrence-interval={abs(self['delay'])}"
        decays = "decay-time" in self.OPTIONS
        return f"{text} scale={self._recurrence_scale()}" if decays else text

    def l2(self) -> str:
        """The setting l2-regularize as text; "" if it is not given."""
        return self.given("l2-regularize") if self.values.get("l2-regularize") else ""

    def repair(self) -> str:
        """The setting self-repair-scale as text."""
        return f"self-repair-scale={self['self-repair-scale-nonlinearity']:.10f}"

    def scales(self) -> str:
        """Settings of per-element scales; by default, initial values have mean 0 and stddev 1."""
        text: str = self["ng-per-element-scale-options"]
        told = "param-mean" in text or "param-stddev" in text
        return text if told else f"{text} param-mean=0.0 param-stddev=1.0"

    @property
    def drops(self) -> bool:
        """Whether the layer has dropout."""
        return self.values.get("dropout-proportion", -1) != -1

    @property
    def has_batchnorm(self) -> bool:
        """Whether the layer's type asks for batch norm of the output."""
        return self.type.endswith("-batchnorm-layer")

    def affine(self, out: ConfigLines, suffix: str, input_dim: int, output_dim: int) -> None:
        """Add a line for the affine component <layer><suffix>."""
        options = self["ng-affine-options"], self.l2()
        out.component(suffix, AFFINE, *options, input_dim=input_dim, output_dim=output_dim)

    def activation(self, out: ConfigLines, suffix: str, kind: str, dim: int) -> None:
        """Add a line for the nonlinearity <layer><suffix> of type <kind>Component."""
        out.component(suffix, f"{kind}Component", self.repair(), dim=dim)

    def product(self, out: ConfigLines, suffix: str, dim: int) -> None:
        """Add component <layer><suffix>: the elementwise product of two inputs of `dim` columns."""
        out.component(suffix, PRODUCT, input_dim=2 * dim, output_dim=dim)

    def dropout(self, out: ConfigLines, suffix: str, dim: int) -> None:
        """Add a line for the dropout component <layer><suffix>."""
        settings = self.given("dropout-proportion")
        per_frame = f"dropout-per-frame={flag(self['dropout-per-frame'])}"
        out.component(suffix, "DropoutComponent", settings, per_frame, dim=dim)

    def truncate(self, out: ConfigLines, suffix: str, dim: int) -> None:
        """Add component <layer><suffix>, which limits how far derivatives go back in time."""
        out.component(suffix, "BackpropTruncationComponent", self.truncation(), dim=dim)


class Projected(RecurrentLayer):
    """Base class of layers whose output projects the cell.

    The first columns of the projection are the recurrent value, which the next time step reads.
    """

    def derive(self) -> None:
        """Set projection dimensions not given: recurrent cell-dim / 4, non-recurrent the same."""
        if self["recurrent-projection-dim"] <= 0:
            self.values["recurrent-projection-dim"] = self["cell-dim"] // 4
        if self["non-recurrent-projection-dim"] <= 0:
            self.values["non-recurrent-projection-dim"] = self["recurrent-projection-dim"]

    def check(self) -> None:
        """Raise ConfigError if the projection is wider than the cell."""
        super().check()
        self.require(
            self.projection_dim <= self["cell-dim"],
            f"expected recurrent-projection-dim and non-recurrent-projection-dim that make at most "
            f"cell-dim={self['cell-dim']}, found {self.projection_dim}",
        )

    @property
    def recurrent_dim(self) -> int:
        """Number of columns of the recurrent value."""
        return self["recurrent-projection-dim"]

    @property
    def projection_dim(self) -> int:
        """Number of columns of the projection."""
        return self["recurrent-projection-dim"] + self["non-recurrent-projection-dim"]

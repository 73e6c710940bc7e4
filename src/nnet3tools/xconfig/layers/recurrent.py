"""The base of LSTM and GRU layers: options, projections, truncation of derivatives."""

from typing import ClassVar

from nnet3tools.xconfig.layer import INPUT, ConfigLines, Layer, Output, delayed, flag
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
    recurrent_projection_dim=Option(-1, POSITIVE), non_recurrent_projection_dim=Option(-1, POSITIVE)
)
DROPOUT_OPTIONS = options(
    dropout_proportion=Option(-1.0, DROPOUT), dropout_per_frame=Option(True, ANY)
)


class RecurrentLayer(Layer):
    """Base class of LSTM and GRU layers: layers with a cell."""

    OUTPUT: ClassVar[str] = ""
    """The node <layer>.<OUTPUT> of the main output; batch norm appends _batchnorm to it."""
    CELLS: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Further outputs, of cell-dim columns: (name after <layer>., node's name after <layer>.)."""

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

    @property
    def dim(self) -> int:
        """Columns of the main output."""
        return self["cell-dim"]

    def outputs(self) -> dict[str, Output]:
        """The layer's outputs: the main output ("") and those in CELLS."""
        main = f"{self.OUTPUT}_batchnorm" if self.has_batchnorm else self.OUTPUT
        found = {"": Output(self.node(main), self.dim)}
        cell = self["cell-dim"]
        return found | {name: Output(self.node(node), cell) for name, node in self.CELLS}

    def write(self, out: ConfigLines) -> str:
        """Add the layer's config lines to `out`; return ""."""
        self.write_nodes(out)
        if self.has_batchnorm:
            part, source = f".{self.OUTPUT}_batchnorm", self.node(self.OUTPUT)
            out.step(part, "BatchNormComponent", source, dim=self.dim)
        return ""

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for all components and nodes, except batch norm of the output."""
        raise NotImplementedError

    def _recurrence_scale(self) -> float:
        time = self.values.get("decay-time", -1.0)
        return 1.0 if time < 0 else 1.0 - abs(self["delay"]) / time if time else 0.0

    def truncation(self) -> str:
        """The text `key=value ...` of the options of the layer's BackpropTruncationComponent.

        It has scale= only if the layer's type has the option decay-time.
        """
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
        """Add a line for the dropout component <layer><suffix> of `dim` columns."""
        settings = self.given("dropout-proportion")
        per_frame = f"dropout-per-frame={flag(self['dropout-per-frame'])}"
        out.component(suffix, "DropoutComponent", settings, per_frame, dim=dim)

    def truncate(self, out: ConfigLines, suffix: str, dim: int) -> None:
        """Add component <layer><suffix>, which limits how far derivatives go back in time."""
        out.component(suffix, "BackpropTruncationComponent", self.truncation(), dim=dim)


class GruLayerBase(RecurrentLayer):
    """Base class of GRU layers; z is the update gate, r the reset gate, o the output gate."""

    GATES: ClassVar[str] = "zr"
    WEIGHTS: ClassVar[str] = ""
    """The suffix of the matrix of gate {gate}."""
    BEFORE_DROPOUT: ClassVar[str] = ""
    """The suffix of the node between gate {gate} and its dropout."""

    def gate_dim(self, gate: str) -> int:
        """Columns of a gate: as many as the recurrent value for the reset gate, else the cell's."""
        return self.recurrent_dim if gate == "r" else self["cell-dim"]

    def _dropout_suffix(self, gate: str) -> str:
        """The suffix of a gate's dropout component; a reset gate, of another width, has its own."""
        return f".dropout_{gate}" if "r" in self.GATES else ".dropout"

    def write_gate_matrices(self, out: ConfigLines) -> None:
        """Add the components of the gates' matrices."""
        for gate in self.GATES:
            input_dim, suffix = self.input.dim + self.recurrent_dim, self.WEIGHTS.format(gate=gate)
            self.affine(out, suffix, input_dim, self.gate_dim(gate))

    def write_sigmoids(self, out: ConfigLines) -> None:
        """Add the components of the gates' nonlinearities."""
        for gate in self.GATES:
            self.activation(out, f".{gate}", "Sigmoid", self.gate_dim(gate))

    def write_dropouts(self, out: ConfigLines) -> None:
        """Add the components of the gates' dropout, if there is any."""
        if self.drops:
            dims = {self._dropout_suffix(gate): self.gate_dim(gate) for gate in self.GATES}
            for suffix, dim in dims.items():
                self.dropout(out, suffix, dim)

    def write_gates(self, out: ConfigLines) -> None:
        """Add the nodes of the gates."""
        for gate in self.GATES:
            weights = self.WEIGHTS.format(gate=gate)
            node = out.node(f".{gate}_t_pre", self.with_input("s_t"), component=weights)
            if self.drops:
                node = out.node(self.BEFORE_DROPOUT.format(gate=gate), node, component=f".{gate}")
            last = self._dropout_suffix(gate) if self.drops else f".{gate}"
            out.node(f".{gate}_t", node, component=last)


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
            self.dim <= self["cell-dim"],
            f"expected recurrent-projection-dim and non-recurrent-projection-dim that make at most "
            f"cell-dim={self['cell-dim']}, found {self.dim}",
        )

    @property
    def recurrent_dim(self) -> int:
        """Number of columns of the recurrent value."""
        return self["recurrent-projection-dim"]

    @property
    def dim(self) -> int:
        """Columns of the projection, which is the main output."""
        return self["recurrent-projection-dim"] + self["non-recurrent-projection-dim"]

"""GRU layers around components that compute the candidate and the cell together.

z is the update gate, r the reset gate, o the output gate, hpart the candidate's part from the
input, c the cell, s the recurrent value, y the output.
"""

from nnet3tools.xconfig.layer import ConfigLines, Output
from nnet3tools.xconfig.layers.recurrent import (
    DROPOUT_OPTIONS,
    NONLINEARITIES,
    PROJECTION,
    RECURRENCE,
    Projected,
    RecurrentLayer,
)
from nnet3tools.xconfig.options import ANY, Option, options
from nnet3tools.xconfig.registry import register

_OPTIONS = options(
    RECURRENCE,
    NONLINEARITIES,
    gru_nonlinearity_options=Option("max-change=0.75", ANY),
)


class _FastGru(RecurrentLayer):
    """Base class of GRU layers whose nonlinearity is one component."""

    GATES = "zr"
    WEIGHTS = "xs"
    """The end of the names of the gates' matrices."""

    def _gate_dim(self, gate: str) -> int:
        """Columns of a gate: as many as the recurrent value for the reset gate, else the cell's."""
        return self.recurrent_dim if gate == "r" else self["cell-dim"]

    def _write_gates(self, out: ConfigLines) -> None:
        input_dim = self.input.dim + self.recurrent_dim
        for gate in self.GATES:
            self.affine(out, f".W_{gate}.{self.WEIGHTS}", input_dim, self._gate_dim(gate))
        self.affine(out, ".W_hpart.x", self.input.dim, self["cell-dim"])
        for gate in self.GATES:
            self.activation(out, f".{gate}", "Sigmoid", self._gate_dim(gate))
        if self.drops:
            self._write_dropout(out)
        for gate in self.GATES:
            self._write_gate(out, gate)
        out.node(".hpart_t", self.input.node, component=".W_hpart.x")

    def _dropout_suffix(self, gate: str) -> str:
        """The suffix of a gate's dropout component; a reset gate, of another width, has its own."""
        return f".dropout_{gate}" if "r" in self.GATES else ".dropout"

    def _write_dropout(self, out: ConfigLines) -> None:
        for suffix, dim in {self._dropout_suffix(g): self._gate_dim(g) for g in self.GATES}.items():
            self.dropout(out, suffix, dim)

    def _write_gate(self, out: ConfigLines, gate: str) -> None:
        weights = f".W_{gate}.{self.WEIGHTS}"
        node = out.node(f".{gate}_t_pre", self.with_input("s_t"), component=weights)
        if self.drops:
            node = out.node(f".{gate}_t_predrop", node, component=f".{gate}")
        used = self._dropout_suffix(gate) if self.drops else f".{gate}"
        out.node(f".{gate}_t", node, component=used)

    def _nonlinearity(self, out: ConfigLines, kind: str, settings: str, *delayed: str) -> None:
        """Add the component that computes candidate and cell, of type `kind`, and its node.

        `settings` is text for its line. Nodes <layer>.<name> in `delayed` are read one step back.
        """
        cell, options = f"cell-dim={self['cell-dim']}", self["gru-nonlinearity-options"]
        out.component(".gru_nonlin", kind, cell, settings, options)
        gates = "zr" if self.GATES == "zr" else "z"
        parts = [*(self.node(f"{gate}_t") for gate in gates), self.node("hpart_t")]
        arguments = ", ".join([*parts, *map(self.before, delayed)])
        out.node(".gru_nonlin_t", f"Append({arguments})", component=".gru_nonlin")


@register("fast-gru-layer")
class FastGruLayer(_FastGru):
    """GRU; the cell is the output and the recurrent value."""

    OPTIONS = _OPTIONS
    WEIGHTS = "xh"

    def outputs(self) -> dict[str, Output]:
        """The layer's main output: the cell."""
        return {"": Output(self.node("y_t"), self["cell-dim"])}

    def write(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and truncation."""
        cell = self["cell-dim"]
        self._write_gates(out)
        self._nonlinearity(out, "GruNonlinearityComponent", "", "s_t")
        node = out.dim_range(".y_t", ".gru_nonlin_t", cell, cell)
        self.truncate(out, ".s_r", cell)
        out.node(".s_t", node, component=".s_r")


class _ProjectedFastGru(Projected, _FastGru):
    """Base class of fast GRU layers with a projection; its first columns are recurrent."""

    OPTIONS = options(_OPTIONS, PROJECTION)

    def outputs(self) -> dict[str, Output]:
        """The layer's outputs: the projection ("") and the cell."""
        return {
            "": Output(self.node("y_t"), self.projection_dim),
            "c_t": Output(self.node("c_t"), self["cell-dim"]),
        }

    def _write_cell(self, out: ConfigLines) -> None:
        """Add lines for the gates and the cell."""
        recurrent = f"recurrent-dim={self.recurrent_dim}"
        self._write_gates(out)
        self._nonlinearity(out, "GruNonlinearityComponent", recurrent, "c_t", "s_t")
        out.dim_range(".c_t", ".gru_nonlin_t", self["cell-dim"], self["cell-dim"])

    def _write_projection(
        self, out: ConfigLines, weights: str, source: str, recurrent: str
    ) -> None:
        """Add the projection <layer><weights> of node `source`.

        Its first columns, node <layer><recurrent>, are the recurrent value.
        """
        self.affine(out, weights, self["cell-dim"], self.projection_dim)
        out.node(".y_t", source, component=weights)
        self.truncate(out, ".s_r", self.recurrent_dim)
        node = out.dim_range(recurrent, ".y_t", self.recurrent_dim)
        out.node(".s_t", node, component=".s_r")

    def _write_norm_projection(self, out: ConfigLines, weights: str, source: str) -> None:
        """Add the projection <layer><weights> of node `source`.

        The recurrent value, its first columns, is renormalized, the output batch-normalized.
        """
        dims = self.recurrent_dim, self.projection_dim
        self.affine(out, weights, self["cell-dim"], self.projection_dim)
        projection = out.node(".y_t_tmp", source, component=weights)
        out.component(".renorm", "NormalizeComponent", dim=dims[0], target_rms=1.0)
        self.truncate(out, ".s_r", self.recurrent_dim)
        node = out.dim_range(".s_t_pre", ".y_t_tmp", self.recurrent_dim)
        node = out.node(".s_t_renorm", node, component=".renorm")
        out.node(".s_t", node, component=".s_r")
        out.component(".batchnorm", "BatchNormComponent", dim=dims[1], target_rms=1.0)
        out.node(".y_t", projection, component=".batchnorm")


@register("fast-pgru-layer")
class FastPgruLayer(_ProjectedFastGru):
    """GRU with a projection, part of which is the recurrent value."""

    def write(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and projection."""
        self._write_cell(out)
        self._write_projection(out, ".W_y.c", self.node("c_t"), ".s_t_pre")


@register("fast-norm-pgru-layer")
class FastNormPgruLayer(_ProjectedFastGru):
    """fast-pgru-layer with batch norm of the output, renorm of the recurrent value, dropout."""

    OPTIONS = options(_ProjectedFastGru.OPTIONS, DROPOUT_OPTIONS)

    def write(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and normalized projection."""
        self._write_cell(out)
        self._write_norm_projection(out, ".W_y.c", self.node("c_t"))


class _FastOutputGru(_ProjectedFastGru):
    """Base class of fast GRU layers with an output gate in place of the reset gate."""

    GATES = "zo"

    def _write_cell(self, out: ConfigLines) -> None:
        """Add lines for the gates, the cell, and the cell multiplied by the output gate."""
        cell = self["cell-dim"]
        self._write_gates(out)
        self._nonlinearity(out, "OutputGruNonlinearityComponent", "", "c_t")
        out.dim_range(".c_t", ".gru_nonlin_t", cell, cell)
        self.product(out, ".cdoto", cell)
        out.node(".cdoto", f"Append({self.node('c_t')}, {self.node('o_t')})")


@register("fast-opgru-layer")
class FastOpgruLayer(_FastOutputGru):
    """GRU with an output gate and a projection, part of which is the recurrent value."""

    def write(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and projection."""
        self._write_cell(out)
        self._write_projection(out, ".W_y.cdoto", self.node("cdoto"), ".s_t_preclip")


@register("fast-norm-opgru-layer")
class FastNormOpgruLayer(_FastOutputGru):
    """fast-opgru-layer with batch norm of the output, renorm of the recurrent value, dropout."""

    OPTIONS = options(_ProjectedFastGru.OPTIONS, DROPOUT_OPTIONS)

    def write(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and normalized projection."""
        self._write_cell(out)
        self._write_norm_projection(out, ".W_y.cdoto", self.node("cdoto"))

"""GRU layers of elementary components, and the base of all GRU layers.

z is the update gate, r the reset gate, o the output gate, h the candidate, y the cell, s the
recurrent value, n the rest of a projection.
"""

from nnet3tools.xconfig.layer import ConfigLines
from nnet3tools.xconfig.layers.recurrent import (
    DROPOUT_OPTIONS,
    NONLINEARITIES,
    PROJECTION,
    RECURRENCE,
    GruLayerBase,
    Projected,
)
from nnet3tools.xconfig.options import ANY, Option, options
from nnet3tools.xconfig.registry import register


class _Gru(GruLayerBase):
    """Base class of GRU layers whose gates, candidate and cell are elementary components."""

    WEIGHTS, BEFORE_DROPOUT = ".W_z.xs_{gate}", ".{gate}_predrop_t"

    @property
    def cell_before(self) -> str:
        """The descriptor of the cell at the previous time."""
        return self.before("y_t")

    def write_cell(self, out: ConfigLines) -> None:
        """Add the nodes of the cell y = (1 - z) h + z y_before."""
        kept = f"Sum(Scale(-1.0,{self.node('z_t')}), Const(1.0, {self['cell-dim']}))"
        out.node(".y1_t", f"Append({self.node('h_t')}, {kept})", component=".y1")
        out.node(".y2_t", f"Append({self.cell_before}, {self.node('z_t')})", component=".y2")
        out.node(".y_t", f"Sum({self.node('y1_t')}, {self.node('y2_t')})", component=".y")

    def write_products(self, out: ConfigLines, first: str, dim: int) -> None:
        """Add components for (1 - z) h + z y_before, and a product <layer><first>, `dim` wide."""
        self.product(out, first, dim)
        self.product(out, ".y1", self["cell-dim"])
        self.product(out, ".y2", self["cell-dim"])
        out.component(".y", "NoOpComponent", dim=self["cell-dim"])

    def write_activations(self, out: ConfigLines) -> None:
        """Add the components of the nonlinearities of gates and candidate."""
        self.write_sigmoids(out)
        self.activation(out, ".h", "Tanh", self["cell-dim"])


class _ResetGru(_Gru):
    """Base class of GRU layers whose reset gate multiplies the recurrent value."""

    def write_to_cell(self, out: ConfigLines) -> None:
        """Add all components and nodes from the gates to the node y_t of the cell, inclusive."""
        self.write_gate_matrices(out)
        self.affine(out, ".W_h.UW", self.input.dim + self.recurrent_dim, self["cell-dim"])
        self.write_dropouts(out)
        self.write_activations(out)
        self.write_products(out, ".h1", self.recurrent_dim)
        self.write_gates(out)
        reset = f"Append({self.node('r_t')}, {self.before('s_t')})"
        reset = out.node(".h1_t", reset, component=".h1")
        pre = out.node(".h_t_pre", f"Append({self.input.node}, {reset})", component=".W_h.UW")
        out.node(".h_t", pre, component=".h")
        self.write_cell(out)


@register("gru-layer")
class GruLayer(_ResetGru):
    """GRU; the cell is the output and the recurrent value."""

    OPTIONS = options(RECURRENCE, NONLINEARITIES)
    OUTPUT = "s_t"

    @property
    def cell_before(self) -> str:
        """The descriptor of the recurrent value, which is the cell."""
        return self.before("s_t")

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the cell and its truncation."""
        self.write_to_cell(out)
        self.truncate(out, ".s_r", self["cell-dim"])
        out.node(".s_t", self.node("y_t"), component=".s_r")


class _ProjectedGru(Projected, _Gru):
    """Base class of GRU layers with a projection, whose first columns are recurrent."""

    OPTIONS = options(RECURRENCE, NONLINEARITIES, PROJECTION)
    OUTPUT, CELLS = "sn_t", (("h_t", "h_t"),)

    def write_projection_components(self, out: ConfigLines) -> None:
        """Add the components of the projection and the truncation."""
        self.affine(out, ".W_s.ys", self["cell-dim"], self.dim)
        self.truncate(out, ".s_r", self.recurrent_dim)

    def write_projection(self, out: ConfigLines, cell: str) -> None:
        """Add the nodes that project <layer>.<cell>; the first columns are the recurrent value."""
        self.write_projection_components(out)
        out.node(".sn_t", self.node(cell), component=".W_s.ys")
        node = out.dim_range(".s_t_preclip", ".sn_t", self.recurrent_dim)
        out.node(".s_t", node, component=".s_r")

    def write_norm_components(self, out: ConfigLines) -> None:
        """Add components for projection, truncation, and norms of output and recurrent value."""
        self.write_projection_components(out)
        out.component(".batchnorm", "BatchNormComponent", dim=self.dim, target_rms=1.0)
        out.component(".renorm", "NormalizeComponent", dim=self.recurrent_dim, target_rms=1.0)


@register("pgru-layer")
class PgruLayer(_ProjectedGru, _ResetGru):
    """GRU with a projection, part of which is the recurrent value."""

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the cell and its projection."""
        self.write_to_cell(out)
        self.write_projection(out, "y_t")


@register("norm-pgru-layer")
class NormPgruLayer(_ProjectedGru, _ResetGru):
    """pgru-layer with batch norm, dropout, and a recurrent value that is renormalized."""

    OPTIONS = options(_ProjectedGru.OPTIONS, DROPOUT_OPTIONS)

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the cell and its normalized projection."""
        self.write_to_cell(out)
        self.write_norm_components(out)
        projection = out.node(".sn_nobatchnorm_t", self.node("y_t"), component=".W_s.ys")
        recurrent = out.dim_range(".s_t_preclip", ".sn_nobatchnorm_t", self.recurrent_dim)
        out.node(".sn_t", projection, component=".batchnorm")
        recurrent = out.node(".s_renorm_t", recurrent, component=".renorm")
        out.node(".s_t", recurrent, component=".s_r")


class _OutputGru(_ProjectedGru):
    """Base class of GRU layers with an output gate in place of the reset gate."""

    GATES = "zo"

    def write_to_output(self, out: ConfigLines) -> None:
        """Add all components, and the nodes up to y_o_t, which is cell times output gate."""
        self._write_components(out)
        self.write_gates(out)
        out.node(".h_t_pre", self.input.node, component=".W_h.UW")
        out.node(".h_t_pre2", self.cell_before, component=".W_h.UW_elementwise")
        out.node(".h_t", f"Sum({self.node('h_t_pre')}, {self.node('h_t_pre2')})", component=".h")
        self.write_cell(out)
        out.node(".y_o_t", f"Append({self.node('o_t')}, {self.node('y_t')})", component=".o1")

    def _write_components(self, out: ConfigLines) -> None:
        cell = self["cell-dim"]
        self.write_gate_matrices(out)
        self.affine(out, ".W_h.UW", self.input.dim, cell)
        kind = "NaturalGradientPerElementScaleComponent"
        out.component(".W_h.UW_elementwise", kind, self.scales(), dim=cell)
        self.write_activations(out)
        self.write_products(out, ".o1", cell)
        self.write_dropouts(out)


@register("opgru-layer")
class OpgruLayer(_OutputGru):
    """GRU with an output gate and a projection, part of which is the recurrent value."""

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the gated cell and its projection."""
        self.write_to_output(out)
        self.write_projection(out, "y_o_t")


@register("norm-opgru-layer")
class NormOpgruLayer(_OutputGru):
    """opgru-layer with batch norm, dropout, and a recurrent value that is renormalized."""

    OPTIONS = options(_ProjectedGru.OPTIONS, DROPOUT_OPTIONS, l2_regularize=Option(0.0, ANY))

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the gated cell and its normalized projection."""
        self.write_to_output(out)
        self.write_norm_components(out)
        projection = out.node(".sn_nobatchnorm_t", self.node("y_o_t"), component=".W_s.ys")
        out.node(".sn_t", projection, component=".batchnorm")
        recurrent = out.dim_range(".s_t_preclip", ".sn_nobatchnorm_t", self.recurrent_dim)
        recurrent = out.node(".s_t_preclip_renorm", recurrent, component=".renorm")
        out.node(".s_t", recurrent, component=".s_r")

"""GRU layers around components that compute the candidate and the cell together.

z is the update gate, r the reset gate, o the output gate, hpart the candidate's part from the
input, c the cell, s the recurrent value, y the output.
"""

from typing import ClassVar

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

_OPTIONS = options(
    RECURRENCE, NONLINEARITIES, gru_nonlinearity_options=Option("max-change=0.75", ANY)
)


class _FastGru(GruLayerBase):
    """Base class of GRU layers whose nonlinearity is one component."""

    OUTPUT = "y_t"
    WEIGHTS, BEFORE_DROPOUT = ".W_{gate}.xs", ".{gate}_t_predrop"

    def _write_all_gates(self, out: ConfigLines) -> None:
        """Add the components and nodes of the gates, and of the candidate's part."""
        self.write_gate_matrices(out)
        self.affine(out, ".W_hpart.x", self.input.dim, self["cell-dim"])
        self.write_sigmoids(out)
        self.write_dropouts(out)
        self.write_gates(out)
        out.node(".hpart_t", self.input.node, component=".W_hpart.x")

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
    WEIGHTS = ".W_{gate}.xh"

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and truncation."""
        cell = self["cell-dim"]
        self._write_all_gates(out)
        self._nonlinearity(out, "GruNonlinearityComponent", "", "s_t")
        node = out.dim_range(".y_t", ".gru_nonlin_t", cell, cell)
        self.truncate(out, ".s_r", cell)
        out.node(".s_t", node, component=".s_r")


class _ProjectedFastGru(Projected, _FastGru):
    """Base class of fast GRU layers with a projection; its first columns are recurrent."""

    OPTIONS = options(_OPTIONS, PROJECTION)
    CELLS = (("c_t", "c_t"),)
    PROJECTED: ClassVar[tuple[str, str, str]] = ".W_y.c", "c_t", ".s_t_pre"
    """Ends of three names: the projection's component, its input node, its first columns' node."""

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for gates, cell and projection."""
        self._write_cell(out)
        self._write_projection(out)

    def _write_cell(self, out: ConfigLines) -> None:
        """Add lines for the gates and the cell."""
        recurrent = f"recurrent-dim={self.recurrent_dim}"
        self._write_all_gates(out)
        self._nonlinearity(out, "GruNonlinearityComponent", recurrent, "c_t", "s_t")
        out.dim_range(".c_t", ".gru_nonlin_t", self["cell-dim"], self["cell-dim"])

    def _write_projection(self, out: ConfigLines) -> None:
        """Add the projection of the cell, whose first columns are the recurrent value."""
        weights, source, recurrent = self.PROJECTED
        self.affine(out, weights, self["cell-dim"], self.dim)
        out.node(".y_t", self.node(source), component=weights)
        self.truncate(out, ".s_r", self.recurrent_dim)
        node = out.dim_range(recurrent, ".y_t", self.recurrent_dim)
        out.node(".s_t", node, component=".s_r")


class _Normalized(_ProjectedFastGru):
    """Base class: the output has batch norm and dropout, the recurrent value is renormalized."""

    OPTIONS = options(_ProjectedFastGru.OPTIONS, DROPOUT_OPTIONS)

    def _write_projection(self, out: ConfigLines) -> None:
        """Add the projection of the cell, and its batch norm (output).

        The projection's first columns, renormalized and truncated, are the recurrent value.
        """
        weights, source, _ = self.PROJECTED
        self.affine(out, weights, self["cell-dim"], self.dim)
        projection = out.node(".y_t_tmp", self.node(source), component=weights)
        out.component(".renorm", "NormalizeComponent", dim=self.recurrent_dim, target_rms=1.0)
        self.truncate(out, ".s_r", self.recurrent_dim)
        node = out.dim_range(".s_t_pre", ".y_t_tmp", self.recurrent_dim)
        node = out.node(".s_t_renorm", node, component=".renorm")
        out.node(".s_t", node, component=".s_r")
        out.component(".batchnorm", "BatchNormComponent", dim=self.dim, target_rms=1.0)
        out.node(".y_t", projection, component=".batchnorm")


@register("fast-pgru-layer")
class FastPgruLayer(_ProjectedFastGru):
    """GRU with a projection, part of which is the recurrent value."""


@register("fast-norm-pgru-layer")
class FastNormPgruLayer(_Normalized):
    """fast-pgru-layer with batch norm, dropout, and a recurrent value that is renormalized."""


class _FastOutputGru(_ProjectedFastGru):
    """Base class of fast GRU layers with an output gate in place of the reset gate."""

    GATES = "zo"
    PROJECTED = ".W_y.cdoto", "cdoto", ".s_t_preclip"

    def _write_cell(self, out: ConfigLines) -> None:
        """Add lines for the gates, the cell, and the cell multiplied by the output gate."""
        cell = self["cell-dim"]
        self._write_all_gates(out)
        self._nonlinearity(out, "OutputGruNonlinearityComponent", "", "c_t")
        out.dim_range(".c_t", ".gru_nonlin_t", cell, cell)
        self.product(out, ".cdoto", cell)
        out.node(".cdoto", f"Append({self.node('c_t')}, {self.node('o_t')})")


@register("fast-opgru-layer")
class FastOpgruLayer(_FastOutputGru):
    """GRU with an output gate and a projection, part of which is the recurrent value."""


@register("fast-norm-opgru-layer")
class FastNormOpgruLayer(_FastOutputGru, _Normalized):
    """fast-opgru-layer with batch norm, dropout, and a recurrent value that is renormalized."""

"""LSTM layers of elementary components, with peepholes, as in Kaldi.

i, f, o are the gates, g the cell's input, c the cell, h its nonlinearity, m the output of the
memory, r the recurrent value, p the rest of a projection.
"""

from nnet3tools.xconfig.layer import ConfigLines
from nnet3tools.xconfig.layers.recurrent import (
    DECAY,
    NONLINEARITIES,
    PROJECTION,
    RECURRENCE,
    Projected,
    RecurrentLayer,
)
from nnet3tools.xconfig.options import ANY, DROPOUT, Option, options
from nnet3tools.xconfig.registry import register

_SCALE = "NaturalGradientPerElementScaleComponent"


class _PeepholeLstm(RecurrentLayer):
    """Base class of LSTM layers whose gates and cell are elementary components, with peepholes."""

    CELLS = (("c_t", "c_t"),)

    def _write_cell(self, out: ConfigLines) -> None:
        self._write_components(out)
        out.node(".c_t", f"Sum({self.node('c1_t')}, {self.node('c2_t')})", component=".c")
        self._write_gate(out, "i", self.before("c_t"))
        self._write_gate(out, "f", self.before("c_t"))
        self._write_gate(out, "o", self.node("c_t"))
        out.node(".h_t", self.node("c_t"), component=".h")
        out.node(".g1_t", self.with_input("r_t"), component=".W_c.xr")
        out.node(".g_t", self.node("g1_t"), component=".g")
        forgotten = f"Append({self.node('f_t')}, {self.before('c_t')})"
        out.node(".c1_t", forgotten, component=".c1")
        out.node(".c2_t", f"Append({self.node('i_t')}, {self.node('g_t')})", component=".c2")
        out.node(".m_t", f"Append({self.node('o_t')}, {self.node('h_t')})", component=".m")

    def _write_components(self, out: ConfigLines) -> None:
        cell, input_dim = self["cell-dim"], self.input.dim + self.recurrent_dim
        for gate in "ifo":
            self.affine(out, f".W_{gate}.xr", input_dim, cell)
            out.component(f".w_{gate}.c", _SCALE, self.scales(), self.l2(), dim=cell)
        self.affine(out, ".W_c.xr", input_dim, cell)
        for gate in "ifo":
            self.activation(out, f".{gate}", "Sigmoid", cell)
        for part in "gh":
            self.activation(out, f".{part}", "Tanh", cell)
        if self.drops:
            self.dropout(out, ".dropout", cell)
        for part in (".c1", ".c2", ".m"):
            self.product(out, part, cell)
        self.truncate(out, ".c", cell)

    def _write_gate(self, out: ConfigLines, gate: str, cell: str) -> None:
        """Add gate `gate`, such as "i", which reads the input, recurrent value and node `cell`."""
        out.node(f".{gate}1_t", self.with_input("r_t"), component=f".W_{gate}.xr")
        out.node(f".{gate}2_t", cell, component=f".w_{gate}.c")
        total = f"Sum({self.node(gate + '1_t')}, {self.node(gate + '2_t')})"
        if self.drops:
            dropped = out.node(f".{gate}_t_predrop", total, component=f".{gate}")
            out.node(f".{gate}_t", dropped, component=".dropout")
        else:
            out.node(f".{gate}_t", total, component=f".{gate}")


@register("lstm-layer")
class LstmLayer(_PeepholeLstm):
    """LSTM with peepholes; the output of the memory is the recurrent value."""

    OPTIONS = options(RECURRENCE, NONLINEARITIES, DECAY)
    OUTPUT = "m_t"

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the cell, its output and the recurrent value."""
        self._write_cell(out)
        self.truncate(out, ".r", self["cell-dim"])
        out.node(".r_t", self.node("m_t"), component=".r")


@register("lstmp-layer lstmp-batchnorm-layer")
class LstmpLayer(Projected, _PeepholeLstm):
    """LSTM with peepholes and a projection, part of which is the recurrent value."""

    OPTIONS = options(
        RECURRENCE,
        NONLINEARITIES,
        DECAY,
        PROJECTION,
        dropout_proportion=Option(-1.0, DROPOUT),
        dropout_per_frame=Option(False, ANY),
    )
    OUTPUT = "rp_t"

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for the cell, its projection and the recurrent value."""
        self._write_cell(out)
        self.affine(out, ".W_rp.m", self["cell-dim"], self.dim)
        self.truncate(out, ".r", self.recurrent_dim)
        out.node(".rp_t", self.node("m_t"), component=".W_rp.m")
        recurrent = out.dim_range(".r_t_preclip", ".rp_t", self.recurrent_dim)
        out.node(".r_t", recurrent, component=".r")

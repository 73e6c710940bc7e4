"""LSTM layers around LstmNonlinearityComponent, which computes gates and cell together."""

from nnet3tools.xconfig.layer import ConfigLines, flag
from nnet3tools.xconfig.layers.recurrent import (
    DECAY,
    PROJECTION,
    RECURRENCE,
    Projected,
    RecurrentLayer,
)
from nnet3tools.xconfig.options import ANY, DROPOUT, POSITIVE, Option, options
from nnet3tools.xconfig.registry import register

_OPTIONS = options(
    RECURRENCE,
    DECAY,
    lstm_nonlinearity_options=Option("max-change=0.75", ANY),
    ng_affine_options=Option("max-change=1.5", ANY),
)


class _FastLstm(RecurrentLayer):
    """Base class of LSTM layers with one component from gates and old cell to cell and output."""

    def _nonlinearity(self, out: ConfigLines, settings: str = "") -> None:
        """Add the LSTM nonlinearity component; `settings` is text for its config line."""
        kind, cell = "LstmNonlinearityComponent", f"cell-dim={self['cell-dim']}"
        options = self["lstm-nonlinearity-options"]
        out.component(".lstm_nonlin", kind, cell, settings, options, self.l2())

    def _cell_nodes(self, out: ConfigLines, gates: str, *further: str) -> None:
        """Add one node, <layer>.lstm_nonlin, the nonlinearity from gates and old cell.

        Its input is Append(<layer>.<gates>, old cell, *further); `further` are names of nodes.
        """
        arguments = ", ".join([self.node(gates), self.before("c_trunc"), *further])
        out.node(".lstm_nonlin", f"Append({arguments})")

    def _unprojected_nodes(self, out: ConfigLines) -> None:
        """Add nodes for the output m, and for the cell and m that the next time step reads."""
        cell = self["cell-dim"]
        out.dim_range(".m", ".lstm_nonlin", cell, cell)
        if "c" in self.used:
            # Kaldi offers this output, but does not write the node.
            out.dim_range(".c", ".lstm_nonlin", cell)
        out.node(".cm_trunc", self.node("lstm_nonlin"))
        out.dim_range(".c_trunc", ".cm_trunc", cell)
        out.dim_range(".m_trunc", ".cm_trunc", cell, cell)


@register("fast-lstm-layer fast-lstm-batchnorm-layer")
class FastLstmLayer(_FastLstm):
    """LSTM; the output of the memory is the recurrent value."""

    OPTIONS = _OPTIONS
    OUTPUT, CELLS = "m", (("c", "c"),)

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for gates, nonlinearity and truncation."""
        cell = self["cell-dim"]
        self.affine(out, ".W_all", self.input.dim + cell, 4 * cell)
        self._nonlinearity(out)
        self.truncate(out, ".cm_trunc", 2 * cell)
        out.node(".W_all", self.with_input("m_trunc"))
        self._cell_nodes(out, "W_all")
        self._unprojected_nodes(out)


@register("lstmb-layer")
class LstmbLayer(_FastLstm):
    """LSTM with batch norm, and a matrix of low rank for the gates."""

    OPTIONS = options(
        _OPTIONS,
        bottleneck_dim=Option(-1, POSITIVE),
        orthonormal_constraint=Option(1.0, ANY),
        self_scale=Option(1.0, ANY),
    )
    OUTPUT = "m_batchnorm"

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines: two matrices, scale and offset, nonlinearity, truncation, batch norm."""
        self._write_components(out)
        memory = f"Scale({self['self-scale']}, {self.node('m_trunc')})"
        recurrent = f"IfDefined(Offset({memory}, {self['delay']}))"
        node = out.node(".W_all_a", f"Append({self.input.node}, {recurrent})")
        node = out.node(".W_all_b", node)
        out.node(".W_all_b_so", node)
        self._cell_nodes(out, "W_all_b_so")
        self._unprojected_nodes(out)
        out.node(".m_batchnorm", self.node("m"))

    def _write_components(self, out: ConfigLines) -> None:
        cell, bottleneck = self["cell-dim"], self["bottleneck-dim"]
        options, linear = self["ng-affine-options"], "LinearComponent"
        first = f"input-dim={self.input.dim + cell} {self.given('orthonormal-constraint')}"
        out.component(".W_all_a", linear, first, f"output-dim={bottleneck}", options)
        dims = {"input_dim": bottleneck, "output_dim": 4 * cell}
        out.component(".W_all_b", linear, options, self.l2(), **dims)
        out.component(".W_all_b_so", "ScaleAndOffsetComponent", dim=4 * cell, max_change=0.75)
        self._nonlinearity(out)
        self.truncate(out, ".cm_trunc", 2 * cell)
        out.component(".m_batchnorm", "BatchNormComponent", dim=cell)


@register("fast-lstmp-layer fast-lstmp-batchnorm-layer")
class FastLstmpLayer(Projected, _FastLstm):
    """LSTM with a projection, part of which is the recurrent value."""

    OPTIONS = options(_OPTIONS, PROJECTION, dropout_proportion=Option(-1.0, DROPOUT))
    OUTPUT, CELLS = "rp", (("c_t", "c"),)

    def _write_components(self, out: ConfigLines) -> None:
        cell, recurrent = self["cell-dim"], self.recurrent_dim
        self.affine(out, ".W_all", self.input.dim + recurrent, 4 * cell)
        self._nonlinearity(out, f"use-dropout={flag(self.drops)}")
        self.truncate(out, ".cr_trunc", cell + recurrent)
        if self.drops:
            settings = self.given("dropout-proportion")
            out.component(".dropout_mask", "DropoutMaskComponent", "output-dim=3", settings)
        self.affine(out, ".W_rp", cell, self.dim)

    def write_nodes(self, out: ConfigLines) -> None:
        """Add lines for gates, nonlinearity, projection and truncation."""
        self._write_components(out)
        cell, recurrent = self["cell-dim"], self.recurrent_dim
        out.node(".W_all", self.with_input("r_trunc"))
        mask = [self.node("dropout_mask")] if self.drops else []
        if mask:
            # The component's output does not depend on its input, but nodes need one.
            out.node(".dropout_mask", mask[0])
        self._cell_nodes(out, "W_all", *mask)
        out.dim_range(".c", ".lstm_nonlin", cell)
        out.dim_range(".m", ".lstm_nonlin", cell, cell)
        out.node(".rp", self.node("m"), component=".W_rp")
        out.dim_range(".r", ".rp", recurrent)
        out.node(".cr_trunc", f"Append({self.node('c')}, {self.node('r')})")
        out.dim_range(".c_trunc", ".cr_trunc", cell)
        out.dim_range(".r_trunc", ".cr_trunc", recurrent, cell)

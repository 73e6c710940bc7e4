"""lattice-scale: scales the costs of lattices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.fst.lattice import CompactLattice, Lattice
    from nnet3tools.io.holders import Holder

USAGE = """Apply scaling to lattice weights
Usage: lattice-scale [options] lattice-rspecifier lattice-wspecifier
 e.g.: lattice-scale --lm-scale=0.0 ark:1.lats ark:scaled.lats
"""


class Options(OptionGroup):
    write_compact: bool = option(True, "If true, write in normal (compact) form.")
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    inv_acoustic_scale: float = option(
        1.0, "An alternative way of setting the acoustic scale: you can set its inverse."
    )
    lm_scale: float = option(1.0, "Scaling factor for graph/lm costs")
    acoustic2lm_scale: float = option(0.0, "Add this times original acoustic costs to LM costs")
    lm2acoustic_scale: float = option(0.0, "Add this times original LM costs to acoustic costs")


@program("lattice-scale", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
    from nnet3tools.fst.weights import single

    acoustic = options.acoustic_scale
    if options.inv_acoustic_scale != 1.0:
        if acoustic != 1.0 or options.inv_acoustic_scale == 0.0:
            raise OptionError(
                "--inv-acoustic-scale must not be 0, nor be given with --acoustic-scale"
            )
        acoustic = 1.0 / options.inv_acoustic_scale

    scales = options.lm_scale, acoustic, options.acoustic2lm_scale, options.lm2acoustic_scale
    singles = [single(scale) for scale in scales]  # Kaldi's options are float32

    def scaled(key: str, lattice: Lattice | CompactLattice) -> Lattice | CompactLattice:
        return lattice.scaled(*singles)

    holder: Holder = COMPACT_LATTICE if options.write_compact else LATTICE
    num_done, _ = convert_table(args[0], args[1], (holder, holder), scaled)
    log.log(f"Done {num_done} lattices.")
    return 0 if num_done else 1

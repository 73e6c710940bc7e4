"""lattice-align-phones: aligns lattices, so that each arc is one phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.fst.lattice import CompactLattice

USAGE = """Convert lattices so that the arcs in the CompactLattice format correspond with phones.
The output symbols are still words, unless you specify --replace-output-symbols=true
Usage: lattice-align-phones [options] <model> <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-align-phones final.mdl ark:1.lats ark:phone_aligned.lats
See also: lattice-best-path, ali-to-phones
"""


class Options(OptionGroup):
    output_error_lats: bool = option(
        True, "Output lattices that aligned with errors (e.g. due to force-out)"
    )
    reorder: bool = option(
        True, "True if lattice was created from HCLG with --reorder=true option."
    )
    remove_epsilon: bool = option(
        True,
        "If true, removes epsilons from the phone lattice; if replace-output-symbols==false, this "
        "will mean that an arc can have multiple phones on it.",
    )
    replace_output_symbols: bool = option(
        False, "If true, the output symbols (typically words) will be replaced with phones."
    )


@program("lattice-align-phones", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.decoding.phone_alignment import PhoneAligner
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

    aligner = PhoneAligner(
        TransitionModel.load(args[0]),
        is_reordered=options.reorder,
        removes_epsilons=options.remove_epsilon,
        has_phone_labels=options.replace_output_symbols,
    )
    num_wrong = 0

    def aligned(key: str, lattice: CompactLattice) -> CompactLattice | None:
        nonlocal num_wrong
        result = aligner.align(lattice)
        if result.problem:
            num_wrong += 1
            log.warning(f"Lattice for {key} did not align correctly: {result.problem}")
            if not options.output_error_lats:
                return None
        if not result.lattice.fst.num_states:
            if not result.problem:
                num_wrong += 1
                log.warning(f"Lattice was empty for key {key}")
            return None
        if result.problem:
            log.log(f"Outputting partial lattice for {key}")
        return result.lattice

    done, left = convert_table(args[1], args[2], (COMPACT_LATTICE, COMPACT_LATTICE), aligned)
    num_done = done + left - num_wrong
    log.log(f"Successfully aligned {num_done} lattices; {num_wrong} had errors.")
    return 0 if num_done > num_wrong else 1

"""lattice-add-penalty: adds a cost to every word of lattices."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Add word insertion penalty to the lattice.
Note: penalties are negative log-probs, base e, and are added to the
'language model' part of the cost.

Usage: lattice-add-penalty [options] <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-add-penalty --word-ins-penalty=1.0 ark:- ark:-
"""


class Options(OptionGroup):
    word_ins_penalty: float = option(0.0, "Word insertion penalty")


@program("lattice-add-penalty", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE

    num_done, _ = convert_table(
        args[0],
        args[1],
        (COMPACT_LATTICE, COMPACT_LATTICE),
        lambda key, lattice: lattice.with_penalty(options.word_ins_penalty),
    )
    log.log(f"Done adding word insertion penalty to {num_done} lattices.")
    return 0 if num_done else 1

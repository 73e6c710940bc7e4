"""fstcopy: copy tables of FSTs, in text or binary form."""

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.io import log

USAGE = """Copy tables/archives of FSTs, indexed by a string (e.g. utterance-id)

Usage: fstcopy <fst-rspecifier1> <fst-wspecifier1>

e.g.:
fstcopy ark:1.fsts ark,t:-
"""


@program("fstcopy", USAGE, NoOptions, num_args=2)
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.files import FST

    num_done, _ = convert_table(args[0], args[1], (FST, FST), lambda key, fst: fst)
    log.log(f"Copied {num_done} FSTs.")
    return 0 if num_done else 1

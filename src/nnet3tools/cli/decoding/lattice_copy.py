"""lattice-copy: copies lattices, optionally to another form, or a part of a table."""

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.io.holders import Holder

USAGE = """Copy lattices (e.g. useful for changing to text mode or changing
format to standard from compact lattice.)
The --include and --exclude options can be used to copy only a subset of lattices, where the \
--include option specifies the utterances that are copied and the --exclude option those that \
are not copied.
Only one of --include and --exclude can be supplied.
Usage: lattice-copy [options] lattice-rspecifier lattice-wspecifier
 e.g.: lattice-copy --write-compact=false ark:1.lats ark,t:text.lats
See also: lattice-scale
"""


class Options(OptionGroup):
    write_compact: bool = option(True, "If true, write in normal (compact) form.")
    include: str = option(
        "",
        "Text file, the first field of each line being interpreted as the utterance-id whose "
        "lattices will be included",
    )
    exclude: str = option(
        "",
        "Text file, the first field of each line being interpreted as an utterance-id whose "
        "lattices will be excluded",
    )
    ignore_missing: bool = option(False, "Exit with status 0 even if no lattices are copied")


@program("lattice-copy", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE

    if options.include and options.exclude:
        raise OptionError("should not have both --exclude and --include option!")
    listed = _first_fields(options.include or options.exclude)
    wanted = bool(options.include)
    holder: Holder = COMPACT_LATTICE if options.write_compact else LATTICE
    num_done, num_left = convert_table(
        args[0],
        args[1],
        (holder, holder),
        lambda key, lattice: lattice if listed is None or (key in listed) == wanted else None,
    )
    if listed is None:
        log.log(f"Done copying {num_done} lattices.")
    else:
        log.log(f"Wrote {num_done} out of {num_done + num_left} utterances.")
    return 0 if num_done or options.ignore_missing else 1


def _first_fields(rxfilename: str) -> set[str] | None:
    from nnet3tools.io.files import read_text_lines

    if not rxfilename:
        return None
    return {fields[0] for line in read_text_lines(rxfilename) if (fields := line.split())}

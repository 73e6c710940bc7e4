"""subset-feats: copies a part of a table of features."""

from itertools import islice

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log

USAGE = """Copy a subset of features (by default, the first n feature files)
Usually used where only a small amount of data is needed
Note: if you want a specific subset, it's usually best to
filter the original .scp file with utils/filter_scp.pl
(possibly with the --exclude option).  The --include and --exclude
options of this program are intended for specialized uses.
The --include and --exclude options are mutually exclusive,
and both cause the --n option to be ignored.
Usage: subset-feats [options] <in-rspecifier> <out-wspecifier>
e.g.: subset-feats --n=10 ark:- ark:-
or:  subset-feats --include=include_uttlist ark:- ark:-
or:  subset-feats --exclude=exclude_uttlist ark:- ark:-
See also extract-feature-segments, select-feats, subsample-feats
"""


class Options(OptionGroup):
    n: int = option(10, "If nonnegative, copy the first n feature files.")
    include: str = option(
        "",
        "Text file, the first field of each line being interpreted as an utterance-id whose "
        "features will be included",
    )
    exclude: str = option(
        "",
        "Text file, the first field of each line being interpreted as an utterance-id whose "
        "features will be excluded",
    )

    def check(self) -> None:
        """OptionError if options contradict each other."""
        if self.n < 1:
            raise OptionError(f"Invalid option --n={self.n}. Should be at least 1")
        if self.include and self.exclude:
            raise OptionError("should not have both --exclude and --include option!")
        if (self.include or self.exclude) and self.n != 10:
            given = "include" if self.include else "exclude"
            raise OptionError(f"Should not have both --{given} and --n option!")


@program("subset-feats", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    options.check()
    listed = _first_fields(options.include or options.exclude)
    num_read = num_written = 0
    with TableWriter(args[1], MATRIX) as writer, SequentialTableReader(args[0], MATRIX) as reader:
        for key, features in islice(reader, options.n if listed is None else None):
            num_read += 1
            if listed is None or (key in listed) == bool(options.include):
                writer.write(key, features)
                num_written += 1
    if listed is None:
        return 0
    log.log(f" Wrote {num_written} out of {num_read} utterances.")
    return 0 if num_written else 1


def _first_fields(rxfilename: str) -> set[str] | None:
    """The set of the first words of a file's lines; None if `rxfilename` is empty."""
    from nnet3tools.io.files import read_text_lines

    if not rxfilename:
        return None
    words = [line.split() for line in read_text_lines(rxfilename)]
    if not all(words):
        raise DataError(f"{rxfilename}: line {words.index([]) + 1} is empty")
    return {fields[0] for fields in words}

"""Programs that select, shift and repeat frames of features."""

from __future__ import annotations

from itertools import islice

from nnet3tools.cli.options import NoOptions, OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

SELECT_FEATS_USAGE = """Select certain dimensions of the feature file;  think of it as the unix
command cut -f ...
Usage: select-feats <selection> <in-rspecifier> <out-wspecifier>
  e.g.: select-feats 0,24-22,3-12 scp:feats.scp ark,scp:feat-red.ark,feat-red.scp
See also copy-feats, extract-feature-segments, subset-feats, subsample-feats
"""


@program("select-feats", SELECT_FEATS_USAGE, NoOptions, num_args=3)
def select_feats(options: NoOptions, args: list[str]) -> None:
    from itertools import chain

    from nnet3tools.features.frames import select_columns
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    selection, source, target = args
    with SequentialTableReader(source, MATRIX) as reader:
        items = iter(reader)
        if (first := next(items, None)) is None:
            log.warning("Empty archive provided.")
            return
        columns = select_columns(selection, first[1].shape[1])
        with TableWriter(target, MATRIX) as writer:
            for key, features in chain([first], items):
                if features.shape[1] <= max(columns):
                    raise DataError(
                        f"{source}: key '{key}': there is no column {max(columns)} among the "
                        f"{features.shape[1]}"
                    )
                writer.write(key, features[:, columns])


SELECT_VOICED_FRAMES_USAGE = """Select a subset of frames of the input files, based on the output of
compute-vad or a similar program (a vector of length num-frames,
containing 1.0 for voiced, 0.0 for unvoiced).  Caution: this is
mostly useful only in speaker identification applications.
Usage: select-voiced-frames [options] <feats-rspecifier>  <vad-rspecifier> <feats-wspecifier>
e.g.: select-voiced-frames scp:feats.scp scp:vad.scp ark:-
"""


@program("select-voiced-frames", SELECT_VOICED_FRAMES_USAGE, NoOptions, num_args=3)
def select_voiced_frames(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.io.holders import MATRIX, VECTOR
    from nnet3tools.io.table import RandomAccessTableReader

    def problem(key: str, features: np.ndarray, voiced: np.ndarray | None) -> str:
        if len(features) == 0:
            return f"Empty feature matrix for utterance {key}"
        if voiced is None:
            return f"No VAD input found for utterance {key}"
        if len(features) != len(voiced):
            return (
                f"Mismatch in number for frames {len(features)} for features and VAD "
                f"{len(voiced)}, for utterance {key}"
            )
        return "" if voiced.any() else f"No features were judged as voiced for utterance {key}"

    with RandomAccessTableReader(args[1], VECTOR) as vad:

        def convert(key: str, features: np.ndarray) -> np.ndarray | None:
            voiced = vad.get(key)
            if message := problem(key, features, voiced):
                log.warning(message)
                return None
            return features[voiced != 0.0]

        num_done, num_failed = convert_table(args[0], args[2], (MATRIX, MATRIX), convert)
    log.log(
        f"Done selecting voiced frames; processed {num_done} utterances, {num_failed} had errors."
    )
    return 0 if num_done else 1


SHIFT_FEATS_USAGE = """Copy features, and possibly shift them while maintaining the num-frames.
Usage: shift-feats [options] <feature-rspecifier> <feature-wspecifier>
or:  shift-feats [options] <feats-rxfilename> <feats-wxfilename>
e.g.: shift-feats --shift=-1 scp:foo.scp ark:bar.ark
or: shift-feats --shift=1 foo.mat bar.mat
See also: copy-feats, copy-matrix, select-feats, subset-feats, subsample-feats, splice-feats,
paste-feats, concat-feats
"""


class ShiftFeatsOptions(OptionGroup):
    shift: int = option(0, "Number of frames by which to shift the features.")
    binary: bool = option(True, "Binary-mode output (not relevant if writing to archive)")


@program("shift-feats", SHIFT_FEATS_USAGE, ShiftFeatsOptions, num_args=2)
def shift_feats(options: ShiftFeatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table, read_object, write_object
    from nnet3tools.features.frames import shift
    from nnet3tools.io.holders import MATRIX

    source, target = args
    if not are_tables(source, target, "features"):
        features = read_object(source, MATRIX)
        if not len(features):
            raise DataError(f"{source}: empty input matrix")
        write_object(target, MATRIX, shift(features, options.shift), options.binary)
        return 0

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        if not len(features):
            log.warning(f"Empty matrix for key {key}")
            return None
        return shift(features, options.shift)

    num_done, num_failed = convert_table(source, target, (MATRIX, MATRIX), convert)
    log.log(f"Shifted {num_done} features by {options.shift} frames; {num_failed} with errors.")
    return 0 if num_done else 1


SPLICE_FEATS_USAGE = """Splice features with left and right context (e.g. prior to LDA)
Usage: splice-feats [options] <feature-rspecifier> <feature-wspecifier>
e.g.: splice-feats scp:feats.scp ark:-
"""


class SpliceFeatsOptions(OptionGroup):
    left_context: int = option(4, "Number of frames of left context")
    right_context: int = option(4, "Number of frames of right context")


@program("splice-feats", SPLICE_FEATS_USAGE, SpliceFeatsOptions, num_args=2)
def splice_feats(options: SpliceFeatsOptions, args: list[str]) -> None:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.frames import splice
    from nnet3tools.io.holders import MATRIX

    left, right = options.left_context, options.right_context
    if left < 0 or right < 0:
        raise OptionError("--left-context and --right-context must not be negative")
    convert_table(
        args[0], args[1], (MATRIX, MATRIX), lambda key, features: splice(features, left, right)
    )


SUBSAMPLE_FEATS_USAGE = """Sub-samples features by taking every n'th frame.
With negative values of n, will repeat each frame n times
(e.g. --n=-2 will repeat each frame twice)

Usage: subsample-feats [options] <in-rspecifier> <out-wspecifier>
  e.g.: subsample-feats --n=2 ark:- ark:-
"""


class SubsampleFeatsOptions(OptionGroup):
    n: int = option(
        1,
        "Take every n'th feature, for this value of n(with negative value, repeats each feature n "
        "times)",
    )
    offset: int = option(
        0, "Start with the feature with this offset, then take every n'th feature."
    )


@program("subsample-feats", SUBSAMPLE_FEATS_USAGE, SubsampleFeatsOptions, num_args=2)
def subsample_feats(options: SubsampleFeatsOptions, args: list[str]) -> int:
    from nnet3tools.cli.tables import convert_table
    from nnet3tools.features.frames import subsample
    from nnet3tools.io.holders import MATRIX

    if options.n == 0 or options.offset < 0:
        raise OptionError("--n must not be 0, nor --offset negative")
    if options.n < 0 and options.offset:
        raise OptionError("--offset option cannot be used with negative n.")
    frames_in = frames_out = 0

    def convert(key: str, features: np.ndarray) -> np.ndarray | None:
        nonlocal frames_in, frames_out
        output = subsample(features, options.n, options.offset)
        frames_in += len(features)
        frames_out += len(output)
        if options.n > 0 and len(output) == 0:
            log.warning(f"For utterance {key}, output would have no rows, producing no output.")
            return None
        return output

    num_done, num_failed = convert_table(args[0], args[1], (MATRIX, MATRIX), convert)
    log.log(f"Processed {num_done} feature matrices; {num_failed} with errors.")
    log.log(f"Processed {frames_in} input frames and {frames_out} output frames.")
    return 0 if num_done else 1


SUBSET_FEATS_USAGE = """Copy a subset of features (by default, the first n feature files)
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


class SubsetFeatsOptions(OptionGroup):
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


@program("subset-feats", SUBSET_FEATS_USAGE, SubsetFeatsOptions, num_args=2)
def subset_feats(options: SubsetFeatsOptions, args: list[str]) -> int:
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

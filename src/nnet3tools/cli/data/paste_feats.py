"""paste-feats: puts the columns of several features side by side."""

from contextlib import ExitStack

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Paste feature files (assuming they have about the same durations,
see --length-tolerance), appending the features on each frame;
think of the unix command 'paste'.
Usage: paste-feats <in-rspecifier1> <in-rspecifier2> [<in-rspecifier3> ...] <out-wspecifier>
 or: paste-feats <in-rxfilename1> <in-rxfilename2> [<in-rxfilename3> ...] <out-wxfilename>
 e.g.: paste-feats ark:feats1.ark "ark:select-feats 0-3 ark:feats2.ark ark:- |" ark:feats-out.ark
  or: paste-feats foo.mat bar.mat baz.mat
See also: copy-feats, copy-matrix, append-vector-to-feats, concat-feats
"""


class Options(OptionGroup):
    length_tolerance: int = option(
        0,
        "If length is different, trim as shortest up to a frame  difference of length-tolerance, "
        "otherwise exclude segment.",
    )
    binary: bool = option(
        True,
        "If true, output files in binary (only relevant for single-file operation, i.e. no tables)",
    )


@program("paste-feats", USAGE, Options, num_args=(3, None))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import is_table, read_object, write_object
    from nnet3tools.features.frames import paste
    from nnet3tools.io.holders import MATRIX

    *sources, target = args
    if is_table(sources[0]):
        return _paste_tables(sources, target, options.length_tolerance)
    pasted = paste([read_object(name, MATRIX) for name in sources], options.length_tolerance)
    if pasted is None:
        return 1
    write_object(target, MATRIX, pasted, options.binary)
    log.log(f"Wrote appended features to {target}")
    return 0


def _paste_tables(sources: list[str], target: str, tolerance: int) -> int:
    """Paste the utterances that all tables contain; status 1 if there are none."""
    from nnet3tools.features.frames import paste
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter

    num_done = num_failed = 0
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(target, MATRIX))
        reader = stack.enter_context(SequentialTableReader(sources[0], MATRIX))
        others = [
            stack.enter_context(RandomAccessTableReader(source, MATRIX)) for source in sources[1:]
        ]
        for key, features in reader:
            parts = [features]
            for source, table in zip(sources[1:], others, strict=True):
                if (part := table.get(key)) is None:
                    log.warning(f"Missing utt {key} from input {source}")
                    break
                parts.append(part)
            complete = len(parts) == len(sources)
            pasted = paste(parts, tolerance, key) if complete else None
            if pasted is None:
                num_failed += 1
                continue
            writer.write(key, pasted)
            num_done += 1
    log.log(f"Done {num_done} utts, errors on {num_failed}")
    return 0 if num_done else 255

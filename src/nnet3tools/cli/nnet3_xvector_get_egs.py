"""nnet3-xvector-get-egs: training examples of speakers."""

import contextlib

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import NotFiniteError, OptionError
from nnet3tools.io import log
from nnet3tools.recognizer.utterances import NothingDoneError

USAGE = """Get examples for training an nnet3 neural network for the xvector system. Each output
example contains a chunk of features from some utterance along with a speaker label. The location
and length of the feature chunks are specified in the 'ranges' file. Each line is interpreted as
follows:
  <source-utterance> <relative-output-archive-index> <absolute-archive-index> <start-frame-index>
      <num-frames> <speaker-label>
where <relative-output-archive-index> is interpreted as a zero-based index into the wspecifiers
provided on the command line (<egs-0-out> and so on), and <absolute-archive-index> is ignored by
this program. For example:
  utt1  3  13  65  300  3
  utt1  0  10  50  400  3
  utt2  ...

Usage:  nnet3-xvector-get-egs [options] <ranges-filename> <features-rspecifier> <egs-0-out>
    <egs-1-out> ... <egs-N-1-out>
e.g.:
 nnet3-xvector-get-egs --num-pdfs=100 ranges.1 scp:feats.scp ark:egs_temp.1.ark ark:egs_temp.2.ark
"""


class Options(OptionGroup):
    compress: bool = option(True, "If true, write egs in compressed format.")
    num_pdfs: int = option(-1, "Number of speakers in the training list.")


@program("nnet3-xvector-get-egs", USAGE, Options, num_args=(3, None))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.training.example_format import ENCODED_EXAMPLES
    from nnet3tools.training.xvector_egs import (
        SpeakerExampleWriter,
        examples_of_utterance,
        read_ranges,
    )

    ranges_rxfilename, features_rspecifier, *wspecifiers = args
    if options.num_pdfs <= 0:
        raise OptionError("--num-pdfs is required, and must be positive")
    ranges = read_ranges(ranges_rxfilename, len(wspecifiers), options.num_pdfs)
    num_done = num_failed = num_examples = 0
    with contextlib.suppress(NothingDoneError), contextlib.ExitStack() as stack:
        tables = [stack.enter_context(TableWriter(w, ENCODED_EXAMPLES)) for w in wspecifiers]
        reader = stack.enter_context(SequentialTableReader(features_rspecifier, MATRIX))
        writer = SpeakerExampleWriter(tables, options.num_pdfs, options.compress)
        # Examples before an utterance that cannot be read are written, if to a pipe.
        stack.callback(writer.flush)
        for key, features in reader:
            if key not in ranges:
                log.warning(
                    f"Could not create examples from utterance {key} because it has no entry in "
                    "the ranges input file."
                )
                num_failed += 1
                continue
            try:
                for chunk, rows in examples_of_utterance(key, features, ranges[key]):
                    writer.write(chunk, rows)
                    num_examples += 1
            except NotFiniteError as error:
                log.skipped(error)
                num_failed += 1
                continue
            num_done += 1
        if num_examples == 0:
            raise NothingDoneError
    log.log(
        f"Finished generating examples, successfully processed {num_done} feature files, wrote "
        f"{num_examples} examples; {num_failed} files had errors."
    )
    return 1 if num_examples == 0 or num_failed > num_done else 0

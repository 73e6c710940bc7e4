"""ivector-mean: computes the mean of vectors for each speaker, or of all."""

from contextlib import ExitStack

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """With 3 or 4 arguments, averages iVectors over all the
utterances of each speaker using the spk2utt file.
Input the spk2utt file and a set of iVectors indexed by
utterance; output is iVectors indexed by speaker.  If 4
arguments are given, extra argument is a table for the number
of utterances per speaker (can be useful for PLDA).  If 2
arguments are given, computes the mean of all input files and
writes out the mean vector.

Usage: ivector-mean <spk2utt-rspecifier> <ivector-rspecifier> <ivector-wspecifier> \
[<num-utt-wspecifier>]
or: ivector-mean <ivector-rspecifier> <mean-wxfilename>
e.g.: ivector-mean ark:data/spk2utt ark:exp/ivectors.ark ark:exp/spk_ivectors.ark
or: ivector-mean ark:exp/ivectors.ark exp/mean.vec
See also: ivector-subtract-global-mean
"""


class Options(OptionGroup):
    binary: bool = option(
        False,
        "If true, write output in binary (only applicable when writing files, not archives/tables.",
    )


@program("ivector-mean", USAGE, Options, num_args=(2, 4))
def main(options: Options, args: list[str]) -> int:
    if len(args) == 2:
        _mean_of_all(args[0], args[1], options.binary)
        return 0
    return _means_of_speakers(args[0], args[1], args[2], args[3] if len(args) == 4 else "")


def _mean_of_all(source: str, target: str, binary: bool) -> None:
    from nnet3tools.cli.tables import write_object
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import VECTOR
    from nnet3tools.io.table import SequentialTableReader

    prove_output(target)
    total, count = None, 0
    with SequentialTableReader(source, VECTOR) as reader:
        for key, vector in reader:
            total = np.zeros(len(vector)) if total is None else total
            if len(vector) != len(total):
                sizes = f"{len(vector)} after such of {len(total)}"
                raise DataError(f"{source}: key '{key}': a vector of dimension {sizes}")
            total += vector
            count += 1
    if total is None:
        raise DataError(f"{source}: No iVectors read")
    write_object(target, VECTOR, total / count, binary)


def _means_of_speakers(spk2utt: str, source: str, target: str, counts_out: str) -> int:
    from nnet3tools.cli.tables import OptionalTable
    from nnet3tools.io.holders import INT32, TOKEN_VECTOR, VECTOR
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter

    means: list[np.ndarray] = []
    num_failed = num_utterances = num_missing = 0
    with ExitStack() as stack:
        table = stack.enter_context(RandomAccessTableReader(source, VECTOR))
        speakers = stack.enter_context(SequentialTableReader(spk2utt, TOKEN_VECTOR))
        writer = stack.enter_context(TableWriter(target, VECTOR))
        counts = OptionalTable(counts_out, INT32, stack)
        for speaker, utterances in speakers:
            found = []
            for key in utterances:
                if (vector := table.get(key)) is None:
                    log.warning(f"No iVector present in input for utterance {key}")
                    num_missing += 1
                else:
                    found.append(vector)
            if not found:
                log.warning(
                    f"Not producing output for speaker {speaker} since no utterances had iVectors"
                )
                num_failed += 1
                continue
            if len({len(vector) for vector in found}) > 1:
                raise DataError(f"{source}: the vectors of {speaker} differ in their dimension")
            total = np.sum(found, axis=0, dtype=np.float64)
            means.append(np.asarray(total / len(found), np.float32))
            writer.write(speaker, means[-1])
            counts.write(speaker, len(found))
            num_utterances += len(found)
    log.log(
        f"Computed mean of {len(means)} speakers ({num_failed} with no utterances), consisting of "
        f"{num_utterances} utterances ({num_missing} absent from input)."
    )
    if means:
        norm = np.linalg.norm(np.mean(means, axis=0))
        length = np.sqrt(np.mean(np.square(means)))
        log.log(
            f"Norm of mean of speakers is {norm:g}, root-mean-square speaker-iVector length "
            f"divided by sqrt(dim) is {length:g}"
        )
    return 0 if means else 1

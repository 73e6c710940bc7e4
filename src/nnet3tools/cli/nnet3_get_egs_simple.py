"""nnet3-get-egs-simple: examples of whole matrices, one of each named table."""

from contextlib import ExitStack

from nnet3tools.cli.options import NoOptions, program
from nnet3tools.errors import EmptyError, NotFiniteError, OptionError, naming
from nnet3tools.io import log

USAGE = """Get frame-by-frame examples of data for nnet3 neural network training.
This is like nnet3-get-egs, but does not split up its inputs into pieces
and allows more general generation of egs.  E.g. this is usable for image
recognition tasks.

Usage:  nnet3-get-egs-simple [options] <name1>=<rspecifier1> <name2>=<rspecifier2> ... <egs-out>

e.g.:
nnet3-get-egs-simple input=scp:images.scp \\
output='ark,o:ali-to-post ark:labels.txt ark:- | post-to-smat --dim=10 ark:- ark:-' ark:egs.ark

See also: nnet3-get-egs
"""


@program("nnet3-get-egs-simple", USAGE, NoOptions, num_args=(2, None))
def main(options: NoOptions, args: list[str]) -> int:
    from nnet3tools.io.holders import GENERAL_MATRIX
    from nnet3tools.io.table import RandomAccessTableReader, SequentialTableReader, TableWriter
    from nnet3tools.training.example import EXAMPLE, NnetExample, frames_io

    *inputs, egs_out = args
    (first, rspecifier), *others = map(_name_and_rspecifier, inputs)
    num_done = num_failed = 0
    with ExitStack() as stack:
        writer = stack.enter_context(TableWriter(egs_out, EXAMPLE))
        reader = stack.enter_context(SequentialTableReader(rspecifier, GENERAL_MATRIX))
        tables = {
            name: stack.enter_context(RandomAccessTableReader(other, GENERAL_MATRIX))
            for name, other in others
        }
        for key, features in reader:
            found = {name: table.get(key) for name, table in tables.items()}
            example = NnetExample([frames_io(first, 0, features)])
            for name, matrix in found.items():
                if matrix is None:
                    log.warning(f"Could not find input for key {key} for io-name={name}")
                    num_failed += 1
                    break
                example.io.append(frames_io(name, 0, matrix))
            else:
                try:
                    with naming(f"key '{key}'"):
                        example.check_finite()
                except NotFiniteError as error:
                    log.skipped(error)
                    num_failed += 1
                    continue
                writer.write(key, example)
                num_done += 1
        if num_failed:
            log.warning(f"{num_failed} utterances had errors and could not be processed.")
        if num_done == 0:
            raise EmptyError(f"{rspecifier}: no example could be made of its {num_failed} keys")
    return 0


def _name_and_rspecifier(word: str) -> tuple[str, str]:
    name, equals, rspecifier = word.partition("=")
    if not equals or not name or name.split() != [name]:
        raise OptionError(f"Bad command line argument (expecting name=rspecifier): {word}")
    return name, rspecifier

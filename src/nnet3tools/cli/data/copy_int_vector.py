"""copy-int-vector: copies vectors of integers, such as alignments."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.io import log

USAGE = """Copy vectors of integers, or archives of vectors of integers
(e.g. alignments)

Usage: copy-int-vector [options] (vector-in-rspecifier|vector-in-rxfilename) \
(vector-out-wspecifier|vector-out-wxfilename)
 e.g.: copy-int-vector --binary=false foo -
   copy-int-vector ark:1.ali ark,t:-
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write in binary mode (only relevant if output is a wxfilename)")


@program("copy-int-vector", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.tables import are_tables, convert_table
    from nnet3tools.io.files import open_input, open_output
    from nnet3tools.io.holders import INT32_VECTOR

    source, target = args
    if not are_tables(source, target, "vectors"):
        with open_input(source) as reader:
            values = reader.read_int32_vector()
        with open_output(target, options.binary) as writer:
            writer.write_int32_vector(values)
        log.log(f"Copied vector to {target}")
        return 0
    holders = INT32_VECTOR, INT32_VECTOR
    num_done, _ = convert_table(source, target, holders, lambda key, values: values)
    log.log(f"Copied {num_done} vectors of int32.")
    return 0 if num_done else 1

"""sum-lda-accs: the sum of LDA statistics."""

from nnet3tools.cli.options import OptionGroup, option, program

USAGE = """Sum stats obtained with acc-lda.
Usage: sum-lda-accs [options] <stats-out> <stats-in1> <stats-in2> ...
e.g.: sum-lda-accs lda_stats 1.acc 2.acc
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write accumulators in binary mode.")


@program("sum-lda-accs", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.training.lda import sum_stats

    sum_stats(args[1:]).save(args[0], options.binary)

"""post-to-smat: converts posteriors to sparse matrices."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.io import log

USAGE = """This program turns an archive of per-frame posteriors, e.g. from
ali-to-post | post-to-pdf-post,
into an archive of SparseMatrix.  This is just a format transformation.
This may not make sense if the indexes in question are one-based (at least,
you'd have to increase the dimension by one.

See also: post-to-phone-post, ali-to-post, post-to-pdf-post

Usage:  post-to-smat [options] <posteriors-rspecifier> <sparse-matrix-wspecifier>
e.g.: post-to-smat --dim=1038 ark:- ark:-
"""


class Options(OptionGroup):
    dim: int = option(
        -1,
        "The num-cols in each output SparseMatrix.  All the integers in the input posteriors are "
        "expected to be >= 0 and < dim.  This must be specified.",
    )


@program("post-to-smat", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.holders import GENERAL_MATRIX, POSTERIOR
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    if options.dim <= 0:
        raise OptionError("The --dim option must be specified.")
    count = 0
    with (
        TableWriter(args[1], GENERAL_MATRIX) as writer,
        SequentialTableReader(args[0], POSTERIOR) as posteriors,
    ):
        for key, posterior in posteriors:
            with naming(f"{args[0]}: key '{key}'"):
                writer.write(key, posterior.to_sparse(options.dim))
            count += 1
    log.log(f"Done converting {count} posteriors into sparse matrices.")

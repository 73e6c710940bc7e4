"""nnet-get-feature-transform: estimates an LDA-like transform of features."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import naming

USAGE = """Get feature-projection transform using stats obtained with acc-lda.

Usage:  nnet-get-feature-transform [options] <matrix-out> <lda-acc-1> <lda-acc-2> ...
e.g.: nnet-get-feature-transform --dim=200 lda.mat lda_stats
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write outputs in binary mode.")
    write_cholesky: str = option(
        "",
        "If supplied, write to this wxfilename the Cholesky factor of the within-class covariance. "
        "Can be used for perturbing features.  E.g. --write-cholesky=exp/nnet5/cholesky.tpmat",
    )
    write_within_covar: str = option(
        "",
        "If supplied, write to this wxfilename the within-class covariance (as a symmetric "
        "matrix). E.g. --write-within-covar=exp/nnet5/within_covar.mat",
    )
    remove_offset: bool = option(
        True,
        "If true, output an affine transform that makes the projected data mean equal to zero.",
    )
    dim: int = option(-1, "Dimension to project to with LDA")
    within_class_factor: float = option(
        0.001,
        "If 1.0, do conventional LDA where the within-class variance will be unit in the projected "
        "space.  May be set to less than 1.0, which scales the features to have less variance, "
        "particularly for dimensions where between-class variance is small. ",
    )
    max_singular_value: float = option(
        5.0,
        "If >0, maximum allowed singular value of final transform (they are floored to this)",
    )


@program("nnet-get-feature-transform", USAGE, Options, num_args=(2, None))
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.io.files import open_output
    from nnet3tools.training.feature_transform import estimate_transform
    from nnet3tools.training.lda import sum_stats

    matrix_out, *stats_in = args
    stats = sum_stats(stats_in)
    with naming(", ".join(stats_in)):
        transform = estimate_transform(
            stats,
            options.dim,
            options.within_class_factor,
            options.max_singular_value,
            options.remove_offset,
        )
    with open_output(matrix_out, options.binary) as writer:
        writer.write_matrix(transform.matrix)
    cholesky = transform.cholesky
    for name, matrix in (
        (options.write_cholesky, cholesky),
        (options.write_within_covar, cholesky @ cholesky.T),
    ):
        if name:
            with open_output(name, options.binary) as writer:
                writer.write_packed(matrix)

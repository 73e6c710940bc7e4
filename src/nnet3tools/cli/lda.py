"""Programs that accumulate LDA statistics and estimate transforms from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.io import log

if TYPE_CHECKING:
    from nnet3tools.chain.example import NnetChainExample
    from nnet3tools.training.example import NnetExample
    from nnet3tools.training.lda_accumulation import LdaAccumulator

ACC_LDA_STATS_USAGE = """\
Accumulate statistics in the same format as acc-lda (i.e. stats for estimation of LDA and
similar types of transform), starting from nnet training examples.  This program puts the features
through the network, and the network output will be the features; the supervision in the training
examples is used for the class labels.  Used in obtaining feature transforms that help nnet
training work better.

Usage:  nnet3-acc-lda-stats [options] <raw-nnet-in> <training-examples-in> <lda-stats-out>
e.g.:
nnet3-acc-lda-stats 0.raw ark:1.egs 1.acc
See also: nnet-get-feature-transform
"""


class AccLdaStatsOptions(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    rand_prune: float = option(0.0, "Randomized pruning threshold for posteriors")


@program("nnet3-acc-lda-stats", ACC_LDA_STATS_USAGE, AccLdaStatsOptions, num_args=3)
def nnet3_acc_lda_stats(options: AccLdaStatsOptions, args: list[str]) -> None:
    from nnet3tools.training.lda_accumulation import accumulate_examples

    _write_stats(options, args, lambda accumulator: accumulate_examples(accumulator, args[1]))


def _write_stats(
    options: AccLdaStatsOptions, args: list[str], accumulate_all: Callable[[LdaAccumulator], int]
) -> None:
    """Accumulate LDA statistics of the examples and write them; `args`: network, examples, output.

    `accumulate_all(accumulator)` adds all examples and returns their number.
    """
    from nnet3tools.io.files import prove_output
    from nnet3tools.nnet.model_file import read_nnet
    from nnet3tools.training.lda_accumulation import LdaAccumulator

    nnet_in, examples_in, stats_out = args
    if options.rand_prune < 0.0:
        raise OptionError(f"--rand-prune={options.rand_prune:g} is negative")
    prove_output(stats_out)
    accumulator = LdaAccumulator(read_nnet(nnet_in), options.rand_prune)
    log.log(f"Processed {accumulate_all(accumulator)} examples.")
    stats = accumulator.stats
    if stats is None or stats.total == 0.0:
        raise DataError(f"{examples_in}: accumulated no statistics")
    stats.save(stats_out, options.binary)
    log.log(f"Accumulated stats, soft frame count = {stats.total:g}.  Wrote to {stats_out}")


CHAIN_ACC_LDA_STATS_USAGE = """Accumulate statistics in the same format as acc-lda (i.e. stats for
estimation of LDA and similar types of transform), starting from nnet+chain
training examples.  This program puts the features through the network,
and the network output will be the features; the supervision in the
training examples is used for the class labels.  Used in obtaining
feature transforms that help nnet training work better.
Note: the time boundaries it gets from the chain supervision will be
a little fuzzy (which is not ideal), but it should not matter much in
this situation

Usage:  nnet3-chain-acc-lda-stats [options] <raw-nnet-in> <training-examples-in> <lda-stats-out>

e.g.:
nnet3-chain-acc-lda-stats 0.raw ark:1.cegs 1.acc
See also: nnet-get-feature-transform
"""


def _with_posteriors(example: NnetChainExample) -> NnetExample:
    """A frame-level example with the inputs and, as targets, the posteriors of pdfs."""
    from nnet3tools.chain.supervision_posteriors import supervision_posteriors
    from nnet3tools.training.example import NnetExample, NnetIo

    if len(example.outputs) != 1 or example.outputs[0].name != "output":
        raise DataError("expected the example to have one output named 'output'")
    (output,) = example.outputs
    posteriors = supervision_posteriors(output.supervision)
    return NnetExample([*example.inputs, NnetIo("output", output.indexes, posteriors)])


@program("nnet3-chain-acc-lda-stats", CHAIN_ACC_LDA_STATS_USAGE, AccLdaStatsOptions, num_args=3)
def nnet3_chain_acc_lda_stats(options: AccLdaStatsOptions, args: list[str]) -> None:
    from nnet3tools.chain.example import CHAIN_EXAMPLE
    from nnet3tools.training.example import for_each_of_kind

    def accumulate_all(accumulator: LdaAccumulator) -> int:
        return for_each_of_kind(
            CHAIN_EXAMPLE,
            args[1],
            lambda key, example: accumulator.accumulate(_with_posteriors(example)),
        )

    _write_stats(options, args, accumulate_all)


NNET_GET_FEATURE_TRANSFORM_USAGE = """\
Get feature-projection transform using stats obtained with acc-lda.

Usage:  nnet-get-feature-transform [options] <matrix-out> <lda-acc-1> <lda-acc-2> ...
e.g.: nnet-get-feature-transform --dim=200 lda.mat lda_stats
"""


class NnetGetFeatureTransformOptions(OptionGroup):
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
        5.0, "If >0, maximum allowed singular value of final transform (they are floored to this)"
    )


@program(
    "nnet-get-feature-transform",
    NNET_GET_FEATURE_TRANSFORM_USAGE,
    NnetGetFeatureTransformOptions,
    num_args=(2, None),
)
def nnet_get_feature_transform(options: NnetGetFeatureTransformOptions, args: list[str]) -> None:
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


SUM_LDA_ACCS_USAGE = """Sum stats obtained with acc-lda.
Usage: sum-lda-accs [options] <stats-out> <stats-in1> <stats-in2> ...
e.g.: sum-lda-accs lda_stats 1.acc 2.acc
"""


class SumLdaAccsOptions(OptionGroup):
    binary: bool = option(True, "Write accumulators in binary mode.")


@program("sum-lda-accs", SUM_LDA_ACCS_USAGE, SumLdaAccsOptions, num_args=(2, None))
def sum_lda_accs(options: SumLdaAccsOptions, args: list[str]) -> None:
    from nnet3tools.training.lda import sum_stats

    sum_stats(args[1:]).save(args[0], options.binary)

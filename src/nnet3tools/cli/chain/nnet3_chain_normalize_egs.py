"""nnet3-chain-normalize-egs: the normalization FST's weights added to chain examples."""

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import EmptyError, OptionError
from nnet3tools.io import log

USAGE = """Add weights from 'normalization' FST to nnet3+chain examples.
Should be done if and only if the <normalization-fst> argument of
nnet3-chain-get-egs was not supplied when the original egs were
created.

Usage:  nnet3-chain-normalize-egs [options] <normalization-fst> <egs-rspecifier> <egs-wspecifier>

e.g.:
nnet3-chain-normalize-egs dir/normalization.fst ark:train_in.cegs ark:train_out.cegs
"""


class Options(OptionGroup):
    normalization_fst_scale: float = option(
        1.0,
        "Scale the weights from the 'normalization' FST before applying them to the examples. "
        "(Useful for semi-supervised training)",
    )


@program("nnet3-chain-normalize-egs", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.chain.example_format import ENCODED_CHAIN_EXAMPLES
    from nnet3tools.chain.example_normalization import ExampleNormalizer
    from nnet3tools.chain.normalization import load_normalizer
    from nnet3tools.io.table import TableWriter
    from nnet3tools.training.example import for_each_of_kind

    scale = options.normalization_fst_scale
    if scale < 0.0:
        raise OptionError(f"invalid --normalization-fst-scale={scale:g}: must be >= 0")
    normalizer = load_normalizer(args[0], scale)
    with TableWriter(args[2], ENCODED_CHAIN_EXAMPLES) as writer:
        examples = ExampleNormalizer(normalizer, writer.write)
        for_each_of_kind(ENCODED_CHAIN_EXAMPLES, args[1], examples.accept)
        examples.finish()
        log.log(
            f"Added normalization to {examples.num_written} egs; had errors on "
            f"{examples.num_errors}"
        )
        if not examples.num_written:
            raise EmptyError(f"{args[1]}: no example could be normalized")

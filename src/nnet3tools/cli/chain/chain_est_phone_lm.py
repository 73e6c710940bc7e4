"""chain-est-phone-lm: estimate the phone language model for the denominator graph."""

from nnet3tools.chain.options import LanguageModelOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.io import log

USAGE = """Initialize un-smoothed phone language model for 'chain' training
Output in FST format (epsilon-free deterministic acceptor)

Usage:  chain-est-phone-lm [options] <phone-seqs-rspecifier> <phone-lm-fst-out>

The phone-sequences are used to train a language model.
e.g.:
gunzip -c input_dir/ali.*.gz | ali-to-phones input_dir/final.mdl ark:- ark:- | \\
 chain-est-phone-lm --num-extra-lm-states=2000 ark:- dir/phone_G.fst
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode (it always is, as in Kaldi)")
    lm: LanguageModelOptions = option_group("", LanguageModelOptions)


@program("chain-est-phone-lm", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.chain.phone_lm import estimate_phone_lm
    from nnet3tools.errors import naming
    from nnet3tools.fst.files import save_fst
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.io.table import SequentialTableReader

    options.lm.check()
    log.log("Reading phone sequences")
    with SequentialTableReader(args[0], INT32_VECTOR) as sentences, naming(args[0]):
        fst = estimate_phone_lm(sentences, options.lm)
    save_fst(args[1], fst)
    log.log(f"Estimated phone language model and wrote it to {args[1]}")

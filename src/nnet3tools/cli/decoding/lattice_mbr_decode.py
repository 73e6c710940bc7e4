"""lattice-mbr-decode: transcripts with the least expected word errors, and confusion networks."""

import contextlib

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

USAGE = """Do Minimum Bayes Risk decoding (decoding that aims to minimize the
expected word error rate).  Possible outputs include the 1-best path
(i.e. the word-sequence, as a sequence of ints per utterance), the
computed Bayes Risk for each utterance, and the sausage stats as
(for each utterance) lists of pairs (word, posterior), in the form of posteriors.
times-wspecifier writes pairs of (start-time, end-time) in frames, for
each sausage position, or for each one-best entry if --one-best-times=true.
Note: use ark:/dev/null or the empty string for unwanted outputs.
Note: times will only be very meaningful if the lattice's words are aligned.

Usage: lattice-mbr-decode [options]  <lattice-rspecifier> <transcriptions-wspecifier> \
[ <bayes-risk-wspecifier> [ <sausage-stats-wspecifier> [ <times-wspecifier>] ] ]
 e.g.: lattice-mbr-decode --acoustic-scale=0.1 ark:1.lats \
'ark,t:|int2sym.pl -f 2- words.txt > text' ark:/dev/null ark:1.sau
"""


class Options(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(1.0, "Scaling factor for language model probabilities")
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")
    one_best_times: bool = option(
        False, "If true, output times corresponding to one-best, not whole sausage."
    )


@program("lattice-mbr-decode", USAGE, Options, num_args=(2, 5))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.decoding_io import OptionalTable, Transcripts
    from nnet3tools.decoding.mbr import minimum_bayes_risk
    from nnet3tools.fst.fst import NO_STATE
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE
    from nnet3tools.fst.weights import single
    from nnet3tools.io.holder import Holder
    from nnet3tools.io.holders import FLOAT, FLOAT_PAIR_VECTOR, INT32_VECTOR, POSTERIOR
    from nnet3tools.io.posterior import Posterior
    from nnet3tools.io.table import SequentialTableReader

    transcripts = Transcripts(options.word_symbol_table)
    graph, acoustic = single(options.lm_scale), single(options.acoustic_scale)
    num_done = num_words = 0
    total_risk = 0.0
    with contextlib.ExitStack() as stack:
        holders: tuple[Holder, ...] = (INT32_VECTOR, FLOAT, POSTERIOR, FLOAT_PAIR_VECTOR)
        words, risks, sausages, times = (
            OptionalTable(name, holder, stack)
            for name, holder in zip([*args[1:], "", "", ""], holders, strict=False)
        )
        for key, lattice in stack.enter_context(SequentialTableReader(args[0], COMPACT_LATTICE)):
            if lattice.fst.start == NO_STATE:
                log.warning(f"Empty lattice for key {key}")
                continue
            with naming(f"{args[0]}: key '{key}'"):
                found = minimum_bayes_risk(lattice.scaled(graph, acoustic))
            words.write(key, np.array(found.words, np.int32))
            transcripts.show(key, np.array(found.words, np.int32))
            risks.write(key, found.risk)
            pairs = [list(zip(one.words, one.posteriors, strict=True)) for one in found.bins]
            sausages.write(key, Posterior.from_frames(pairs))
            spans = found.times if options.one_best_times else found.bin_times()
            times.write(key, np.array(spans, np.float32).reshape(-1, 2))
            num_done += 1
            num_words += len(found.words)
            total_risk += found.risk
    averages = [total_risk / count if count else float("nan") for count in (num_done, num_words)]
    log.log(f"Done {num_done} lattices.")
    log.log(f"Average Bayes Risk per sentence is {averages[0]:g} and per word, {averages[1]:g}")
    return 0 if num_done else 1

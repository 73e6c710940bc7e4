"""Programs that find paths of lattices."""

import contextlib

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np

LATTICE_BEST_PATH_USAGE = """\
Generate 1-best path through lattices; output as transcriptions and alignments
Usage: lattice-best-path [options]  <lattice-rspecifier> [ <transcriptions-wspecifier> \
[ <alignments-wspecifier>] ]
 e.g.: lattice-best-path --acoustic-scale=0.1 ark:1.lats \
'ark,t:|int2sym.pl -f 2- words.txt > text' ark:1.ali
"""


class LatticeBestPathOptions(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(
        1.0,
        "Scaling factor for LM probabilities. Note: the ratio acoustic-scale/lm-scale is all that "
        "matters.",
    )
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")


@program("lattice-best-path", LATTICE_BEST_PATH_USAGE, LatticeBestPathOptions, num_args=(1, 3))
def lattice_best_path(options: LatticeBestPathOptions, args: list[str]) -> int:
    from nnet3tools.cli.decoding_io import Transcripts
    from nnet3tools.cli.tables import OptionalTable
    from nnet3tools.fst.fst import NO_STATE
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE
    from nnet3tools.fst.shortest_paths import best_compact_path
    from nnet3tools.fst.weights import single
    from nnet3tools.io.holders import INT32_VECTOR
    from nnet3tools.io.table import SequentialTableReader

    lattices_in, words_out, alignments_out = [*args, "", ""][:3]
    transcripts = Transcripts(options.word_symbol_table)
    num_done = num_failed = num_frames = 0
    graph = acoustic = 0.0
    with contextlib.ExitStack() as stack:
        words = OptionalTable(words_out, INT32_VECTOR, stack)
        alignments = OptionalTable(alignments_out, INT32_VECTOR, stack)
        for key, lattice in stack.enter_context(
            SequentialTableReader(lattices_in, COMPACT_LATTICE)
        ):
            with naming(f"{lattices_in}: key '{key}'"):
                path = best_compact_path(
                    lattice.scaled(single(options.lm_scale), single(options.acoustic_scale))
                )
            if path.fst.start == NO_STATE:
                log.warning(f"Best-path failed for key {key}")
                num_failed += 1
                continue
            alignment, transcript = path.strings.ids, path.fst.ilabels[path.fst.ilabels != 0]
            costs = path.total_costs()
            log.log(
                f"For utterance {key}, best cost {costs[0]:g} + {costs[1]:g} = "
                f"{sum(costs):g} over {len(alignment)} frames."
            )
            words.write(key, transcript)
            alignments.write(key, alignment)
            transcripts.show(key, transcript)
            num_done += 1
            num_frames += len(alignment)
            graph, acoustic = graph + costs[0], acoustic + costs[1]
    averages = [total / num_frames if num_frames else float("nan") for total in (graph, acoustic)]
    log.log(
        f"Overall cost per frame is {sum(averages):g} = {averages[0]:g} [graph] + "
        f"{averages[1]:g} [acoustic] over {num_frames} frames."
    )
    log.log(f"Done {num_done} lattices, failed for {num_failed}")
    return 0 if num_done else 1


LATTICE_MBR_DECODE_USAGE = """Do Minimum Bayes Risk decoding (decoding that aims to minimize the
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


class LatticeMbrDecodeOptions(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(1.0, "Scaling factor for language model probabilities")
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")
    one_best_times: bool = option(
        False, "If true, output times corresponding to one-best, not whole sausage."
    )


@program("lattice-mbr-decode", LATTICE_MBR_DECODE_USAGE, LatticeMbrDecodeOptions, num_args=(2, 5))
def lattice_mbr_decode(options: LatticeMbrDecodeOptions, args: list[str]) -> int:
    from nnet3tools.cli.decoding_io import Transcripts
    from nnet3tools.cli.tables import OptionalTable
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


LATTICE_TO_NBEST_USAGE = """Work out N-best paths in lattices and write out as FSTs
Note: only guarantees distinct word sequences if distinct paths in
input lattices had distinct word-sequences (this will not be true if
you produced lattices with --determinize-lattice=false, i.e. state-level
lattices).
Usage: lattice-to-nbest [options] <lattice-rspecifier> <lattice-wspecifier>
 e.g.: lattice-to-nbest --acoustic-scale=0.1 --n=10 ark:1.lats ark:nbest.lats
"""


class LatticeToNbestOptions(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(1.0, "Scaling factor for language model scores.")
    n: int = option(1, "Number of distinct paths")
    random: bool = option(
        False,
        "If true, generate n random paths instead of n-best paths. In this case, all costs in "
        "generated paths will be zero.",
    )
    srand: int = option(0, "Seed for random number generator (only relevant if --random=true)")

    def check(self) -> None:
        """OptionError if an option's value is out of its range."""
        if self.n <= 0:
            raise OptionError("--n must be greater than 0")
        if self.acoustic_scale == 0.0 or self.lm_scale == 0.0:
            raise OptionError("Do not use a zero acoustic or LM scale (cannot be inverted)")


@program("lattice-to-nbest", LATTICE_TO_NBEST_USAGE, LatticeToNbestOptions, num_args=2)
def lattice_to_nbest(options: LatticeToNbestOptions, args: list[str]) -> int:
    from random import Random

    from nnet3tools.fst.lattice_conversion import compacted
    from nnet3tools.fst.lattice_files import COMPACT_LATTICE, LATTICE
    from nnet3tools.fst.shortest_paths import best_paths, random_paths
    from nnet3tools.fst.weights import single
    from nnet3tools.io.table import SequentialTableReader, TableWriter

    options.check()
    random = Random(options.srand)
    graph, acoustic = single(options.lm_scale), single(options.acoustic_scale)
    num_done = num_paths = 0
    with (
        TableWriter(args[1], COMPACT_LATTICE) as writer,
        SequentialTableReader(args[0], LATTICE) as reader,
    ):
        for key, lattice in reader:
            with naming(f"{args[0]}: key '{key}'"):
                lattice = lattice.scaled(graph, acoustic)
                if options.random:
                    paths = random_paths(lattice, options.n, random)
                else:
                    paths = best_paths(lattice, options.n)
            if not paths:
                log.warning(f"Possibly empty lattice for utterance-id {key}(no N-best entries)")
                continue
            for number, path in enumerate(paths, start=1):
                writer.write(f"{key}-{number}", compacted(path.scaled(1.0 / graph, 1.0 / acoustic)))
            num_done += 1
            num_paths += len(paths)
    average = num_paths / num_done if num_done else 0.0
    log.log(
        f"Done applying N-best algorithm to {num_done} lattices with n = {options.n}, average "
        f"actual #paths is {average:g}"
    )
    return 0 if num_done else 1

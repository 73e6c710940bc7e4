"""lattice-best-path: transcripts and alignments of the best paths of lattices."""

import contextlib

from nnet3tools.cli.options import OptionGroup, option, program
from nnet3tools.errors import naming
from nnet3tools.io import log

USAGE = """Generate 1-best path through lattices; output as transcriptions and alignments
Usage: lattice-best-path [options]  <lattice-rspecifier> [ <transcriptions-wspecifier> \
[ <alignments-wspecifier>] ]
 e.g.: lattice-best-path --acoustic-scale=0.1 ark:1.lats \
'ark,t:|int2sym.pl -f 2- words.txt > text' ark:1.ali
"""


class Options(OptionGroup):
    acoustic_scale: float = option(1.0, "Scaling factor for acoustic likelihoods")
    lm_scale: float = option(
        1.0,
        "Scaling factor for LM probabilities. Note: the ratio acoustic-scale/lm-scale is all that "
        "matters.",
    )
    word_symbol_table: str = option("", "Symbol table for words [for debug output]")


@program("lattice-best-path", USAGE, Options, num_args=(1, 3))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.decoding_io import OptionalTable, Transcripts
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

"""nnet3-latgen-faster: lattices, words and alignments of utterances."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_cpu_kernels
from nnet3tools.cli.latgen_options import LatgenOptions
from nnet3tools.cli.options import option_group, program
from nnet3tools.cli.utterance_inputs import NothingDoneError, UtteranceCounts
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import DecodingOptions
from nnet3tools.io import log

if TYPE_CHECKING:
    import numpy as np

    from nnet3tools.decoding.search import Search
    from nnet3tools.decoding.utterance import DecodingTotals, UtteranceDecoder
    from nnet3tools.executor.decodable_simple import Ivectors
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

USAGE = """Generate lattices using nnet3 neural net model.
Usage: nnet3-latgen-faster [options] <nnet-in> <fst-in|fsts-rspecifier> <features-rspecifier> \
<lattice-wspecifier> [ <words-wspecifier> [<alignments-wspecifier>] ]
e.g.:
 nnet3-latgen-faster --frame-subsampling-factor=3 --acoustic-scale=1.0 final.mdl HCLG.fst \\
   scp:feats.scp ark:lat.ark ark,t:words.txt
See also: nnet3-latgen-faster-batch, nnet3-decode
"""


@dataclass(frozen=True)
class Options(LatgenOptions):
    """Options of nnet3-latgen-faster."""

    simple: DecodingOptions = option_group("", DecodingOptions)


@program("nnet3-latgen-faster", USAGE, Options, num_args=(4, 6))
def main(options: Options, args: list[str]) -> int:
    """Decode a table of features."""
    from nnet3tools.cli.decoding_io import DecodingOutputs
    from nnet3tools.cli.utterance_inputs import read_acoustic_model
    from nnet3tools.decoding.utterance import DecodingTotals, UtteranceDecoder
    from nnet3tools.executor.decodable_simple import UtteranceComputer

    options.check()
    options.simple.check()
    choose_cpu_kernels(options.cpu_kernels)
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        computer = UtteranceComputer(nnet, options.simple, priors)
    decoding = UtteranceDecoder(
        model, options.decoder, options.simple.acoustic_scale, options.allow_partial
    )
    counts, totals = UtteranceCounts(), DecodingTotals()
    try:
        with contextlib.ExitStack() as stack:
            outputs = DecodingOutputs(
                options.decoder.determinize_lattice, args[3:], options.word_symbol_table, stack
            )
            for key, features, ivectors, decoder in _utterances(
                options, args, model, decoding, counts
            ):
                with naming(f"utterance {key}"):
                    decoded = decoding.decode(decoder, key, computer.compute(features, ivectors))
                if decoded is None:
                    counts.failed += 1
                    continue
                outputs.write(key, decoded)
                totals.add(decoded)
                counts.done += 1
            counts.check()
    except NothingDoneError:
        pass
    computer.close()
    return _report(counts, totals, options.simple.frame_subsampling_factor)


def _utterances(
    options: Options,
    args: list[str],
    model: TransitionModel,
    decoding: UtteranceDecoder,
    counts: UtteranceCounts,
) -> Iterator[tuple[str, np.ndarray, Ivectors | None, Search]]:
    """Utterances, each with a decoder over its graph, or over the one of all."""
    from nnet3tools.cli.decoding_io import GraphTable
    from nnet3tools.cli.tables import is_table
    from nnet3tools.cli.utterance_inputs import complete_utterances, utterances
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.fst.files import FST, load_fst
    from nnet3tools.io.table import SequentialTableReader

    graph, features = args[1:3]
    if not is_table(graph):
        decoder = decoding.decoder(DecodingGraph.of(load_fst(graph), model, graph))
        counts.restart()
        for utterance in utterances(features, options.inputs, counts):
            yield *utterance, decoder
        return
    with SequentialTableReader(graph, FST) as graphs:
        missing = "Not decoding utterance {key} because no features available."
        table = GraphTable(graphs, features, counts, missing)
        for utterance in complete_utterances(table, graph, options.inputs, counts):
            own = DecodingGraph.of(table.graph, model, f"{graph}: key '{utterance[0]}'")
            yield *utterance, decoding.decoder(own)


def _report(counts: UtteranceCounts, totals: DecodingTotals, factor: int) -> int:
    """Log times and counts as Kaldi does; the program's exit status."""
    seconds, frames = counts.seconds, totals.num_frames
    real_time = seconds * 100.0 / (frames * factor) if frames else float("nan")
    log.log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {real_time:g}")
    log.log(f"Done {counts.done} utterances, failed for {counts.failed}")
    average = totals.loglike / frames if frames else float("nan")
    log.log(f"Overall log-likelihood per frame is {average:g} over {frames} frames.")
    return 0 if counts.done else 1

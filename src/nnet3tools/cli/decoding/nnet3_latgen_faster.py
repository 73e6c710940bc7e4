"""nnet3-latgen-faster: lattices, words and alignments of utterances."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nnet3tools.cli.gpu import choose_cpu_kernels, cpu_kernels_option
from nnet3tools.cli.latgen_options import LatgenOptions
from nnet3tools.cli.options import option_group, program
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import DecodingOptions
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.utterances import InputPauses, NothingDoneError, UtteranceCounts

if TYPE_CHECKING:
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.decoding.utterance import DecodingTotals
    from nnet3tools.executor.chunks import Ivectors
    from nnet3tools.nnet.hmm.transition_model import TransitionModel

USAGE = """Generate lattices using nnet3 neural net model.
Usage: nnet3-latgen-faster [options] <nnet-in> <fst-in|fsts-rspecifier> <features-rspecifier> \
<lattice-wspecifier> [ <words-wspecifier> [<alignments-wspecifier>] ]
e.g.:
 nnet3-latgen-faster --frame-subsampling-factor=3 --acoustic-scale=1.0 final.mdl HCLG.fst \\
   scp:feats.scp ark:lat.ark ark,t:words.txt
See also: nnet3-latgen-faster-batch, nnet3-decode
"""


class Options(LatgenOptions):
    simple: DecodingOptions = option_group("", DecodingOptions)
    cpu_kernels: str | None = cpu_kernels_option()


@program("nnet3-latgen-faster", USAGE, Options, num_args=(4, 6))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.latgen import Latgen
    from nnet3tools.recognizer.models import read_acoustic_model
    from nnet3tools.recognizer.outputs import computer_for_tables

    options.check()
    options.simple.check()
    choose_cpu_kernels(options.cpu_kernels)
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        computer = computer_for_tables(args[3:], nnet, options.simple, priors)
    latgen = Latgen.of(model, options, options.simple.acoustic_scale, UtteranceCounts())
    with contextlib.suppress(NothingDoneError):
        pauses = InputPauses()
        utterances = _utterances(options, args, model, latgen.counts, pauses)
        latgen.decode_all(options, args[3:], computer, utterances, pauses)
    computer.close()
    return _report(latgen.counts, latgen.totals, options.simple.frame_subsampling_factor)


def _utterances(
    options: Options,
    args: list[str],
    model: TransitionModel,
    counts: UtteranceCounts,
    pauses: InputPauses,
) -> Iterator[tuple[str, np.ndarray, Ivectors | None, DecodingGraph]]:
    """Tuples (key, features, i-vectors, graph); `graph` is the utterance's or the common one."""
    from nnet3tools.cli.decoding_io import GraphTable
    from nnet3tools.cli.tables import is_table
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.fst.files import FST, load_fst
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.recognizer.utterances import complete_utterances, utterances

    name, features = args[1:3]
    if not is_table(name):
        graph = DecodingGraph.of(load_fst(name), model, name)
        counts.restart()
        for utterance in utterances(features, options.inputs, counts, pauses):
            yield *utterance, graph
        return
    with SequentialTableReader(name, FST) as graphs:
        pauses.watch(graphs)
        missing = "Not decoding utterance {key} because no features available."
        table = GraphTable(graphs, features, counts, missing)
        for utterance in complete_utterances(table, name, options.inputs, counts):
            own = DecodingGraph.of(table.graph, model, f"{name}: key '{utterance[0]}'")
            yield *utterance, own


def _report(counts: UtteranceCounts, totals: DecodingTotals, factor: int) -> int:
    """Log times and counts as Kaldi does, and return the exit status."""
    seconds, frames = counts.seconds, totals.num_frames
    real_time = seconds * 100.0 / (frames * factor) if frames else float("nan")
    log.log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {real_time:g}")
    log.log(f"Done {counts.done} utterances, failed for {counts.failed}")
    average = totals.loglike / frames if frames else float("nan")
    log.log(f"Overall log-likelihood per frame is {average:g} over {frames} frames.")
    return 0 if counts.done else 1

"""nnet3-align-compiled: aligns utterances to the graphs of their transcripts."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.decoding.options import AlignOptions
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import DecodingOptions
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io import log
from nnet3tools.io.numpy_later import np
from nnet3tools.recognizer.utterances import IvectorOptions, NothingDoneError, UtteranceCounts

if TYPE_CHECKING:
    from nnet3tools.decoding.alignment import Aligner
    from nnet3tools.executor.utterance_computer import UtteranceComputer

USAGE = """Align features given nnet3 neural net model
Usage:   nnet3-align-compiled [options] <nnet-in> <graphs-rspecifier> <features-rspecifier> \
<alignments-wspecifier> [<scores-wspecifier>]
e.g.:
 nnet3-align-compiled 1.mdl ark:graphs.fsts scp:train.scp ark:1.ali
or:
 compile-train-graphs tree 1.mdl lex.fst 'ark:sym2int.pl -f 2- words.txt text|' \\
   ark:- | nnet3-align-compiled 1.mdl ark:- scp:train.scp t, ark:1.ali
"""


class Options(OptionGroup):
    align: AlignOptions = option_group("", AlignOptions)
    simple: DecodingOptions = option_group("", DecodingOptions)
    inputs: IvectorOptions = option_group("", IvectorOptions)
    transition_scale: float = option(1.0, "Transition-probability scale [relative to acoustics]")
    self_loop_scale: float = option(
        1.0, "Scale of self-loop versus non-self-loop log probs [relative to acoustics]"
    )
    write_per_frame_acoustic_loglikes: str = option(
        "",
        "Wspecifier for table of vectors containing the acoustic log-likelihoods per frame for "
        "each utterance. E.g. ark:foo/per_frame_logprobs.1.ark",
    )
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


@dataclass
class _Totals:
    loglike: float = 0.0
    frames: int = 0


@program("nnet3-align-compiled", USAGE, Options, num_args=(4, 5))
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.decoding.alignment import Aligner, transition_log_probs
    from nnet3tools.recognizer.models import read_acoustic_model
    from nnet3tools.recognizer.outputs import computer_for_tables

    for group in (options.align, options.simple, options.inputs):
        group.check()
    device = options.device.choose()
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        tables = [*args[3:], options.write_per_frame_acoustic_loglikes]
        computer = computer_for_tables(tables, nnet, options.simple, priors, like=device)
    log_probs = transition_log_probs(model, options.transition_scale, options.self_loop_scale)
    aligner = Aligner(model, options.align, log_probs)
    counts, totals = UtteranceCounts(), _Totals()
    with contextlib.suppress(NothingDoneError):
        _align_all(options, args, aligner, computer, counts, totals)
    computer.close()
    average = totals.loglike / totals.frames if totals.frames else float("nan")
    log.log(f"Overall log-likelihood per frame is {average:g} over {totals.frames} frames.")
    seen = counts.done + counts.failed
    log.log(f"Retried {aligner.num_retried} out of {seen} utterances.")
    log.log(f"Done {counts.done}, errors on {counts.failed}")
    return 0 if counts.done else 1


def _align_all(
    options: Options,
    args: list[str],
    aligner: Aligner,
    computer: UtteranceComputer,
    counts: UtteranceCounts,
    totals: _Totals,
) -> None:
    """Align and write all utterances; NothingDoneError if none could be aligned.

    `args`: model, graphs, features, alignments[, scores]. `aligner` aligns the outputs that
    `computer` computes; `counts` and `totals` are updated.
    """
    from nnet3tools.cli.decoding_io import GraphTable
    from nnet3tools.cli.tables import OptionalTable
    from nnet3tools.fst.files import FST
    from nnet3tools.io.holders import FLOAT, INT32_VECTOR, VECTOR
    from nnet3tools.io.table import SequentialTableReader
    from nnet3tools.recognizer.outputs import outputs_in_order
    from nnet3tools.recognizer.utterances import InputPauses, complete_utterances

    scale = np.float32(options.simple.acoustic_scale)
    graphs_in, features_in, alignments_out, scores_out = [*args[1:], ""][:4]
    with contextlib.ExitStack() as stack:
        alignments = OptionalTable(alignments_out, INT32_VECTOR, stack)
        scores = OptionalTable(scores_out, FLOAT, stack)
        loglikes = OptionalTable(options.write_per_frame_acoustic_loglikes, VECTOR, stack)
        graphs = stack.enter_context(SequentialTableReader(graphs_in, FST))
        table = GraphTable(graphs, features_in, counts, "No features for utterance {key}")
        utterances = complete_utterances(table, graphs_in, options.inputs, counts)
        given = ((*each, table.graph) for each in utterances)
        pauses = InputPauses()
        pauses.watch(graphs)

        def flush() -> None:
            for results in (alignments, scores, loglikes):
                results.flush()

        found = outputs_in_order(computer, given, lambda graph: graph.num_bytes, pauses, flush)
        for key, outputs, graph in found:
            with naming(f"utterance {key}"):
                path = aligner.align(key, graph, outputs)
            if path is None:
                counts.failed += 1
                continue
            loglike = -sum(path.costs)
            counts.done += 1
            totals.loglike += loglike / float(scale)
            totals.frames += len(outputs)
            alignments.write(key, path.alignment)
            scores.write(key, loglike)
            loglikes.write(key, path.frame_costs * (np.float32(-1.0) / scale))
        counts.check()

"""nnet3-latgen-faster-batch: lattices of utterances whose chunks are computed together."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.latgen_options import LatgenOptions
from nnet3tools.cli.options import option, option_group, program
from nnet3tools.errors import OptionError, naming
from nnet3tools.executor.simple_options import BatchDecodingOptions
from nnet3tools.io import log
from nnet3tools.recognizer.utterances import NothingDoneError, UtteranceCounts

if TYPE_CHECKING:
    from nnet3tools.decoding.utterance import DecodingTotals

USAGE = """Generate lattices using nnet3 neural net model.  This version is optimized
for GPU-based inference.
Usage: nnet3-latgen-faster-batch [options] <nnet-in> <fst-in> <features-rspecifier> \
<lattice-wspecifier>
e.g.:
 nnet3-latgen-faster-batch --frame-subsampling-factor=3 --acoustic-scale=1.0 final.mdl HCLG.fst \\
   scp:feats.scp ark:lat.ark
"""


class Options(LatgenOptions):
    batch: BatchDecodingOptions = option_group("", BatchDecodingOptions)
    num_threads: int = option(
        1, "For Kaldi's scripts: graphs are searched by one thread here, whatever is said"
    )
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


@program("nnet3-latgen-faster-batch", USAGE, Options, num_args=4)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.latgen import Latgen
    from nnet3tools.decoding.graph import DecodingGraph
    from nnet3tools.executor.utterance_computer import computer_together
    from nnet3tools.fst.files import load_fst
    from nnet3tools.recognizer.models import read_acoustic_model
    from nnet3tools.recognizer.utterances import InputPauses, utterances

    options.check()
    options.batch.check()
    if options.num_threads < 1:
        raise OptionError("--num-threads must be greater than 0")
    device = options.device.choose()
    model, nnet, priors = read_acoustic_model(args[0])
    with naming(args[0]):
        computer = computer_together(nnet, options.batch, priors, like=device)
    counts = UtteranceCounts()
    latgen = Latgen.of(model, options, options.batch.acoustic_scale, counts)
    graph = DecodingGraph.of(load_fst(args[1]), model, args[1])
    counts.restart()
    with contextlib.suppress(NothingDoneError):
        pauses = InputPauses()
        given = ((*each, graph) for each in utterances(args[2], options.inputs, counts, pauses))
        latgen.decode_all(options, args[3:], computer, given, pauses)
    computer.close(log_batches=True)
    return _report(counts, latgen.totals, options.batch.frame_subsampling_factor)


def _report(counts: UtteranceCounts, totals: DecodingTotals, factor: int) -> int:
    """Log times and counts as Kaldi does, and return the exit status."""
    frames = totals.num_frames
    average = totals.loglike / max(frames, 1)
    log.log(f"Overall likelihood per frame was {average:g} over {frames} frames.")
    seconds = counts.seconds
    log.log(
        f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is "
        f"{seconds * 100.0 / max(frames * factor, 1):g} (per thread; with 1 threads)."
    )
    log.log(
        f"Done {counts.done} utterances ({totals.num_partial} forced out); failed for "
        f"{counts.failed}"
    )
    return 0 if counts.done else 1

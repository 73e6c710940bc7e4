"""nnet3-xvector-compute-batched: computes x-vectors, with chunks in batches."""

import time

from nnet3tools.cli.device_options import XvectorDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import NotFiniteError, OptionError, naming
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.recognizer.utterances import InputPauses

USAGE = """Propagate features through an xvector neural network model and write the output vectors.
"Xvector" is our term for a vector or embedding which is the output of a particular type of neural
network architecture found in speaker recognition.  This architecture consists of several layers
that operate on frames, a statistics pooling layer that aggregates over the frame-level
representations and possibly additional layers that operate on segment-level representations.  The
xvectors are generally extracted from an output layer after the statistics pooling layer.
Xvectors are extracted from chunks of input features and averaged, to produce a single vector;
the chunks of all utterances are computed in batches of one size.

Usage: nnet3-xvector-compute-batched [options] <raw-nnet-in> <features-rspecifier> \
<vector-wspecifier>
e.g.:
 nnet3-xvector-compute-batched final.raw scp:feats.scp ark:nnet_prediction.ark
See also: nnet3-compute
"""


class Options(OptionGroup):
    chunk_size: int = option(
        150,
        "Size of chunk, in input frames.  Includes the nnet context, so the number of chunks will "
        "be more than total-input-frames / chunk-size.",
    )
    batch_size: int = option(32, "Size of the batches of chunks that we compute at once. ")
    pad_input: bool = option(
        True,
        "If true, for utterances shorter than `chunk-size` frames we will pad with repeats of the "
        "last frame.",
    )
    computation: ComputeOptions = option_group("", ComputeOptions)
    optimization: OptimizeOptions = option_group("", OptimizeOptions)
    compiler: CompilerOptions = option_group("", CompilerOptions)
    device: XvectorDeviceOptions = option_group("", XvectorDeviceOptions)


@program("nnet3-xvector-compute-batched", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.executor.simple_network import SimpleNetwork
    from nnet3tools.executor.utterance_computer import xvector_computer
    from nnet3tools.executor.xvector_plans import EvenChunks
    from nnet3tools.io.holders import MATRIX, VECTOR
    from nnet3tools.io.table import SequentialTableReader, TableWriter
    from nnet3tools.recognizer.models import read_model

    nnet_in, features_rspecifier, vectors_wspecifier = args
    if options.batch_size < 1:
        raise OptionError(f"--batch-size={options.batch_size} must be at least 1")
    began = time.perf_counter()
    device = options.device.choose()
    nnet, _ = read_model(nnet_in, use_priors=False)
    simple = SimpleComputationOptions(
        optimization=options.optimization,
        compiler=options.compiler,
        computation=options.computation,
    )
    sizes = options.chunk_size, options.batch_size, options.pad_input
    with naming(nnet_in):
        plan = EvenChunks(SimpleNetwork(nnet).context, *sizes)
        computer = xvector_computer(nnet, simple, plan, like=device)
    num_read = num_written = num_frames = 0
    with (
        TableWriter(vectors_wspecifier, VECTOR) as writer,
        SequentialTableReader(features_rspecifier, MATRIX) as reader,
    ):
        pauses = InputPauses()
        pauses.watch(reader)
        for key, features in reader:
            if len(features) == 0:
                log.warning(f"Zero-length utterance: {key}")
                continue
            num_frames += len(features)
            num_read += 1
            try:
                with naming(f"utterance {key}"):
                    computer.accept(key, features)
            except NotFiniteError as error:
                log.skipped(error)
            if paused := pauses():
                computer.finish()
            for ready, vector in computer.ready():
                writer.write(ready, vector[0])
                num_written += 1
            if paused:
                writer.flush()
        computer.finish()
        for ready, vector in computer.ready():
            writer.write(ready, vector[0])
            num_written += 1
    computer.close()
    seconds = time.perf_counter() - began
    factor = 100.0 * seconds / num_frames if num_frames else 0.0
    log.log(f"Time taken {seconds:g}s: real-time factor assuming 100 frames/sec is {factor:g}")
    log.log(f"Read {num_read} utterances, wrote {num_written} xvectors.")
    return 0 if num_written > num_read // 2 else 1

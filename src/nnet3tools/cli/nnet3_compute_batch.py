"""nnet3-compute-batch: computes network outputs, with chunks of several utterances together."""

from dataclasses import replace

from nnet3tools.cli.device_options import CudaDeviceOptions
from nnet3tools.cli.options import OptionGroup, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import BatchComputationOptions
from nnet3tools.recognizer.utterances import InputOptions, NothingDoneError, UtteranceCounts

USAGE = """Propagate the features through raw neural network model and write the output. This
version computes chunks of several utterances together, which is faster where matrices are small,
and on a GPU. If --apply-exp=true, apply the Exp() function to the output before writing it out.

Usage: nnet3-compute-batch [options] <nnet-in> <features-rspecifier> <matrix-wspecifier>
e.g.:
 nnet3-compute-batch final.raw scp:feats.scp ark:nnet_prediction.ark
See also: nnet3-compute
"""


class Options(OptionGroup):
    batch: BatchComputationOptions = option_group("", BatchComputationOptions)
    inputs: InputOptions = option_group("", InputOptions)
    compiler: CompilerOptions = option_group("compiler", CompilerOptions)
    device: CudaDeviceOptions = option_group("", CudaDeviceOptions)


@program("nnet3-compute-batch", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.cli.compute_utterances import compute_all
    from nnet3tools.executor.utterance_computer import computer_together
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import TableWriter
    from nnet3tools.recognizer.models import read_model

    nnet_in, features_rspecifier, outputs_wspecifier = args
    options.inputs.check()
    batch = replace(options.batch, compiler=options.compiler)
    batch.check()
    device = options.device.choose()
    counts = UtteranceCounts()
    nnet, priors = read_model(nnet_in, options.inputs.use_priors)
    with naming(nnet_in):
        computer = computer_together(nnet, batch, priors, like=device)
    try:
        with TableWriter(outputs_wspecifier, MATRIX) as writer:
            compute_all(computer, features_rspecifier, options.inputs, counts, writer)
            counts.check()
    except NothingDoneError:
        pass
    computer.close(log_batches=True)
    return counts.report()

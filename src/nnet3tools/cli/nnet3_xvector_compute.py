"""nnet3-xvector-compute: computes an x-vector for each utterance."""

import contextlib

from nnet3tools.cli.device_options import XvectorDeviceOptions
from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import naming
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.recognizer.utterances import (
    InputOptions,
    InputPauses,
    NothingDoneError,
    UtteranceCounts,
    utterances,
)

USAGE = """Propagate features through an xvector neural network model and write the output vectors.
"Xvector" is our term for a vector or embedding which is the output of a particular type of neural
network architecture found in speaker recognition. This architecture consists of several layers
that operate on frames, a statistics pooling layer that aggregates over the frame-level
representations and possibly additional layers that operate on segment-level representations. The
xvectors are generally extracted from an output layer after the statistics pooling layer. By
default, one xvector is extracted directly from the set of features for each utterance.
Optionally, xvectors are extracted from chunks of input features and averaged, to produce a single
vector.

Usage: nnet3-xvector-compute [options] <raw-nnet-in> <features-rspecifier> <vector-wspecifier>
e.g.:
 nnet3-xvector-compute final.raw scp:feats.scp ark:nnet_prediction.ark
See also: nnet3-compute
"""


class Options(OptionGroup):
    simple: SimpleComputationOptions = option_group("", SimpleComputationOptions)
    compiler: CompilerOptions = option_group("", CompilerOptions)
    device: XvectorDeviceOptions = option_group("", XvectorDeviceOptions)
    chunk_size: int = option(
        -1,
        "If set, extracts xvectors from specified chunk-size, and averages. If not set, extracts "
        "an xvector from all available features.",
    )
    min_chunk_size: int = option(100, "Minimum chunk-size allowed when extracting xvectors.")
    pad_input: bool = option(
        True,
        "If true, duplicate the first and last frames of the input features as required to equal "
        "min-chunk-size.",
    )
    cached_compiler_in: str = option(
        "", "If set, read the cached compiler from the specified file path."
    )
    cached_compiler_out: str = option(
        "", "If set, write the cached compiler to the specified file path."
    )


@program("nnet3-xvector-compute", USAGE, Options, num_args=3)
def main(options: Options, args: list[str]) -> int:
    from nnet3tools.executor.utterance_computer import xvector_computer
    from nnet3tools.executor.xvector_plans import XvectorOptions, XvectorPieces
    from nnet3tools.io.files import prove_output
    from nnet3tools.io.holders import VECTOR
    from nnet3tools.io.table import TableWriter
    from nnet3tools.optimizer.cache_files import load_cache, save_cache
    from nnet3tools.recognizer.models import read_model

    nnet_in, features_rspecifier, vectors_wspecifier = args
    xvector = XvectorOptions(options.chunk_size, options.min_chunk_size, options.pad_input)
    xvector.check()
    device = options.device.choose()
    counts = UtteranceCounts()
    nnet, _ = read_model(nnet_in, use_priors=False)
    simple = replace(options.simple, compiler=options.compiler)
    with naming(nnet_in):
        computer = xvector_computer(nnet, simple, XvectorPieces(xvector), like=device)
    if options.cached_compiler_out:
        prove_output(options.cached_compiler_out)
    if options.cached_compiler_in:
        load_cache(options.cached_compiler_in, computer.compiler)
    with contextlib.suppress(NothingDoneError), TableWriter(vectors_wspecifier, VECTOR) as writer:
        pauses = InputPauses()
        for key, features, _ in utterances(features_rspecifier, InputOptions(), counts, pauses):
            if len(features) < xvector.min_chunk_size and not xvector.pad_input:
                log.warning(
                    f"Minimum chunk size of {xvector.min_chunk_size} is greater than the "
                    f"number of rows in utterance: {key}"
                )
                counts.failed += 1
                continue
            with naming(f"utterance {key}"):
                writer.write(key, computer.compute(features)[0])
            counts.done += 1
            if pauses():
                writer.flush()
        counts.check()
    if options.cached_compiler_out and counts.done:
        save_cache(options.cached_compiler_out, computer.compiler)
    computer.close()
    return counts.report()

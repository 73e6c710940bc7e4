"""nnet3-make-request: write the ComputationRequest for frames, an utterance or an example."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nnet3tools.cli.options import OptionGroup, option, option_group, program
from nnet3tools.errors import DataError, OptionError, check_num_frames, naming
from nnet3tools.executor.simple_options import ChunkOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.io import log
from nnet3tools.io.memory import lack_of_memory

_BYTES_PER_ROW = 150  # of an input or output, measured: indexes and planned steps

if TYPE_CHECKING:
    from nnet3tools.graph.request import ComputationRequest
    from nnet3tools.nnet.nnet import Nnet

USAGE = """Writes a computation request for a network, which nnet3-compile compiles: for one chunk
of --num-frames frames with the context that the network needs, for a chunk of an utterance of
--feats as nnet3-compute cuts it, or for an example of --egs (frame-level, chain or discriminative)
as trainers make it.

Usage:  nnet3-make-request --num-frames=<n> [options] <model-in> <request-wxfilename>
 or:    nnet3-make-request --feats=<features-rspecifier> [options] <model-in> <request-wxfilename>
 or:    nnet3-make-request --egs=<egs-rspecifier> [options] <model-in> <request-wxfilename>
e.g.:
 nnet3-make-request --num-frames=20 --binary=false final.raw - | nnet3-compile final.raw - a.comp
 nnet3-make-request --feats=scp:feats.scp --key=utt1 --chunk=2 final.mdl chunk.request
 nnet3-make-request --egs=ark:1.egs --need-model-derivative=true 0.raw example.request
See also: nnet3-compile, nnet3-compute
"""


class Options(OptionGroup):
    binary: bool = option(True, "Write output in binary mode")
    num_frames: int = option(0, "Number of input frames that outputs are requested for.")
    feats: str = option("", "Rspecifier of features, for a chunk of an utterance.")
    egs: str = option("", "Rspecifier of examples.")
    key: str = option("", "With --feats or --egs: the utterance or example; default: the first.")
    chunk: int = option(0, "With --feats: the number of the chunk, from 0.")
    num_sequences: int = option(1, "With --num-frames or --feats: the number of sequences.")
    chunks: ChunkOptions = option_group("", ChunkOptions)
    need_model_derivative: bool = option(
        False, "If true, request the model derivative, given derivatives of the outputs."
    )
    input_deriv: bool = option(
        False, "If true, request the derivatives of inputs, given derivatives of the outputs."
    )
    store_component_stats: bool = option(False, "If true, request statistics of components.")
    xent_regularize: float = option(
        0.0, "With chain or discriminative examples: as for the trainer; if not 0, -xent outputs."
    )

    def check(self) -> None:
        """OptionError unless one of --num-frames, --feats, --egs is given; or for bad numbers."""
        given = [bool(self.num_frames), bool(self.feats), bool(self.egs)]
        if sum(given) != 1:
            raise OptionError("expected one of --num-frames, --feats and --egs")
        if self.key and self.num_frames:
            raise OptionError("--key does not go with --num-frames")
        for name, least in (("num_frames", 0), ("chunk", 0), ("num_sequences", 1)):
            if (value := getattr(self, name)) < least:
                raise OptionError(f"--{name.replace('_', '-')}={value}: expected at least {least}")
        check_num_frames("num-frames", self.num_frames)
        self.chunks.check()


@program("nnet3-make-request", USAGE, Options, num_args=2)
def main(options: Options, args: list[str]) -> None:
    from nnet3tools.compiler.compiler import Compiler
    from nnet3tools.io.files import open_output
    from nnet3tools.nnet.model_file import read_nnet

    options.check()
    model_in, request_out = args
    nnet = read_nnet(model_in)
    if options.egs:
        request = _example_request(options, nnet)
    else:
        num_frames = _utterance_length(options) if options.feats else options.num_frames
        with naming(model_in):
            request = _chunk_request(options, nnet, num_frames)
    request.store_component_stats = options.store_component_stats
    request.need_model_derivative = options.need_model_derivative
    for spec in request.inputs:
        spec.has_deriv = options.input_deriv
    if request.needs_derivatives and not options.egs:
        for spec in request.outputs:
            spec.has_deriv = True
    with naming(options.egs or options.feats or "--num-frames"):
        request.validate(nnet)
        Compiler(nnet).plan_steps([request])
    with open_output(request_out, options.binary) as writer:
        request.write(writer)
    log.log(f"Wrote a request for {request.summary()} to {request_out}")


def _chunk_request(options: Options, nnet: Nnet, num_frames: int) -> ComputationRequest:
    """The request for chunk --chunk of an utterance, which is one chunk if there is no --feats."""
    from nnet3tools.executor.chunks import chunks_of_utterance
    from nnet3tools.executor.simple_network import SimpleNetwork

    cut = options.chunks if options.feats else replace(options.chunks, frames_per_chunk=num_frames)
    network = SimpleNetwork(nnet)
    outputs = cut.outputs_per_chunk(network.context.modulus)
    has_ivector = network.ivector_dim > 0
    chunks = chunks_of_utterance(num_frames, outputs, network.context, cut, has_ivector)
    if options.chunk >= len(chunks):
        count = f"chunks 0 to {len(chunks) - 1}" if len(chunks) > 1 else "only chunk 0"
        raise OptionError(f"--chunk={options.chunk}: {num_frames} frames have {count}")
    shape = chunks[options.chunk].shape
    rows = options.num_sequences * (shape.num_inputs + shape.num_outputs)
    if lack := lack_of_memory(_BYTES_PER_ROW * rows):
        raise OptionError(f"--num-sequences={options.num_sequences}: {rows} rows need {lack}")
    return shape._replace(num_sequences=options.num_sequences).request()


def _utterance_length(options: Options) -> int:
    """The number of frames of the utterance --key or, without it, of the first of --feats."""
    from nnet3tools.io.holders import MATRIX
    from nnet3tools.io.table import SequentialTableReader

    with SequentialTableReader(options.feats, MATRIX) as reader:
        for key, features in reader:
            if options.key in ("", key):
                if len(features) == 0:
                    raise DataError(f"{options.feats}: utterance {key} has no frames")
                return len(features)
    raise _not_found(options.feats, "utterance", options.key)


def _example_request(options: Options, nnet: Nnet) -> ComputationRequest:
    """The request for the example --key or, without it, for the first of --egs."""
    from nnet3tools.cli.example_requests import for_each_request

    found: list[ComputationRequest] = []

    def keep(key: str, request: ComputationRequest) -> None:
        if not found and options.key in ("", key):
            found.append(request)

    flags = options.need_model_derivative or options.input_deriv, options.store_component_stats
    for_each_request(nnet, options.egs, flags, options.xent_regularize, keep)
    if not found:
        raise _not_found(options.egs, "example", options.key)
    return found[0]


def _not_found(rspecifier: str, what: str, key: str) -> DataError:
    return DataError(f"{rspecifier}: no {what} {key!r}" if key else f"{rspecifier}: no {what}")

"""Options of computing whole utterances in chunks (Kaldi's NnetSimpleComputationOptions).

Only declarations: programs parse options before they load NumPy.
"""

from __future__ import annotations

import math

from nnet3tools.compiler.options import CompilerOptions
from nnet3tools.errors import OptionError, check_num_frames
from nnet3tools.executor.options import ComputeOptions
from nnet3tools.fast_dataclasses import field
from nnet3tools.io import log
from nnet3tools.optimizer.options import OptimizeOptions
from nnet3tools.options import OptionGroup, option


class ChunkOptions(OptionGroup):
    """Options for cutting utterances into chunks."""

    extra_left_context: int = option(
        0,
        "Number of frames of additional left-context to add on top of the neural net's inherent "
        "left context (may be useful in recurrent setups)",
    )
    extra_right_context: int = option(
        0,
        "Number of frames of additional right-context to add on top of the neural net's inherent "
        "right context (may be useful in recurrent setups)",
    )
    extra_left_context_initial: int = option(
        -1, "If >= 0, overrides the --extra-left-context value at the start of an utterance."
    )
    extra_right_context_final: int = option(
        -1, "If >= 0, overrides the --extra-right-context value at the end of an utterance."
    )
    frame_subsampling_factor: int = option(
        1,
        "Required if the frame-rate of the output (e.g. in 'chain' models) is less than the "
        "frame-rate of the original alignment.",
    )
    frames_per_chunk: int = option(
        50,
        "Number of frames in each chunk that is separately evaluated by the neural net. Measured "
        "before any subsampling, if the --frame-subsampling-factor options is used (i.e. counts "
        "input frames)",
    )

    def check(self) -> None:
        """Raise OptionError for option values that are impossible."""
        if self.frame_subsampling_factor < 1 or self.frames_per_chunk < 1:
            raise OptionError("--frame-subsampling-factor and --frames-per-chunk must be > 0")
        for name in ("extra_left_context", "extra_right_context"):
            if getattr(self, name) < 0:
                raise OptionError(f"--{name.replace('_', '-')} must not be negative")
        # Chunks are padded to their context, so these numbers are limited. --frames-per-chunk is
        # not: if it is longer than an utterance, the utterance is one chunk.
        for name in (
            "extra_left_context",
            "extra_right_context",
            "extra_left_context_initial",
            "extra_right_context_final",
            "frame_subsampling_factor",
        ):
            check_num_frames(name.replace("_", "-"), getattr(self, name))

    def outputs_per_chunk(self, modulus: int) -> int:
        """The number of outputs of a chunk, from --frames-per-chunk.

        As in Kaldi, --frames-per-chunk is rounded up to a multiple of the subsampling factor and of
        the network's modulus. The change is logged.
        """
        self.check()
        factor = self.frame_subsampling_factor
        multiple = math.lcm(factor, modulus)
        frames = -(-self.frames_per_chunk // multiple) * multiple
        if frames != self.frames_per_chunk:
            reason = f"to make it a multiple of --frame-subsampling-factor={factor}"
            if modulus != 1:
                reason = (
                    f"due to --frame-subsampling-factor={factor} and "
                    f"nnet shift-invariance modulus = {modulus}"
                )
            log.log(
                f"Increasing --frames-per-chunk from {self.frames_per_chunk} to {frames} {reason}"
            )
        return frames // factor


class SimpleComputationOptions(ChunkOptions):
    """Options for cutting utterances into chunks and for computing the chunks."""

    acoustic_scale: float = option(1.0, "Scaling factor for acoustic log-likelihoods")
    debug_computation: bool = option(
        False, "If true, turn on debug for the actual computation (very verbose!)"
    )
    optimization: OptimizeOptions = field(default_factory=OptimizeOptions)
    compiler: CompilerOptions = field(default_factory=CompilerOptions, metadata={"hidden": True})
    """Hidden, because Kaldi has no such options here; programs that offer them set this field."""
    computation: ComputeOptions = field(default_factory=ComputeOptions)


class BatchComputationOptions(SimpleComputationOptions):
    """Options for computing chunks of several utterances together (NnetBatchComputerOptions)."""

    minibatch_size: int = option(
        128, "Number of chunks per minibatch (see also edge-minibatch-size)"
    )
    edge_minibatch_size: int = option(
        32,
        "Number of chunks per minibatch: this applies to chunks at the beginnings and ends of "
        "utterances, in cases (such as recurrent models) when the computation would be different "
        "from the usual one.",
    )
    ensure_exact_final_context: bool = option(
        False,
        "If true, for utterances shorter than --frames-per-chunk, use exact-length, special "
        "computations. If false, pad with repeats of the last frame. Would only affect the output "
        "for backwards-recurrent models, but would negatively impact speed in all cases.",
    )
    partial_minibatch_factor: float = option(
        0.5,
        "Factor that controls how small partial minibatches will be when they become necessary. We "
        "will potentially do the computation for sizes int(partial_minibatch_factor^n * "
        "minibatch_size), for n = 0, 1, 2.... Set it to 0.0 if you want to use only the specified "
        "minibatch sizes.",
    )

    def check(self) -> None:
        """Raise OptionError for option values that are impossible."""
        super().check()
        if self.minibatch_size < 1 or self.edge_minibatch_size < 1:
            raise OptionError("--minibatch-size and --edge-minibatch-size must be > 0")
        if not 0.0 <= self.partial_minibatch_factor < 1.0:
            raise OptionError("--partial-minibatch-factor must be >= 0 and < 1")
        if not self.ensure_exact_final_context:  # then shorter utterances are padded
            check_num_frames("frames-per-chunk", self.frames_per_chunk)


_DECODING_SCALE = 0.1


class DecodingOptions(SimpleComputationOptions):
    """SimpleComputationOptions with the acoustic scale 0.1, the default of decoding programs."""

    acoustic_scale: float = option(_DECODING_SCALE, "Scaling factor for acoustic log-likelihoods")


class BatchDecodingOptions(BatchComputationOptions):
    """BatchComputationOptions with the acoustic scale 0.1, the default of decoding programs."""

    acoustic_scale: float = option(_DECODING_SCALE, "Scaling factor for acoustic log-likelihoods")

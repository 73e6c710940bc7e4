"""Cutting an utterance into chunks that a network computes one by one, or in minibatches.

Frames are those of the input; outputs are numbered after subsampling. A chunk sees its own frames
and the context that the network and the options ask for; beyond the utterance's ends the first and
last frames are repeated (the caller clips row numbers).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.graph.context import NnetContext
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes

__all__ = [
    "Chunk",
    "ChunkShape",
    "chunks_for_batches",
    "chunks_of_utterance",
    "input_rows",
    "ivector_frame",
    "lengthened",
]


class ChunkShape(NamedTuple):
    """The facts that decide a chunk's program. Times count from the first output's."""

    first_input_t: int
    num_inputs: int
    num_outputs: int
    stride: int
    """Frames from one output to the next."""
    has_ivector: bool = False
    num_sequences: int = 1

    def request(self) -> ComputationRequest:
        """Rows n-major: all of the first sequence, then of the next."""
        n = np.arange(self.num_sequences)[:, None]
        t_in = np.arange(self.first_input_t, self.first_input_t + self.num_inputs)
        t_out = np.arange(self.num_outputs) * self.stride
        request = ComputationRequest()
        request.inputs.append(IoSpecification("input", make_indexes(n, t_in)))
        if self.has_ivector:
            request.inputs.append(IoSpecification("ivector", make_indexes(n, 0)))
        request.outputs.append(IoSpecification("output", make_indexes(n, t_out)))
        return request


@dataclass(frozen=True)
class Chunk:
    """A part of an utterance."""

    shape: ChunkShape
    first_frame: int
    """The first input frame; it may lie before the utterance."""
    first_output: int
    """Where the first output that is used belongs in the utterance's output."""
    num_unused: int
    """Outputs at the chunk's beginning that an earlier chunk has given already."""
    num_used: int
    middle_frame: int
    """The frame whose online i-vector stands for the chunk."""
    is_edge: bool = False
    """At an end of the utterance, and of another shape than the chunks inside because of it."""


def chunks_of_utterance(
    num_frames: int,
    outputs_per_chunk: int,
    context: NnetContext,
    options: SimpleComputationOptions,
    has_ivector: bool,
) -> list[Chunk]:
    """Chunks one after another; the last is as short as it comes (Kaldi's DecodableNnetSimple)."""
    factor = options.frame_subsampling_factor
    num_outputs = -(-num_frames // factor)
    chunks = []
    for first in range(0, num_outputs, outputs_per_chunk):
        count = min(outputs_per_chunk, num_outputs - first)
        is_last = first + count == num_outputs
        left, right = _extra_context(options, first == 0, is_last)
        left, right = left + context.left, right + context.right
        span = (count - 1) * factor
        shape = ChunkShape(-left, left + span + 1 + right, count, factor, has_ivector)
        middle = first * factor + span // 2
        chunks.append(Chunk(shape, first * factor - left, first, 0, count, middle))
    return chunks


def lengthened(chunk: Chunk, num_outputs: int, has_others: bool) -> Chunk:
    """A chunk with unused outputs after its own, up to `num_outputs`.

    Without others of that length half as many, and so on, as far as its own outputs fit in.
    """
    shape = chunk.shape
    while not has_others and num_outputs > 1 and (num_outputs + 1) // 2 >= shape.num_outputs:
        num_outputs = (num_outputs + 1) // 2
    frames = (num_outputs - shape.num_outputs) * shape.stride
    longer = shape._replace(num_inputs=shape.num_inputs + frames, num_outputs=num_outputs)
    return replace(chunk, shape=longer)


def chunks_for_batches(
    num_frames: int,
    outputs_per_chunk: int,
    context: NnetContext,
    options: BatchComputationOptions,
    has_ivector: bool,
) -> list[Chunk]:
    """Chunks all of one length as far as possible (Kaldi's NnetBatchComputer).

    The last one ends with the utterance, giving some outputs again; a short utterance is padded
    unless --ensure-exact-final-context.
    """
    factor, size = options.frame_subsampling_factor, outputs_per_chunk
    num_outputs = -(-num_frames // factor)
    if num_outputs <= size and options.ensure_exact_final_context:
        size = num_outputs
    chunks = []
    for first in range(0, num_outputs, size):
        begin = max(0, min(first, num_outputs - size))
        left, right = _extra_context(options, begin == 0, begin + size >= num_outputs)
        inner = options.extra_left_context, options.extra_right_context
        is_edge = (left, right) != inner
        left, right = left + context.left, right + context.right
        shape = ChunkShape(-left, left + size * factor + right, size, factor, has_ivector)
        used = min(size, num_outputs - first)
        middle = min((begin + size // 2) * factor, num_frames - 1)
        chunk = Chunk(shape, begin * factor - left, first, first - begin, used, middle, is_edge)
        chunks.append(chunk)
    return chunks


def _extra_context(
    options: SimpleComputationOptions, is_first: bool, is_last: bool
) -> tuple[int, int]:
    left, right = options.extra_left_context, options.extra_right_context
    if is_first and options.extra_left_context_initial >= 0:
        left = options.extra_left_context_initial
    if is_last and options.extra_right_context_final >= 0:
        right = options.extra_right_context_final
    return left, right


def input_rows(chunk: Chunk, num_frames: int) -> slice | np.ndarray:
    """Rows of the features that a chunk reads: a slice, or indexes where it needs padding."""
    first, end = chunk.first_frame, chunk.first_frame + chunk.shape.num_inputs
    if first >= 0 and end <= num_frames:
        return slice(first, end)
    return np.clip(np.arange(first, end, dtype=np.int32), 0, num_frames - 1)


def ivector_frame(chunk: Chunk, num_ivectors: int, period: int, tolerance: int) -> int:
    """The row of a matrix of online i-vectors, one for each `period` frames, for a chunk.

    DataError if the matrix ends more than `tolerance` frames before it.
    """
    row = chunk.middle_frame // period
    if row < num_ivectors:
        return row
    if num_ivectors == 0 or (row - (num_ivectors - 1)) * period > tolerance:
        raise DataError(
            f"no i-vector for frame {chunk.middle_frame}: there are {num_ivectors}, one for each "
            f"{period} frames (mismatched --online-ivector-period?)"
        )
    return num_ivectors - 1

"""Cutting an utterance into chunks, each computed by one run of a network's program.

Frames are those of the input; outputs are numbered after subsampling. A chunk reads its own frames
and the context that the network and the options ask for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.executor.simple_options import BatchComputationOptions, ChunkOptions
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.graph.context import NnetContext
from nnet3tools.graph.request import ComputationRequest, IoSpecification
from nnet3tools.nnet.indexes import make_indexes

_IVECTOR_TOLERANCE = 50
"""Frames at the end of an utterance, half a second, that online i-vectors need not cover."""


class ChunkShape(NamedTuple):
    """The properties of a chunk that decide its program; time 0 is the time of its first output.

    `first_input_t` is the time of its first input, `stride` the frames from one output to the next.
    A program may compute `num_sequences` chunks of this shape together.
    """

    first_input_t: int
    num_inputs: int
    num_outputs: int
    stride: int
    has_ivector: bool = False
    num_sequences: int = 1

    def request(self) -> ComputationRequest:
        """The ComputationRequest for this shape; rows are n-major: one sequence after the other."""
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
    """A part of an utterance that is computed in one run of a program.

    `first_frame`: first input frame (frames outside the utterance repeat its first or last).
    `first_output`: row of the utterance's output for the first of the chunk's `num_used` used
    outputs. `num_unused`: outputs before these, which an earlier chunk gives. `middle_frame`: frame
    whose i-vector is used. `is_edge`: the utterance's beginning or end changes the context.
    `weight`: if not None, outputs times `weight` are added instead of copied. `frames`: if not
    None, only frames [begin, end) are read, and the first and last of these are repeated.
    """

    shape: ChunkShape
    first_frame: int
    first_output: int
    num_used: int
    num_unused: int = 0
    middle_frame: int = 0
    is_edge: bool = False
    weight: float | None = None
    frames: tuple[int, int] | None = None

    def rows(self, num_frames: int) -> slice | np.ndarray:
        """The rows of the features that the chunk reads: a slice, or row numbers if rows repeat.

        The utterance has `num_frames` frames. Rows outside repeat its first or last frame.
        """
        end = self.first_frame + self.shape.num_inputs
        return clipped_rows(self.first_frame, end, *(self.frames or (0, num_frames)))


def clipped_rows(begin: int, end: int, low: int, high: int) -> slice | np.ndarray:
    """Row numbers begin ... end - 1, clipped to [low, high); a slice if clipping changes none."""
    if begin >= low and end <= high:
        return slice(begin, end)
    return np.clip(np.arange(begin, end, dtype=np.int32), low, high - 1)


def chunks_of_utterance(
    num_frames: int,
    outputs_per_chunk: int,
    context: NnetContext,
    options: ChunkOptions,
    has_ivector: bool,
) -> list[Chunk]:
    """Cut `num_frames` frames to chunks; the last may be shorter (Kaldi's DecodableNnetSimple)."""
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
        chunks.append(Chunk(shape, first * factor - left, first, count, middle_frame=middle))
    return chunks


def lengthened(chunk: Chunk, num_outputs: int, has_others: bool) -> Chunk:
    """A copy of the chunk that computes `num_outputs` outputs; the additional outputs are not used.

    If the utterance has no other chunk (`has_others` false), `num_outputs` is first halved while it
    stays at least the chunk's number of outputs.
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
    """Cut an utterance of `num_frames` into chunks of equal length (Kaldi's NnetBatchComputer)."""
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
        chunk = Chunk(shape, begin * factor - left, first, used, first - begin, middle, is_edge)
        chunks.append(chunk)
    return chunks


def _extra_context(options: ChunkOptions, is_first: bool, is_last: bool) -> tuple[int, int]:
    left, right = options.extra_left_context, options.extra_right_context
    if is_first and options.extra_left_context_initial >= 0:
        left = options.extra_left_context_initial
    if is_last and options.extra_right_context_final >= 0:
        right = options.extra_right_context_final
    return left, right


class Ivectors:
    """The i-vectors of an utterance: one for the whole utterance, or one per `period` frames."""

    def __init__(self, rows: np.ndarray, period: int = 0) -> None:
        """Store one vector if `period` is 0, else a matrix with a row per `period` frames."""
        if rows.size == 0:
            raise DataError("expected i-vectors, found an empty matrix or vector")
        self.rows = rows.reshape(-1, rows.shape[-1])
        self.period = period

    @property
    def dim(self) -> int:
        """Dimension of an i-vector."""
        return int(self.rows.shape[1])

    def of_chunk(self, chunk: Chunk) -> np.ndarray:
        """The i-vector for a chunk, shape (1, dim)."""
        if self.period <= 0:
            return self.rows[:1]
        row, last = chunk.middle_frame // self.period, len(self.rows) - 1
        if row > last and (row - last) * self.period > _IVECTOR_TOLERANCE:
            raise DataError(
                f"no i-vector for frame {chunk.middle_frame}: there are {last + 1}, one for each "
                f"{self.period} frames (mismatched --online-ivector-period?)"
            )
        row = min(row, last)
        return self.rows[row : row + 1]

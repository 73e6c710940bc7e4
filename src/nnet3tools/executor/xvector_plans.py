"""Plans for x-vectors: the output at t = 0 of a network that pools over its whole input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nnet3tools.errors import DataError, OptionError, check_num_frames
from nnet3tools.executor.chunks import Chunk, ChunkShape
from nnet3tools.executor.minibatches import QueuedChunks, Utterance
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.context import NnetContext
from nnet3tools.io import log


@dataclass(frozen=True)
class XvectorOptions:
    """Lengths, in frames, of the pieces of an utterance whose x-vectors are averaged.

    `chunk_size` -1 means the whole utterance. Pieces shorter than `min_chunk_size` are padded by
    repeating their first and last frame if `pad_input`; else they are left out.
    """

    chunk_size: int = -1
    min_chunk_size: int = 100
    pad_input: bool = True

    def check(self) -> None:
        """Raise OptionError for lengths that are impossible."""
        if self.chunk_size != -1 and self.chunk_size < 1:
            raise OptionError("--chunk-size must be > 0, or -1 for whole utterances")
        if self.pad_input:
            check_num_frames("min-chunk-size", self.min_chunk_size)


class _OneVector(QueuedChunks):
    """Base of plans for x-vectors: an utterance's output is one row, a weighted mean of chunks."""

    averages = True

    def num_outputs(self, num_frames: int) -> int:
        return 1


class XvectorPieces(_OneVector):
    """Plan of nnet3-xvector-compute: consecutive pieces of an utterance, weighted by length."""

    def __init__(self, options: XvectorOptions) -> None:
        super().__init__(1)
        self._options = options

    def chunks(self, utterance: Utterance) -> list[Chunk]:
        """Cut an utterance into pieces. DataError if all pieces are too short."""
        num_frames, shortest = len(utterance.features), self._options.min_chunk_size
        size = num_frames if self._options.chunk_size == -1 else self._options.chunk_size
        if num_frames < size:
            log.log(f"Using a chunk size of {num_frames}, the number of frames, instead of {size}")
            size = num_frames
        chunks, total = [], 0
        for begin in range(0, num_frames, size):
            count = min(size, num_frames - begin)
            if count < shortest and not self._options.pad_input:
                continue
            shape = ChunkShape(0, max(count, shortest), 1, 1)
            first = begin - (shape.num_inputs - count) // 2
            frames = begin, begin + count
            chunks.append(Chunk(shape, first, 0, 1, weight=float(count), frames=frames))
            total += count
        if not chunks:
            raise DataError(f"no piece has the minimum chunk size of {shortest} frames")
        utterance.scale = 1.0 / total
        return chunks


class EvenChunks(_OneVector):
    """Plan of nnet3-xvector-compute-batched: evenly spaced chunks of one size, in minibatches."""

    _partial_factor = 0.0

    def __init__(self, context: NnetContext, chunk_size: int, batch_size: int, pad: bool) -> None:
        """Prepare chunks of `chunk_size` frames, `batch_size` to a minibatch.

        OptionError unless the context is shorter. `pad`: lengthen short utterances to one chunk.
        """
        super().__init__(batch_size)
        log.log(f"Left/right context is {context.left}, {context.right}")
        self._context = context.left + context.right
        if chunk_size <= self._context:
            raise OptionError(
                f"--chunk-size={chunk_size} must be larger than the network's context, "
                f"{self._context} frames"
            )
        self._chunk_size, self._pad = chunk_size, pad

    def chunks(self, utterance: Utterance) -> list[Chunk]:
        """Cut an utterance into chunks, whose vectors have equal weights in the mean vector.

        If the utterance is too short, a warning is logged and the list is empty.
        """
        num_frames = len(utterance.features)
        starts = chunk_starts(num_frames, self._chunk_size, self._context, self._pad).tolist()
        if not starts:
            log.warning(
                f"{utterance.key}: its {num_frames} frames are fewer than the chunk size and "
                "--pad-input=false: its vector is zero"
            )
        shape = ChunkShape(0, self._chunk_size, 1, 1)
        return [Chunk(shape, start, 0, 1, weight=1.0 / len(starts)) for start in starts]


def chunk_starts(
    num_frames: int, chunk_size: int, context: int, pad: bool = True
) -> NDArray[np.int32]:
    """The first frames of an utterance's chunks, which have `chunk_size` frames each.

    Of the frames of a chunk, `context` are only context. There are either as many chunks as fit,
    with gaps between them, or one more, with overlaps: the number whose mean has the smaller
    variance if frames are independent. With M frames in one chunk and N in two, the variance is
    proportional to (M + 4 N) / (M + 2 N)^2. An utterance shorter than a chunk has one chunk, or
    none without `pad`.
    """
    if num_frames <= chunk_size:
        return np.zeros(1 if pad or num_frames == chunk_size else 0, np.int32)
    length, size = num_frames - context, chunk_size - context
    few = length // size
    twice = (few + 1) * size - length
    once = length - twice
    with_gaps, with_overlaps = 1.0 / (few * size), (once + 4.0 * twice) / (once + 2.0 * twice) ** 2
    if np.float32(with_gaps) <= np.float32(with_overlaps):
        gaps = _even_parts(length - few * size, few + 1)
        return np.arange(few, dtype=np.int32) * size + np.cumsum(gaps)[:-1]
    overlaps = _even_parts((few + 1) * size - length, few)
    return np.arange(few + 1, dtype=np.int32) * size - np.cumsum([0, *overlaps], dtype=np.int32)


def _even_parts(total: int, count: int) -> NDArray[np.int32]:
    """Divide `total` into `count` integers that differ by at most 1, the smaller ones first."""
    small, rest = divmod(total, count)
    return np.repeat(np.array([small, small + 1], np.int32), [count - rest, rest])

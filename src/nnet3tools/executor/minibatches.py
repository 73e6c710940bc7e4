"""Plans that cut utterances into chunks and collect chunks of one shape into minibatches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator

import numpy as np

from nnet3tools.executor.chunks import (
    Chunk,
    ChunkShape,
    Ivectors,
    chunks_for_batches,
    chunks_of_utterance,
    lengthened,
)
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.context import NnetContext
from nnet3tools.nnet.components.base import Array

_MAX_WAITING = 8
"""Full minibatches' worth of utterances that may wait until their chunks are computed."""
CHUNKS_TOGETHER = 64
"""Chunks in a minibatch of nnet3-compute: an LSTM with delay 3 then multiplies 192 rows at once."""


@dataclass(eq=False)
class Utterance:
    """An utterance whose output is being computed: its features, and the output rows so far.

    `held_bytes`: memory that the caller keeps until the output is complete. `num_missing`: output
    rows, or chunks to be averaged, not yet computed. `scale`: factor for the complete output.
    """

    key: str
    features: Array
    ivectors: Ivectors | None
    output: Array
    held_bytes: int
    num_missing: int = 0
    scale: float = 1.0

    @property
    def num_bytes(self) -> int:
        """Bytes of features and output, plus `held_bytes`, those of data that wait with it."""
        return int(self.features.nbytes + self.output.nbytes) + self.held_bytes


@dataclass(frozen=True)
class Part:
    """The rows of an utterance that a minibatch computes, and their rows in input and output.

    `rows`: rows of the features to read. `first_input`, `first_output`: rows in the program's input
    and output where they begin. `dest`: row of the utterance's output for the first output.
    `weight`: if not None, outputs times `weight` are added instead of copied.
    """

    utterance: Utterance
    rows: slice | np.ndarray
    first_input: int
    first_output: int
    dest: int
    num_outputs: int
    weight: float | None = None
    ivector: np.ndarray | None = None

    @property
    def input_end(self) -> int:
        """The row after the last of the program's input rows that this utterance part fills."""
        rows = self.rows
        return self.first_input + (rows.stop - rows.start if isinstance(rows, slice) else len(rows))


@dataclass(frozen=True)
class Minibatch:
    """One run of a program: its shape, and the parts of utterances in it.

    Input rows that no part covers are zero. If `check_parts_only`, other outputs may be NaN or inf.
    """

    shape: ChunkShape
    parts: list[Part]
    check_parts_only: bool = False


class ChunkPlan(ABC):
    """Interface of classes that decide which minibatches compute the outputs of utterances."""

    averages = False
    """Whether outputs are sums of weighted chunks; then they must be zero at first."""
    max_waiting = math.inf
    """If more utterances than this are incomplete, the oldest is completed."""

    @abstractmethod
    def num_outputs(self, num_frames: int) -> int:
        """The number of output rows of an utterance of `num_frames` frames."""

    @abstractmethod
    def add(self, utterance: Utterance) -> Iterator[Minibatch]:
        """Add an utterance, set its `num_missing` outputs, and yield the minibatches now full."""

    def complete(self, utterance: Utterance) -> Iterable[Minibatch]:
        """Minibatches, full or not, for the rows of an utterance's output that are missing yet."""
        return ()

    @abstractmethod
    def rest(self) -> Iterator[Minibatch]:
        """Yield minibatches, full or not, that compute everything that has not been computed."""


class QueuedChunks(ChunkPlan):
    """Base of plans that cut utterances into chunks, and put chunks of one shape in a minibatch."""

    _partial_factor = 0.5
    """Minibatches that are not full have this factor ** n times their size."""

    def __init__(self, chunks_per_minibatch: int) -> None:
        self._together, self.max_waiting = chunks_per_minibatch, _MAX_WAITING * chunks_per_minibatch
        self._queues: OrderedDict[ChunkShape, deque[tuple[Utterance, Chunk]]] = OrderedDict()

    @abstractmethod
    def chunks(self, utterance: Utterance) -> list[Chunk]:
        """Cut an utterance into chunks."""

    def full_size(self, chunk: Chunk) -> int:
        """The number of chunks in a full minibatch of this chunk's shape."""
        return self._together

    def add(self, utterance: Utterance) -> Iterator[Minibatch]:
        """Queue the chunks of an utterance; yield the minibatches that are now full."""
        chunks = self.chunks(utterance)
        if utterance.ivectors is not None:
            for chunk in chunks:
                utterance.ivectors.of_chunk(chunk)  # DataError before a chunk is queued
        utterance.num_missing = sum(chunk.num_used for chunk in chunks)
        for chunk in chunks:
            queue = self._queues.setdefault(chunk.shape, deque())
            queue.append((utterance, chunk))
            if len(queue) >= self.full_size(chunk):
                yield self._minibatch(chunk.shape)

    def complete(self, utterance: Utterance) -> Iterator[Minibatch]:
        """Yield one minibatch for each shape that waiting chunks of the utterance have.

        It has the waiting chunks of this shape, also those of other utterances.
        """
        for shape, queue in self._queues.items():
            if any(waiting is utterance for waiting, _ in queue):
                yield self._minibatch(shape)

    def rest(self) -> Iterator[Minibatch]:
        """Yield minibatches until no chunk waits."""
        for shape, queue in self._queues.items():
            while queue:
                yield self._minibatch(shape)

    def _minibatch(self, shape: ChunkShape) -> Minibatch:
        """Take a shape's oldest chunks as one minibatch: full, or half, a quarter, ... as large."""
        queue = self._queues[shape]
        size = self.full_size(queue[0][1])
        while len(queue) < int(self._partial_factor * size):
            size = int(self._partial_factor * size)
        parts = [_part(n, *queue.popleft()) for n in range(min(size, len(queue)))]
        return Minibatch(shape._replace(num_sequences=size), parts)


def _part(n: int, utterance: Utterance, chunk: Chunk) -> Part:
    """The Part (rows to copy in and out) for `chunk` as sequence number `n` of a minibatch."""
    ivectors = utterance.ivectors
    return Part(
        utterance,
        chunk.rows(len(utterance.features)),
        n * chunk.shape.num_inputs,
        n * chunk.shape.num_outputs + chunk.num_unused,
        chunk.first_output,
        chunk.num_used,
        chunk.weight,
        None if ivectors is None else ivectors.of_chunk(chunk),
    )


class _OutputChunks(QueuedChunks):
    """Base of plans that cut utterances into chunks, and compute each output row exactly once."""

    def __init__(
        self, options: SimpleComputationOptions, context: NnetContext, together: int
    ) -> None:
        super().__init__(together)
        self._context = context
        self._outputs = options.outputs_per_chunk(context.modulus)
        self._factor = options.frame_subsampling_factor

    def num_outputs(self, num_frames: int) -> int:
        return -(-num_frames // self._factor)


class PaddedChunks(_OutputChunks):
    """Cuts utterances for nnet3-compute-batch, into chunks of one length as far as possible."""

    def __init__(self, options: BatchComputationOptions, context: NnetContext) -> None:
        super().__init__(options, context, options.minibatch_size)
        self._options, self._partial_factor = options, options.partial_minibatch_factor

    def chunks(self, utterance: Utterance) -> list[Chunk]:
        size, has_ivector = len(utterance.features), utterance.ivectors is not None
        return chunks_for_batches(size, self._outputs, self._context, self._options, has_ivector)

    def full_size(self, chunk: Chunk) -> int:
        if chunk.shape.num_outputs < self._outputs:
            return 1
        return self._options.edge_minibatch_size if chunk.is_edge else self._options.minibatch_size


class ExactChunks(_OutputChunks):
    """The chunk plan of nnet3-compute: an utterance's last chunk is as short as needed.

    With `may_lengthen`, the last chunk gets the length of the others, and its additional outputs
    are not used. The caller must know that no output depends on input after its right context.
    """

    def __init__(
        self,
        options: SimpleComputationOptions,
        context: NnetContext,
        may_lengthen: bool,
        together: int = CHUNKS_TOGETHER,
    ) -> None:
        super().__init__(options, context, together)
        self._options, self._may_lengthen = options, may_lengthen

    def chunks(self, utterance: Utterance) -> list[Chunk]:
        size, has_ivector = len(utterance.features), utterance.ivectors is not None
        chunks = chunks_of_utterance(size, self._outputs, self._context, self._options, has_ivector)
        if self._may_lengthen:
            chunks[-1] = lengthened(chunks[-1], self._outputs, len(chunks) > 1)
        return chunks

    def full_size(self, chunk: Chunk) -> int:
        return 1 if chunk.shape.num_outputs < self._outputs else self._together

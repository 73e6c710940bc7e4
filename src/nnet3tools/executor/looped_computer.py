"""A network's outputs for a stream of frames, in constant memory (DecodableNnetSimpleLooped).

One looped program computes chunk after chunk. It carries the state of recurrences, and the frames
that later chunks look back to, from each chunk to the next, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import partial
from itertools import islice

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import MAX_STREAM_FRAMES, DataError, check_num_frames
from nnet3tools.executor.chunk_programs import fill_rows
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_network import OutputScaling, SimpleNetwork
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.compile_looped import (
    chunk_size_for,
    compile_looped,
    looped_requests,
    set_ivector_period,
)

_STREAMS_TO_WARM_UP, _CHUNKS_TO_WARM_UP = 3, 4
"""Runs until each part of a looped program has run, was recorded, and was replayed."""


class LoopedComputer:
    """Computes the outputs of utterances or streams, chunk by chunk, with one looped program.

    Only these options apply: subsampling factor, frames per chunk, initial left context, acoustic
    scale, and the options of optimization and computation.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
    ) -> None:
        """Compile the looped program of a network that is prepared for test.

        `like` is any array of the device to run on. UserError if the network cannot be looped.
        """
        options.check()
        check_num_frames("frames-per-chunk", options.frames_per_chunk, MAX_STREAM_FRAMES)
        self.network = SimpleNetwork(nnet)
        self.factor = options.frame_subsampling_factor
        self.chunk_frames = chunk_size_for(nnet, self.factor, options.frames_per_chunk)
        context = self.network.context
        left = context.left + max(0, options.extra_left_context_initial)
        self.context = context._replace(left=left)
        if self.network.ivector_dim:
            nnet = nnet.copy()
            set_ivector_period(nnet, self.chunk_frames)
        requests = looped_requests(
            nnet, self.chunk_frames, self.factor, self.chunk_frames, self.context
        )
        self.computation = compile_looped(nnet, options.optimization, requests)
        self._new_computer = partial(
            NnetComputer, options.computation, self.computation, nnet, like=like
        )
        self._computer = self._new_computer()
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._watch = FiniteWatch()
        self._like = like
        rows = self.chunk_frames // self.factor
        self._output = tensor.empty((rows, self.network.output_dim), like=like)
        self._complete: list[tuple[str, np.ndarray]] = []

    def another(self) -> LoopedComputer:
        """A new computer for another stream; it shares the program but not the state."""
        other = copy(self)
        other._computer = self._new_computer()
        other._output = tensor.empty(self._output.shape, like=self._like)
        other._watch, other._complete = FiniteWatch(), []
        return other

    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """The output (rows, dim) of an utterance (>= 1 frame); DataError if inputs do not fit."""
        if len(features) == 0:
            raise DataError("an utterance without frames")
        parts: list[np.ndarray] = []
        for rows in self._chunks(features, ivectors):
            parts.append(rows)
            again = partial(self._run_chunks, len(parts), features, ivectors)
            output = self._computer.get_output("output")
            self._watch.look("'output'", output, self._computer, again)
        return np.concatenate(parts)

    def accept(
        self, key: str, features: np.ndarray, ivectors: Ivectors | None = None, held_bytes: int = 0
    ) -> None:
        """Compute utterance `key`, whose output `ready` then yields; `held_bytes` is ignored."""
        self._complete.append((key, self.compute(features, ivectors)))

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (key, output) of the utterances accepted since the last call."""
        while self._complete:
            yield self._complete.pop(0)

    def finish(self) -> None:
        """Do nothing (UtteranceComputer's interface); `accept` computes complete utterances."""

    def close(self) -> None:
        """Do nothing, because there is nothing to log (UtteranceComputer's interface)."""

    def warm_up(self) -> None:
        """Compute silence, to compile kernels and record steps before the first stream."""
        frames = self.context.left + self.context.right + _CHUNKS_TO_WARM_UP * self.chunk_frames
        silence = np.zeros((frames, self.network.input_dim), np.float32)
        for _ in range(_STREAMS_TO_WARM_UP):
            self._run_chunks(None, silence)

    def _chunks(
        self, features: np.ndarray, ivectors: Ivectors | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the output rows of each chunk of an utterance."""
        stream = LoopedStream(self, ivectors)
        yield from stream.chunks(features)
        yield from stream.last_chunks()

    def begin(self) -> None:
        """Reset the program's state for a new stream."""
        self._computer.reset()

    def next_chunk(
        self, buffer: np.ndarray, num_given: int, ivectors: Ivectors | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute a chunk; returns (frames of `buffer` after it, the chunk's output rows).

        `buffer` (frames, dim) begins with the chunk; `num_given` output rows have come before.
        """
        size = self.chunk_frames + (0 if num_given else self.context.left + self.context.right)
        computer = self._computer
        device_rows = tensor.asarray(np.ascontiguousarray(buffer[:size]), like=self._like)
        fill_rows(computer.input_buffer("input"), device_rows, slice(0, size))
        if ivectors is not None and "ivector" in computer.expected_inputs():
            num_rows = computer.input_buffer("ivector").shape[0]
            end = num_given * self.factor + self.chunk_frames + self.context.right
            computer.accept_input("ivector", _newest_ivector(ivectors, end, num_rows))
        computer.run()
        # A copy: the program's output may also be part of its state.
        tensor.copy(self._output, computer.get_output("output"))
        self._scaling.apply(self._output)
        return buffer[size:], tensor.to_host(self._output).copy()

    def _run_chunks(
        self, count: int | None, features: np.ndarray, ivectors: Ivectors | None = None
    ) -> None:
        """Compute the first `count` chunks of an utterance (None: all), discarding outputs."""
        for _ in islice(self._chunks(features, ivectors), count):
            pass


class LoopedStream:
    """A stream of features through a LoopedComputer, which computes one stream at a time.

    Missing context before the stream repeats its first frame; after its end, the last frame.
    """

    def __init__(self, computer: LoopedComputer, ivectors: Ivectors | None = None) -> None:
        self._computer, self._ivectors = computer, ivectors
        self._restart()

    def _restart(self) -> None:
        self._computer.begin()
        self._buffer = self._last = np.empty((0, self._computer.network.input_dim), np.float32)
        self._num_frames = self._num_given = 0

    def accept(self, features: np.ndarray) -> np.ndarray:
        """Add features (frames, dim) to the stream; returns the output rows that they complete."""
        return self._joined(self.chunks(features))

    def finish(self) -> np.ndarray:
        """End the stream; returns its remaining output rows. The next frame begins a new stream."""
        rows = self._joined(self.last_chunks())
        self._restart()
        return rows

    def _joined(self, chunks: Iterator[np.ndarray]) -> np.ndarray:
        none = np.empty((0, self._computer.network.output_dim), np.float32)
        rows = np.concatenate([none, *chunks])
        check_finite("outputs", rows)
        return rows

    def chunks(self, piece: np.ndarray) -> Iterator[np.ndarray]:
        """Add the frames `piece` to the stream; yield the outputs of each chunk now complete."""
        computer, context = self._computer, self._computer.context
        if not len(piece):
            return
        computer.network.check_inputs(piece, self._ivectors)
        if self._num_frames == 0:
            self._buffer = np.repeat(piece[:1], context.left, axis=0)
        self._num_frames += len(piece)
        self._buffer = np.concatenate([self._buffer, piece])
        self._last = piece[-1:]
        while (
            self._num_given * computer.factor + computer.chunk_frames + context.right
            <= self._num_frames
        ):
            yield self._next_chunk(self._buffer)

    def last_chunks(self) -> Iterator[np.ndarray]:
        """End the stream; yield the output rows of its remaining chunks."""
        computer, context = self._computer, self._computer.context
        num_outputs = -(-self._num_frames // computer.factor)
        while self._num_given < num_outputs:
            size = context.left + context.right + computer.chunk_frames
            padding = np.repeat(self._last, size, axis=0)
            missing = num_outputs - self._num_given
            yield self._next_chunk(np.concatenate([self._buffer, padding]))[:missing]

    def _next_chunk(self, buffer: np.ndarray) -> np.ndarray:
        self._buffer, rows = self._computer.next_chunk(buffer, self._num_given, self._ivectors)
        self._num_given += len(rows)
        return rows


def _newest_ivector(ivectors: Ivectors, frame: int, num_rows: int) -> np.ndarray:
    """The newest i-vector available before frame `frame`, repeated to shape (num_rows, dim)."""
    row = 0 if ivectors.period <= 0 else min(frame // ivectors.period, len(ivectors.rows) - 1)
    return np.repeat(ivectors.rows[row : row + 1], num_rows, axis=0)

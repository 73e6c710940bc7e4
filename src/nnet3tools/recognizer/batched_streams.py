"""Network outputs of many live streams; chunks of several streams are computed as one minibatch.

This needs a network whose outputs depend on a fixed window of frames (`is_local_in_time`): each
chunk, with its context, is then one sequence of a request, and no state is kept.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import MAX_STREAM_FRAMES, check_num_frames
from nnet3tools.executor.chunk_programs import ChunkPrograms
from nnet3tools.executor.chunks import ChunkShape
from nnet3tools.executor.simple_network import OutputScaling, SimpleNetwork
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.nnet import Nnet

_MINIBATCH_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
"""Chunks in a minibatch. There is a program for each size; unused sequences are zero."""
_RUNS_TO_WARM_UP = 3
"""Runs until a program has run, was recorded, and was replayed."""


@dataclass(eq=False)
class _Work:
    """Chunks (chunks, frames with context, dim) of one stream, and outputs (chunks, rows, dim)."""

    chunks: np.ndarray
    outputs: np.ndarray | None = None


class BatchedNetwork:
    """Computes chunks of streams for several threads, in minibatches of all chunks that wait.

    Of the options, the subsampling factor, frames per chunk, acoustic scale and the options of
    optimization and computation apply.
    """

    def __init__(
        self, nnet: Nnet, options: SimpleComputationOptions, priors: np.ndarray | None = None
    ) -> None:
        """Take `nnet`, in test mode, whose outputs read a fixed window; `priors` divide them."""
        from nnet3tools.optimizer.compile_looped import chunk_size_for  # imports the compiler

        options.check()
        check_num_frames("frames-per-chunk", options.frames_per_chunk, MAX_STREAM_FRAMES)
        self.network = SimpleNetwork(nnet)
        self.factor = options.frame_subsampling_factor
        self.chunk_frames = chunk_size_for(nnet, self.factor, options.frames_per_chunk)
        self.left_context, right, _ = self.network.context
        rows = self.chunk_frames // self.factor
        span = (rows - 1) * self.factor
        self.shape = ChunkShape(
            -self.left_context, self.left_context + span + 1 + right, rows, self.factor
        )
        self._programs = ChunkPrograms(nnet, options)
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, None)
        self._waiting: deque[_Work] = deque()
        self._lock = threading.Lock()
        """Held by the thread that computes."""
        self.num_minibatches = self.num_chunks = 0

    def compute(self, chunks: np.ndarray) -> np.ndarray:
        """The network outputs (chunks, rows, dim) of `chunks` (chunks, frames with context, dim).

        The first thread that gets the lock also computes the chunks of all threads that wait for
        the lock. NotFiniteError if an output of these chunks is not finite.
        """
        work = _Work(chunks)
        self._waiting.append(work)
        with self._lock:
            if work.outputs is None:
                self._compute_waiting()
        assert work.outputs is not None
        check_finite("outputs", work.outputs.reshape(-1, self.network.output_dim))
        return work.outputs

    def warm_up(self) -> None:
        """Compute silence in all minibatch sizes, so that compiling delays no stream later."""
        for size in _MINIBATCH_SIZES:
            silence = np.zeros((size, self.shape.num_inputs, self.network.input_dim), np.float32)
            for _ in range(_RUNS_TO_WARM_UP):
                with self._lock:
                    self._run(silence)

    def _compute_waiting(self) -> None:
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        chunks = np.concatenate([work.chunks for work in taken])
        largest = _MINIBATCH_SIZES[-1]
        parts = [self._run(chunks[i : i + largest]) for i in range(0, len(chunks), largest)]
        ends = np.cumsum([len(work.chunks) for work in taken])[:-1]
        for work, outputs in zip(taken, np.split(np.concatenate(parts), ends), strict=True):
            work.outputs = outputs

    def _run(self, chunks: np.ndarray) -> np.ndarray:
        """The outputs (chunks, rows, dim) of feature `chunks` that fit in one minibatch."""
        count = len(chunks)
        size = next(size for size in _MINIBATCH_SIZES if size >= count)
        computer = self._programs.computer(self.shape._replace(num_sequences=size))
        buffer = computer.input_buffer("input")
        used = count * self.shape.num_inputs
        tensor.copy(buffer[:used], chunks.reshape(used, -1))
        buffer[used:] = 0.0
        computer.run()
        output = computer.get_output("output")
        self._scaling.apply(output)
        self.num_minibatches += 1
        self.num_chunks += count
        return tensor.to_host(output).reshape(size, self.shape.num_outputs, -1)[:count].copy()


class BatchedStream:
    """Computes the network outputs of one stream of features. One thread at a time may use it.

    The first frame is repeated as left context, and the last one as right context.
    """

    def __init__(self, network: BatchedNetwork) -> None:
        self._network = network
        self._restart()

    def _restart(self) -> None:
        self._frames = np.empty((0, self._network.network.input_dim), np.float32)
        """The frames that further chunks read."""
        self._num_frames = self._num_outputs = 0

    def accept(self, features: np.ndarray) -> np.ndarray:
        """Take features (frames, dim); return the output rows whose window is now complete."""
        self._network.network.check_inputs(features, None)
        if self._num_frames == 0:
            self._frames = np.repeat(features[:1], self._network.left_context, axis=0)
        self._num_frames += len(features)
        self._frames = np.concatenate([self._frames, features])
        complete = len(self._frames) - self._network.shape.num_inputs
        return self._next_outputs(max(0, complete // self._network.chunk_frames + 1))

    def finish(self) -> np.ndarray:
        """The output rows (rows, dim) of the remaining frames; then a new stream may begin."""
        missing = -(-self._num_frames // self._network.factor) - self._num_outputs
        shape = self._network.shape
        num_chunks = -(-missing // shape.num_outputs)
        needed = (num_chunks - 1) * self._network.chunk_frames + shape.num_inputs
        padding = np.repeat(self._frames[-1:], max(0, needed - len(self._frames)), axis=0)
        self._frames = np.concatenate([self._frames, padding])
        rows = self._next_outputs(num_chunks)[:missing]
        self._restart()
        return rows

    def _next_outputs(self, num_chunks: int) -> np.ndarray:
        """The output rows of the next `num_chunks` chunks, whose input frames must have arrived."""
        if num_chunks == 0:
            return np.empty((0, self._network.network.output_dim), np.float32)
        step, size = self._network.chunk_frames, self._network.shape.num_inputs
        begins = range(0, num_chunks * step, step)
        chunks = np.stack([self._frames[begin : begin + size] for begin in begins])
        self._frames = self._frames[num_chunks * step :]
        rows = np.concatenate(list(self._network.compute(chunks)))
        self._num_outputs += len(rows)
        return rows

"""Vectors of utterances, computed in batches of chunks (nnet3-xvector-compute-batched.cc)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nnet3tools import tensor
from nnet3tools.errors import DataError, OptionError
from nnet3tools.executor.chunk_computers import ChunkComputers
from nnet3tools.executor.chunks import ChunkShape
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.graph.context import compute_simple_nnet_context
from nnet3tools.io import log
from nnet3tools.io.general_matrix import check_finite
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

__all__ = ["BatchedXvectorComputer", "chunk_starts"]


def chunk_starts(
    num_frames: int, chunk_size: int, context: int, pad: bool = True
) -> NDArray[np.int32]:
    """First frames of the chunks of an utterance; without `pad` a short one has none.

    Chunks see `chunk_size` frames, of which `context` only serve the others. The number of chunks,
    with gaps between them or with overlaps, is the one whose mean has the smaller variance if
    frames are independent: of M frames seen once and N seen twice (M + 4 N) / (M + 2 N)^2.
    """
    if num_frames <= chunk_size:
        return np.zeros(1 if pad or num_frames == chunk_size else 0, np.int32)
    length, size = num_frames - context, chunk_size - context
    few = length // size
    twice = (few + 1) * size - length
    once = length - twice
    with_gaps, with_overlaps = 1.0 / (few * size), (once + 4.0 * twice) / (once + 2.0 * twice) ** 2
    if np.float32(with_gaps) <= np.float32(with_overlaps):
        gaps = _pieces(length - few * size, few + 1)
        return np.arange(few, dtype=np.int32) * size + np.cumsum(gaps)[:-1]
    overlaps = _pieces((few + 1) * size - length, few)
    return np.arange(few + 1, dtype=np.int32) * size - np.cumsum([0, *overlaps], dtype=np.int32)


def _pieces(total: int, count: int) -> NDArray[np.int32]:
    """`count` integers with this sum, the smaller ones first, none differing by more than 1."""
    small, rest = divmod(total, count)
    return np.repeat(np.array([small, small + 1], np.int32), [count - rest, rest])


@dataclass
class _Task:
    """An utterance, how many of its chunks are not computed yet, and the sum of the others."""

    key: str
    num_chunks: int
    missing: int
    total: NDArray[np.float32]


class BatchedXvectorComputer:
    """Takes utterances, gives vectors in the same order, a few batches later."""

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        chunk_size: int,
        batch_size: int,
        pad: bool = True,
        *,
        like: Array | None = None,
    ) -> None:
        """`like` is any array of the device to run on; errors for an unsuitable network or size."""
        if not nnet.is_simple() or nnet.input_dim("ivector") > 0:
            raise DataError("the network must have one input 'input' and an output 'output'")
        found = compute_simple_nnet_context(nnet)
        log.log(f"Left/right context is {found.left}, {found.right}")
        self._context = found.left + found.right
        if chunk_size <= self._context:
            raise OptionError(
                f"--chunk-size={chunk_size} must be larger than the network's context, "
                f"{self._context} frames"
            )
        self._chunk_size, self._pad = chunk_size, pad
        self._shape = ChunkShape(0, chunk_size, 1, 1, num_sequences=batch_size)
        self._computers = ChunkComputers(nnet, options, like)
        self._watch = FiniteWatch()
        dim = nnet.input_dim("input")
        self._like, self._output_dim = like, nnet.output_dim("output")
        self._inputs = np.zeros((batch_size, chunk_size, dim), np.float32)
        self._batch: list[_Task] = []
        self._tasks: deque[_Task] = deque()

    def accept(self, key: str, features: NDArray[np.float32]) -> None:
        """Take an utterance; full batches are computed. DataError if it does not fit."""
        dim = self._inputs.shape[2]
        if features.shape[1] != dim:
            raise DataError(
                f"Feature dimension mismatch: neural net expected {dim}, got {features.shape[1]}"
            )
        check_finite("features", features)
        starts = chunk_starts(len(features), self._chunk_size, self._context, self._pad)
        if not len(starts):
            log.warning(
                f"{key}: its {len(features)} frames are fewer than the chunk size and "
                "--pad-input=false: its vector is zero"
            )
        task = _Task(key, len(starts), len(starts), np.zeros(self._output_dim, np.float32))
        self._tasks.append(task)
        for start in starts.tolist():
            rows = np.arange(start, start + self._chunk_size).clip(max=len(features) - 1)
            self._inputs[len(self._batch)] = features[rows]
            self._batch.append(task)
            if len(self._batch) == len(self._inputs):
                self.flush()

    def flush(self) -> None:
        """Compute the chunks that wait for others."""
        if not self._batch:
            return
        computer = self._computers.computer(self._shape)
        self._run(computer)
        output = computer.get_output("output")
        self._watch.look("'output'", output, computer, lambda: self._run(computer))
        outputs = tensor.to_host(output)
        for task, output in zip(self._batch, outputs, strict=False):
            task.total += np.float32(1.0 / task.num_chunks) * output
            task.missing -= 1
        self._batch.clear()

    def _run(self, computer: NnetComputer) -> None:
        computer.reset()
        rows = self._inputs.reshape(-1, self._inputs.shape[2])
        tensor.copy(computer.input_buffer("input"), tensor.asarray(rows, like=self._like))
        computer.run()

    def ready(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Keys and vectors of utterances that are done, and not given before."""
        while self._tasks and self._tasks[0].missing == 0:
            task = self._tasks.popleft()
            yield task.key, task.total

    def close(self) -> None:
        """Log times, if asked for."""
        self._computers.close()

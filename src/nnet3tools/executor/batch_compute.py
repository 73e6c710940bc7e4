"""Outputs for many utterances, their chunks computed together (Kaldi's NnetBatchComputer)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.chunk_computers import ChunkComputers, fill_rows
from nnet3tools.executor.chunks import (
    Chunk,
    ChunkShape,
    chunks_for_batches,
    chunks_of_utterance,
    input_rows,
    lengthened,
)
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.decodable_simple import Ivectors, OutputScaling, SimpleNetwork
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.graph.context import NnetContext
from nnet3tools.nnet.components.base import Array
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler

__all__ = ["CHUNKS_TOGETHER", "BatchComputer", "ChunkPlan", "ExactChunks", "PaddedChunks"]

_MAX_WAITING = 8
"""Minibatches' worth of utterances that may wait for company before they are computed anyway."""
_MAX_WAITING_BYTES = 64 * 2**20
"""And of memory for their features and outputs, and for what callers keep with them."""
CHUNKS_TOGETHER = 64
"""Chunks of one shape that nnet3-compute takes together: an LSTM's products of 3 frames, its delay,
have 192 rows then."""


@dataclass
class _Utterance:
    key: str
    features: Array
    output: Array
    num_to_do: int
    held_bytes: int

    @property
    def num_bytes(self) -> int:
        return int(self.features.nbytes + self.output.nbytes) + self.held_bytes


@dataclass
class _Task:
    utterance: _Utterance
    chunk: Chunk
    ivector: np.ndarray | None


class ChunkPlan(Protocol):
    """How utterances are cut into chunks, and how many of these are computed together."""

    max_waiting: int
    """Utterances that may wait for company before they are computed anyway."""

    def chunks(self, num_frames: int, has_ivector: bool) -> list[Chunk]:
        """The chunks of an utterance."""

    def full_size(self, chunk: Chunk) -> int:
        """Chunks of a full minibatch of this one's shape."""


class PaddedChunks:
    """As nnet3-compute-batch has them: all of one length as far as possible."""

    def __init__(self, options: BatchComputationOptions, context: NnetContext) -> None:
        self._options, self._context = options, context
        self._outputs = options.outputs_per_chunk(context.modulus)
        self.max_waiting = _MAX_WAITING * options.minibatch_size

    def chunks(self, num_frames: int, has_ivector: bool) -> list[Chunk]:
        return chunks_for_batches(
            num_frames, self._outputs, self._context, self._options, has_ivector
        )

    def full_size(self, chunk: Chunk) -> int:
        if chunk.shape.num_outputs < self._outputs:
            return 1
        return self._options.edge_minibatch_size if chunk.is_edge else self._options.minibatch_size


class ExactChunks:
    """As nnet3-compute has them, the last of an utterance shorter than the others.

    Where nothing that an output uses lies later than its right context (graph/time_reach.py), the
    last is computed as the others are, with outputs that nobody uses at its end.
    """

    def __init__(
        self,
        options: SimpleComputationOptions,
        context: NnetContext,
        may_lengthen: bool,
        together: int = CHUNKS_TOGETHER,
    ) -> None:
        self._together = together
        self._options, self._context = options, context
        self._outputs = options.outputs_per_chunk(context.modulus)
        self._may_lengthen = may_lengthen
        self.max_waiting = _MAX_WAITING * together

    def chunks(self, num_frames: int, has_ivector: bool) -> list[Chunk]:
        chunks = chunks_of_utterance(
            num_frames, self._outputs, self._context, self._options, has_ivector
        )
        if self._may_lengthen:
            chunks[-1] = lengthened(chunks[-1], self._outputs, len(chunks) > 1)
        return chunks

    def full_size(self, chunk: Chunk) -> int:
        return 1 if chunk.shape.num_outputs < self._outputs else self._together


class BatchComputer:
    """Takes utterances, gives their outputs in the same order when they are complete.

    computer.accept(key, features); for key, output in computer.ready(): ...
    computer.finish(); for key, output in computer.ready(): ...
    """

    def __init__(
        self,
        network: SimpleNetwork,
        options: SimpleComputationOptions,
        plan: ChunkPlan,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
        partial_factor: float = 0.5,
    ) -> None:
        """As UtteranceComputer.

        Minibatches that are not full have `partial_factor` ** n times their size.
        """
        options.check()
        self.network, self._plan = network, plan
        self._partial_factor = partial_factor
        self._computers = ChunkComputers(network.nnet, options, like)
        self._watch = FiniteWatch()
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._like = like
        self._tasks: OrderedDict[ChunkShape, deque[_Task]] = OrderedDict()
        self._waiting: deque[_Utterance] = deque()
        self._num_bytes = 0
        """Of what waits."""
        self.num_tasks = self.num_minibatches = 0

    @property
    def compiler(self) -> CachingOptimizingCompiler:
        """Whose cache holds the programs."""
        return self._computers.compiler

    def accept(
        self,
        key: str,
        features: np.ndarray,
        ivectors: Ivectors | None = None,
        held_bytes: int = 0,
    ) -> None:
        """Take features of at least one frame; whatever minibatches they fill are computed.

        `held_bytes` is the memory of what the caller keeps for this utterance until it is ready.
        DataError for inputs that do not fit.
        """
        self.network.check_inputs(features, ivectors)
        chunks = self._plan.chunks(len(features), ivectors is not None)
        num_outputs = chunks[-1].first_output + chunks[-1].num_used
        output = tensor.empty((num_outputs, self.network.output_dim), like=self._like)
        device_features = tensor.asarray(features, like=self._like)
        tasks = [None if ivectors is None else ivectors.of_chunk(chunk) for chunk in chunks]
        utterance = _Utterance(key, device_features, output, len(chunks), held_bytes)
        self._waiting.append(utterance)
        for chunk, ivector in zip(chunks, tasks, strict=True):
            queue = self._tasks.setdefault(chunk.shape, deque())
            queue.append(_Task(utterance, chunk, ivector))
            if len(queue) >= self._plan.full_size(chunk):
                self._compute(chunk.shape)
        self._num_bytes += utterance.num_bytes
        if len(self._waiting) > self._plan.max_waiting or self._num_bytes > _MAX_WAITING_BYTES:
            self._complete(self._waiting[0])

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """(key, output) of the utterances that are complete; those before them are, too."""
        while self._waiting and self._waiting[0].num_to_do == 0:
            utterance = self._waiting.popleft()
            self._num_bytes -= utterance.num_bytes
            yield utterance.key, tensor.to_host(utterance.output)

    def finish(self) -> None:
        """Compute all that waits."""
        for shape, queue in self._tasks.items():
            while queue:
                self._compute(shape)

    def close(self) -> None:
        """Log times, if asked for."""
        self._computers.close()

    def _complete(self, utterance: _Utterance) -> None:
        for shape, queue in self._tasks.items():
            if any(task.utterance is utterance for task in queue):
                self._compute(shape)

    def _compute(self, shape: ChunkShape) -> None:
        """Compute the oldest chunks of a shape, in the smallest minibatch size that serves."""
        queue = self._tasks[shape]
        size = self._plan.full_size(queue[0].chunk)
        factor = self._partial_factor
        while len(queue) < int(factor * size):
            size = int(factor * size)
        tasks = [queue.popleft() for _ in range(min(size, len(queue)))]
        computer = self._computers.computer(shape._replace(num_sequences=size))
        self._run(computer, tasks, shape, size)
        output = computer.get_output("output")
        again = partial(self._run, computer, tasks, shape, size)
        self._watch.look("'output'", output, computer, again)
        self._give_out(tasks, output)
        self.num_tasks += len(tasks)
        self.num_minibatches += 1

    def _run(
        self, computer: NnetComputer, tasks: list[_Task], shape: ChunkShape, size: int
    ) -> None:
        """Run chunks, and nothing instead of those that are missing up to `size`."""
        computer.reset()
        inputs = computer.input_buffer("input")
        by_task = inputs.reshape(size, shape.num_inputs, inputs.shape[1])
        ivectors = computer.input_buffer("ivector") if shape.has_ivector else None
        for n, task in enumerate(tasks):
            features = task.utterance.features
            fill_rows(by_task[n], features, input_rows(task.chunk, len(features)))
            if ivectors is not None:
                assert task.ivector is not None
                tensor.copy(ivectors[n : n + 1], tensor.asarray(task.ivector, like=ivectors))
        if len(tasks) < size:  # what is left over must not overflow, though nobody looks at it
            tensor.fill(inputs[len(tasks) * shape.num_inputs :], 0.0)
            if ivectors is not None:
                tensor.fill(ivectors[len(tasks) :], 0.0)
        computer.run()

    def _give_out(self, tasks: list[_Task], output: Array) -> None:
        self._scaling.apply(output)
        for n, task in enumerate(tasks):
            chunk = task.chunk
            first = n * chunk.shape.num_outputs + chunk.num_unused
            dest = slice(chunk.first_output, chunk.first_output + chunk.num_used)
            tensor.copy(task.utterance.output[dest], output[first : first + chunk.num_used])
            task.utterance.num_to_do -= 1

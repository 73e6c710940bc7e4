"""Outputs for many utterances, their chunks computed together (Kaldi's NnetBatchComputer)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.chunk_computers import ChunkComputers, fill_rows
from nnet3tools.executor.chunks import Chunk, ChunkShape, chunks_for_batches, input_rows
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.decodable_simple import Ivectors, OutputScaling, SimpleNetwork
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import BatchComputationOptions
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet

__all__ = ["BatchComputer"]

_MAX_WAITING = 8
"""Minibatches' worth of utterances that may wait for company before they are computed anyway."""


@dataclass
class _Utterance:
    key: str
    features: Array
    output: Array
    num_to_do: int


@dataclass
class _Task:
    utterance: _Utterance
    chunk: Chunk
    ivector: np.ndarray | None


class BatchComputer:
    """Takes utterances, gives their outputs in the same order when they are complete.

    computer.accept(key, features); for key, output in computer.ready(): ...
    computer.finish(); for key, output in computer.ready(): ...
    """

    def __init__(
        self,
        nnet: Nnet,
        options: BatchComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
    ) -> None:
        """As UtteranceComputer."""
        self.options = options
        options.check()
        self.network = SimpleNetwork(nnet)
        self._outputs_per_chunk = options.outputs_per_chunk(self.network.context.modulus)
        self._computers = ChunkComputers(nnet, options, like)
        self._watch = FiniteWatch()
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._like = like
        self._tasks: OrderedDict[ChunkShape, deque[_Task]] = OrderedDict()
        self._waiting: deque[_Utterance] = deque()
        self._num_tasks = self._num_minibatches = 0

    def accept(self, key: str, features: np.ndarray, ivectors: Ivectors | None = None) -> None:
        """Take features of at least one frame; whatever minibatches they fill are computed.

        DataError for inputs that do not fit.
        """
        self.network.check_inputs(features, ivectors)
        context, has_ivector = self.network.context, ivectors is not None
        chunks = chunks_for_batches(
            len(features), self._outputs_per_chunk, context, self.options, has_ivector
        )
        num_outputs = chunks[-1].first_output + chunks[-1].num_used
        output = tensor.empty((num_outputs, self.network.output_dim), like=self._like)
        device_features = tensor.asarray(features, like=self._like)
        tasks = [None if ivectors is None else ivectors.of_chunk(chunk) for chunk in chunks]
        utterance = _Utterance(key, device_features, output, len(chunks))
        self._waiting.append(utterance)
        for chunk, ivector in zip(chunks, tasks, strict=True):
            queue = self._tasks.setdefault(chunk.shape, deque())
            queue.append(_Task(utterance, chunk, ivector))
            if len(queue) >= self._full_size(chunk):
                self._compute(chunk.shape)
        if len(self._waiting) > _MAX_WAITING * self.options.minibatch_size:
            self._complete(self._waiting[0])

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """(key, output) of the utterances that are complete; those before them are, too."""
        while self._waiting and self._waiting[0].num_to_do == 0:
            utterance = self._waiting.popleft()
            yield utterance.key, tensor.to_host(utterance.output)

    def finish(self) -> None:
        """Compute all that waits."""
        for shape, queue in self._tasks.items():
            while queue:
                self._compute(shape)
        log.log(f"Did {self._num_tasks} tasks in {self._num_minibatches} minibatches")
        self._computers.close()

    def _complete(self, utterance: _Utterance) -> None:
        for shape, queue in self._tasks.items():
            if any(task.utterance is utterance for task in queue):
                self._compute(shape)

    def _full_size(self, chunk: Chunk) -> int:
        """Chunks of a full minibatch of this one's shape."""
        if chunk.shape.num_outputs < self._outputs_per_chunk:
            return 1
        return self.options.edge_minibatch_size if chunk.is_edge else self.options.minibatch_size

    def _compute(self, shape: ChunkShape) -> None:
        """Compute the oldest chunks of a shape, in the smallest minibatch size that serves."""
        queue = self._tasks[shape]
        size = self._full_size(queue[0].chunk)
        factor = self.options.partial_minibatch_factor
        while len(queue) < int(factor * size):
            size = int(factor * size)
        tasks = [queue.popleft() for _ in range(min(size, len(queue)))]
        computer = self._computers.computer(shape._replace(num_sequences=size))
        self._run(computer, tasks, shape, size)
        output = computer.get_output("output")
        again = partial(self._run, computer, tasks, shape, size)
        self._watch.look("'output'", output, computer, again)
        self._give_out(tasks, output)
        self._num_tasks += len(tasks)
        self._num_minibatches += 1

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

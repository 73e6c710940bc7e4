"""Outputs for whole utterances, chunk by chunk or with chunks of many computed together."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError
from nnet3tools.executor.blocks import ON_CPU, ON_GPU, Blocks
from nnet3tools.executor.chunk_programs import ChunkPrograms, fill_rows
from nnet3tools.executor.chunks import Ivectors
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.minibatches import (
    CHUNKS_TOGETHER,
    ChunkPlan,
    ExactChunks,
    Minibatch,
    PaddedChunks,
    Part,
    Utterance,
)
from nnet3tools.executor.simple_network import OutputScaling, SimpleNetwork
from nnet3tools.executor.simple_options import BatchComputationOptions, SimpleComputationOptions
from nnet3tools.fast_dataclasses import replace
from nnet3tools.graph.context import is_local_in_time, looks_ahead_within
from nnet3tools.io import log
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler
from nnet3tools.tensor.registry import on_host

_MAX_WAITING_BYTES = 64 * 2**20
"""If incomplete utterances take more memory than this, the oldest is completed."""


class UtteranceComputer:
    """Takes utterances, and gives their outputs in the same order when they are complete.

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
    ) -> None:
        """Store a network prepared for test and a plan that cuts utterances into minibatches.

        `like` is any array of the device. `options.acoustic_scale` and `priors` scale the outputs.
        """
        self.network, self._plan, self._like = network, plan, like
        self._on_gpu = not on_host(like)
        self._programs = ChunkPrograms(network.nnet, options, like)
        self._watch = FiniteWatch()
        self._scaling = OutputScaling(priors, options.acoustic_scale, network.output_dim, like)
        self._waiting: deque[Utterance] = deque()
        self._num_bytes = 0
        """Memory of the utterances in `_waiting`."""
        self._num_parts = self._num_minibatches = 0

    @property
    def compiler(self) -> CachingOptimizingCompiler:
        """The compiler, whose cache holds the compiled programs."""
        return self._programs.compiler

    def accept(
        self, key: str, features: np.ndarray, ivectors: Ivectors | None = None, held_bytes: int = 0
    ) -> None:
        """Add an utterance of at least one frame, and compute the minibatches that become full.

        `held_bytes` is the memory that the caller keeps for this utterance until its output is
        ready. DataError for inputs that do not fit the network.
        """
        self.network.check_inputs(features, ivectors)
        make = tensor.zeros if self._plan.averages else tensor.empty
        shape = self._plan.num_outputs(len(features)), self.network.output_dim
        utterance = Utterance(key, np.asarray(features), ivectors, make(shape), held_bytes)
        self._compute(self._plan.add(utterance))
        self._waiting.append(utterance)
        self._num_bytes += utterance.num_bytes
        is_full = len(self._waiting) > self._plan.max_waiting
        if is_full or self._num_bytes > _MAX_WAITING_BYTES:
            self._compute(self._plan.complete(self._waiting[0]))

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (key, output) of complete utterances in the order of `accept`, each only once.

        An incomplete utterance holds back all later ones.
        """
        while self._waiting and self._waiting[0].num_missing == 0:
            utterance = self._waiting.popleft()
            self._num_bytes -= utterance.num_bytes
            if utterance.scale != 1.0:
                tensor.scale(utterance.output, utterance.scale)
            yield utterance.key, utterance.output

    def finish(self) -> None:
        """Compute all waiting utterances, so that `ready` can yield their outputs."""
        self._compute(self._plan.rest())

    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """The output, shape (rows, dim), of one utterance; no other utterance may be waiting."""
        self.accept("", features, ivectors)
        self.finish()
        ((_, output),) = self.ready()
        return output

    def close(self, log_batches: bool = False) -> None:
        """Log times if the options ask for them; with `log_batches`, the number of minibatches."""
        if log_batches:
            log.log(f"Did {self._num_parts} tasks in {self._num_minibatches} minibatches")
        self._programs.close()

    def _compute(self, minibatches: Iterable[Minibatch]) -> None:
        for minibatch in minibatches:
            computer = self._programs.computer(minibatch.shape)
            run = partial(_run, computer, minibatch)
            run()
            output = computer.get_output("output")
            if self._on_gpu:
                self._scaling.apply(output)
                output = tensor.to_host(output)  # the host waits for the GPU only here
            parts = minibatch.parts
            outputs = [output[p.first_output : p.first_output + p.num_outputs] for p in parts]
            for checked in outputs if minibatch.check_parts_only else [output]:
                self._watch.look("'output'", checked, computer, run)
            if not self._on_gpu:
                self._scaling.apply(output)
            for part, found in zip(parts, outputs, strict=True):
                dest = part.utterance.output[part.dest : part.dest + part.num_outputs]
                if part.weight is None:
                    tensor.copy(dest, found)
                else:
                    tensor.add(dest, found, part.weight)
                part.utterance.num_missing -= part.num_outputs
            self._num_parts += len(parts)
            self._num_minibatches += 1


def _run(computer: NnetComputer, minibatch: Minibatch) -> None:
    """Copy a minibatch's input rows to a program, and run it; its outputs stay in `computer`.

    A GPU's inputs are collected on the host first, because each copy to a GPU takes a while.
    """
    computer.reset()
    names = ["input", "ivector"][: 1 + minibatch.shape.has_ivector]
    buffers = [computer.input_buffer(name) for name in names]
    host_buffers = [b if on_host(b) else np.empty(b.shape, b.dtype) for b in buffers]
    _fill(host_buffers[0], host_buffers[1] if host_buffers[1:] else None, minibatch.parts)
    for buffer, filled in zip(buffers, host_buffers, strict=True):
        if filled is not buffer:
            tensor.copy(buffer, tensor.asarray(filled, like=buffer))
    computer.run()


def _fill(inputs: np.ndarray, ivectors: np.ndarray | None, parts: list[Part]) -> None:
    """Copy the rows and i-vectors of `parts` to a program's inputs; set all other rows to zero."""
    filled = 0
    for n, part in enumerate(parts):
        if part.first_input > filled:
            tensor.fill(inputs[filled : part.first_input], 0.0)
        filled = part.input_end
        fill_rows(inputs[part.first_input : filled], part.utterance.features, part.rows)
        if ivectors is not None:
            tensor.copy(ivectors[n : n + 1], np.asarray(part.ivector))
    if filled < len(inputs):
        tensor.fill(inputs[filled:], 0.0)
    if ivectors is not None and len(parts) < len(ivectors):
        tensor.fill(ivectors[len(parts) :], 0.0)


def computer_one_by_one(
    nnet: Nnet,
    options: SimpleComputationOptions,
    priors: np.ndarray | None = None,
    *,
    like: Array | None = None,
) -> UtteranceComputer:
    """Make an UtteranceComputer that computes each accepted utterance at once, chunk by chunk."""
    options.check()
    network = SimpleNetwork(nnet)
    plan = ExactChunks(options, network.context, may_lengthen=False, together=1)
    return UtteranceComputer(network, options, plan, priors, like=like)


def computer_together(
    nnet: Nnet,
    options: SimpleComputationOptions,
    priors: np.ndarray | None = None,
    *,
    like: Array | None = None,
) -> UtteranceComputer:
    """Make the fastest UtteranceComputer, which computes utterances together where possible.

    | network | plan |
    |---|---|
    | outputs depend on a fixed window of frames | `Blocks` |
    | others, with BatchComputationOptions | `PaddedChunks` |
    | others, with rows that depend on each other (`couples_rows`) | `ExactChunks`, one at a time |
    | others | `ExactChunks` in minibatches |
    """
    options.check()
    network = SimpleNetwork(nnet)
    couples_rows = any(component.couples_rows for component in nnet.components)
    plan: ChunkPlan
    if not couples_rows and is_local_in_time(nnet):
        plan = Blocks(options, network.context, ON_CPU if on_host(like) else ON_GPU)
    elif isinstance(options, BatchComputationOptions):
        plan = PaddedChunks(options, network.context)
    elif couples_rows:
        plan = ExactChunks(options, network.context, may_lengthen=False, together=1)
    else:
        same_at_ends = options.extra_right_context_final in (-1, options.extra_right_context)
        may_lengthen = same_at_ends and looks_ahead_within(nnet, network.context)
        plan = ExactChunks(options, network.context, may_lengthen, CHUNKS_TOGETHER)
    return UtteranceComputer(network, options, plan, priors, like=like)


def xvector_computer(
    nnet: Nnet, options: SimpleComputationOptions, plan: ChunkPlan, *, like: Array | None = None
) -> UtteranceComputer:
    """Make a computer of x-vectors, which are outputs of shape (1, dim).

    `plan`, XvectorPieces or EvenChunks, cuts utterances into the pieces that are averaged.
    """
    network = SimpleNetwork(nnet)
    if network.ivector_dim > 0:
        raise DataError("the network must have one input 'input' and an output 'output'")
    unscaled = replace(options, acoustic_scale=1.0)
    return UtteranceComputer(network, unscaled, plan, like=like)

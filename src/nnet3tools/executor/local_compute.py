"""Outputs of networks that look at a fixed window of frames, for utterances one behind the other.

Where an output depends on nothing but its window, utterances, padded with the context at both ends,
can be one stream of frames, and one program computes it block by block, whatever their lengths:
nothing is computed twice but the context between two blocks, and one program serves all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from nnet3tools import tensor
from nnet3tools.executor.chunk_computers import ChunkComputers, fill_rows
from nnet3tools.executor.chunks import ChunkShape
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.decodable_simple import Ivectors, OutputScaling, SimpleNetwork
from nnet3tools.executor.finite_watch import FiniteWatch
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.nnet.components.base import Array
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.optimizer.cached_compiler import CachingOptimizingCompiler

__all__ = ["LocalComputer"]

_OUTPUTS_PER_BLOCK = 768
"""BLAS copies the parameters once a product, a tenth of its time at 384 rows, and the context
between blocks is computed twice: nnet3-compute-batch of benchmarks/ takes 1.12 s with blocks of
384 (tdnn; 0.92 tdnnf), 1.08 of 512 (0.88), 1.05 of 768 (0.83), 1.06 of 1152 (0.83)."""


@dataclass
class _Utterance:
    key: str
    features: Array
    output: Array
    first_frame: int
    """The time of its first frame, and output, in the stream."""
    num_given: int = 0
    """Outputs that are computed already."""

    @property
    def is_done(self) -> bool:
        return self.num_given == len(self.output)


class LocalComputer:
    """Takes utterances, gives their outputs in the same order, up to a block later.

    For networks that `graph.time_reach.is_local_in_time`, used as BatchComputer.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
    ) -> None:
        """As UtteranceComputer."""
        self.network = SimpleNetwork(nnet)
        options.outputs_per_chunk(self.network.context.modulus)  # for its checks and log line
        self._step = options.frame_subsampling_factor
        self._computers = ChunkComputers(nnet, options, like)
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._watch = FiniteWatch()
        self._like = like
        self._waiting: deque[_Utterance] = deque()
        self.num_tasks = self.num_minibatches = 0
        """Parts of utterances, and blocks, computed so far."""
        self._next_utterance = 0
        """Time of the first frame of the utterance to come."""
        self._block = 0
        """Time of the first output of the block to come."""
        self._short_block = _OUTPUTS_PER_BLOCK
        """Outputs of blocks that are not full, if all that waits fits in."""

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
        """Take features of at least one frame; whatever blocks they fill are computed.

        What waits is a block at most, whatever memory the caller keeps for an utterance.
        DataError for inputs that do not fit.
        """
        self.network.check_inputs(features, ivectors)
        num_outputs = -(-len(features) // self._step)
        output = tensor.empty((num_outputs, self.network.output_dim), like=self._like)
        device_features = tensor.asarray(features, like=self._like)
        self._waiting.append(_Utterance(key, device_features, output, self._next_utterance))
        context = self.network.context
        padding = -(-(context.left + context.right) // self._step)
        self._next_utterance += (num_outputs + padding) * self._step
        while self._block + _OUTPUTS_PER_BLOCK * self._step <= self._next_utterance:
            self._compute(_OUTPUTS_PER_BLOCK)

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """(key, output) of the utterances that are complete; those before them are, too."""
        while self._waiting and self._waiting[0].is_done:
            utterance = self._waiting.popleft()
            yield utterance.key, tensor.to_host(utterance.output)

    def finish(self) -> None:
        """Compute all that waits; more may come."""
        while self._waiting and not self._waiting[-1].is_done:
            last = self._waiting[-1]
            num_left = (last.first_frame + self._extent(last) - self._block) // self._step
            if self._block == 0:
                # Nothing is compiled yet: a program of the size that is needed.
                self._short_block = num_left
            short = self._short_block
            self._compute(short if num_left <= short else _OUTPUTS_PER_BLOCK)
        # The last block may have ended behind all utterances.
        self._next_utterance = max(self._next_utterance, self._block)

    def close(self) -> None:
        """Log times, if asked for."""
        self._computers.close()

    def _compute(self, num_outputs: int) -> None:
        """One block: its outputs to the utterances that they belong to."""
        context = self.network.context
        num_inputs = (num_outputs - 1) * self._step + 1 + context.left + context.right
        shape = ChunkShape(-context.left, num_inputs, num_outputs, self._step)
        computer = self._computers.computer(shape)
        end = self._block + num_outputs * self._step
        inside = [u for u in self._waiting if not u.is_done and u.first_frame < end]
        run = partial(self._run, computer, inside)
        run()
        output = computer.get_output("output")
        for utterance in inside:
            self._give(utterance, output, computer, run)
        self._block = end
        self.num_tasks += len(inside)
        self.num_minibatches += 1

    def _extent(self, utterance: _Utterance) -> int:
        """Frames of the stream from an utterance's first to its last output's."""
        return len(utterance.output) * self._step

    def _run(self, computer: NnetComputer, utterances: list[_Utterance]) -> None:
        """Fill in the frames of a block, the context of each utterance beside it, and run."""
        context = self.network.context
        computer.reset()
        inputs = computer.input_buffer("input")
        begin = self._block - context.left
        filled = 0
        for utterance in utterances:
            first = max(utterance.first_frame - context.left, begin)
            end = utterance.first_frame + self._extent(utterance) - self._step + 1 + context.right
            end = min(end, begin + len(inputs))
            if end <= first:
                continue
            tensor.fill(inputs[filled : first - begin], 0.0)
            filled = end - begin
            frames = first - utterance.first_frame, end - utterance.first_frame
            _fill_clipped(inputs[first - begin : filled], utterance.features, *frames)
        tensor.fill(inputs[filled:], 0.0)  # what no output needs must not overflow
        computer.run()

    def _give(
        self, utterance: _Utterance, output: Array, computer: NnetComputer, again: partial[None]
    ) -> None:
        """Copy the outputs of a block that are an utterance's next ones."""
        begin = (utterance.first_frame - self._block) // self._step + utterance.num_given
        count = min(len(utterance.output) - utterance.num_given, len(output) - begin)
        if count <= 0:
            return
        found = output[begin : begin + count]
        self._watch.look("'output'", found, computer, again)
        out = utterance.output[utterance.num_given : utterance.num_given + count]
        tensor.copy(out, found)
        self._scaling.apply(out)
        utterance.num_given += count


def _fill_clipped(buffer: Array, features: Array, begin: int, end: int) -> None:
    """Copy frames [begin, end); the first and last stand for those beyond."""
    if begin >= 0 and end <= len(features):
        fill_rows(buffer, features, slice(begin, end))
    else:
        fill_rows(
            buffer, features, np.arange(begin, end, dtype=np.int32).clip(0, len(features) - 1)
        )

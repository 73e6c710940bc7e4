"""A plan for networks whose outputs depend on a fixed window of frames only.

Utterances, padded with the network's context at both ends, form one stream of frames. One program
computes the stream block by block, whatever the lengths of the utterances. Only the context between
two blocks is computed twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from nnet3tools.executor.chunks import ChunkShape, clipped_rows
from nnet3tools.executor.minibatches import ChunkPlan, Minibatch, Part, Utterance
from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.graph.context import NnetContext

ON_GPU = 8192
"""Outputs of a block on a GPU: enough to occupy it, and few waits of the host."""
ON_CPU = 768
"""Outputs of a block on a CPU.

BLAS copies the parameters once a product, a tenth of its time at 384 rows, and the context between
blocks is computed twice: nnet3-compute-batch of benchmarks/ takes 1.12 s with blocks of 384 (tdnn;
0.92 tdnnf), 1.08 of 512 (0.88), 1.05 of 768 (0.83), 1.06 of 1152 (0.83).
"""


@dataclass
class _Placed:
    """An utterance with its position in the stream that joins all utterances.

    `first_frame`: time in the stream of its first frame and first output. `num_left`: outputs at
    its end that no block has computed.
    """

    utterance: Utterance
    first_frame: int
    num_left: int


class Blocks(ChunkPlan):
    """Cuts utterances, joined to one stream of frames, into blocks; each block is one minibatch.

    The method `complete` yields nothing: outputs are computed with their full block, or by `rest`.
    The network's outputs must depend on a fixed window of frames.
    """

    def __init__(
        self,
        options: SimpleComputationOptions,
        context: NnetContext,
        outputs_per_block: int = ON_CPU,
    ) -> None:
        options.outputs_per_chunk(context.modulus)  # for its checks and log line
        self._step, self._context = options.frame_subsampling_factor, context
        self._stream: deque[_Placed] = deque()
        """Utterances of which outputs are left."""
        self._end = 0
        """The time in the stream of the next utterance's first frame."""
        self._block = 0
        """The time of the next block's first output."""
        self._full_block = self._short_block = outputs_per_block
        """Outputs of the blocks that are computed when less than a full block is left."""

    def num_outputs(self, num_frames: int) -> int:
        """The number of output rows of an utterance of `num_frames` frames."""
        return -(-num_frames // self._step)

    def add(self, utterance: Utterance) -> Iterator[Minibatch]:
        """Append an utterance; yield a minibatch for each block of the stream that is complete."""
        utterance.num_missing = len(utterance.output)
        self._stream.append(_Placed(utterance, self._end, utterance.num_missing))
        padding = -(-(self._context.left + self._context.right) // self._step)
        self._end += (utterance.num_missing + padding) * self._step
        while self._block + self._full_block * self._step <= self._end:
            yield self._next_block(self._full_block)

    def rest(self) -> Iterator[Minibatch]:
        """Yield minibatches for the rest of the stream; the last block need not be full."""
        while self._stream:
            last = self._stream[-1]
            end = last.first_frame + len(last.utterance.output) * self._step
            num_left = (end - self._block) // self._step
            if self._block == 0:
                # No program is compiled yet: use one of the size that is needed.
                self._short_block = num_left
            short = self._short_block
            yield self._next_block(short if num_left <= short else self._full_block)
        # The last block may end after the last utterance.
        self._end = max(self._end, self._block)

    def _next_block(self, num_outputs: int) -> Minibatch:
        """The minibatch for the next block of the stream, with `num_outputs` output rows."""
        context, begin = self._context, self._block - self._context.left
        num_inputs = (num_outputs - 1) * self._step + 1 + context.left + context.right
        end = self._block + num_outputs * self._step
        inside = [placed for placed in self._stream if placed.first_frame < end]
        parts = [self._part(placed, begin, num_inputs, num_outputs) for placed in inside]
        while self._stream and not self._stream[0].num_left:
            self._stream.popleft()
        self._block = end
        shape = ChunkShape(-context.left, num_inputs, num_outputs, self._step)
        # Outputs between utterances mix the frames of two, or see zeros: they may overflow.
        return Minibatch(shape, parts, check_parts_only=True)

    def _part(self, placed: _Placed, begin: int, num_inputs: int, num_outputs: int) -> Part:
        """The Part that says which rows of an utterance are in a block, and where they are there.

        The block has `num_inputs` inputs, from stream time `begin` on, and `num_outputs` outputs.
        """
        utterance, context = placed.utterance, self._context
        last_frame = placed.first_frame + (len(utterance.output) - 1) * self._step
        first = max(placed.first_frame - context.left, begin)
        end = min(last_frame + 1 + context.right, begin + num_inputs)
        dest = len(utterance.output) - placed.num_left
        first_output = (placed.first_frame - self._block) // self._step + dest
        count = min(placed.num_left, num_outputs - first_output)
        placed.num_left -= count
        frames = first - placed.first_frame, end - placed.first_frame
        rows = clipped_rows(*frames, 0, len(utterance.features))
        return Part(utterance, rows, first - begin, first_output, dest, count)

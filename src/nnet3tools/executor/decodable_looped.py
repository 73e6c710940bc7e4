"""A network's outputs for a stream of frames, in constant memory (DecodableNnetSimpleLooped).

One looped program computes chunk after chunk and carries the state of recurrences and the frames
that later chunks look back to from each to the next, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, NotFiniteError, check_num_frames
from nnet3tools.executor.chunk_computers import fill_rows
from nnet3tools.executor.computer import NnetComputer
from nnet3tools.executor.decodable_simple import (
    Ivectors,
    OneByOne,
    OutputScaling,
    SimpleNetwork,
)
from nnet3tools.executor.finite_watch import FiniteWatch
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

__all__ = ["LoopedUtteranceComputer"]

_STREAMS_TO_WARM_UP, _CHUNKS_TO_WARM_UP = 3, 4
"""A program runs live, is recorded, and replays; each of its loops' parts does so by itself."""


class LoopedUtteranceComputer(OneByOne):
    """Computes utterance after utterance with one looped program, lowered once.

    The network should be prepared for test by the caller; it is not changed. Of the options the
    subsampling factor, frames per chunk, initial left context, acoustic scale and those of
    optimization and computation count.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
    ) -> None:
        """`like` is any array of the device to run on. A UserError for networks that cannot."""
        super().__init__()
        options.check()
        check_num_frames("frames-per-chunk", options.frames_per_chunk)  # all chunks are that long
        self.network = SimpleNetwork(nnet)
        self._factor = options.frame_subsampling_factor
        self._frames = chunk_size_for(nnet, self._factor, options.frames_per_chunk)
        context = self.network.context
        left = context.left + max(0, options.extra_left_context_initial)
        self._context = context._replace(left=left)
        if self.network.ivector_dim:
            nnet = nnet.copy()
            set_ivector_period(nnet, self._frames)
        requests = looped_requests(nnet, self._frames, self._factor, self._frames, self._context)
        self.computation = compile_looped(nnet, options.optimization, requests)
        self._computer = NnetComputer(options.computation, self.computation, nnet, like=like)
        self._scaling = OutputScaling(priors, options.acoustic_scale, self.network.output_dim, like)
        self._watch = FiniteWatch()
        self._like = like
        rows = self._frames // self._factor
        self._output = tensor.empty((rows, self.network.output_dim), like=like)

    @property
    def peak_bytes(self) -> int:
        """Memory for matrices; it does not depend on the length of utterances."""
        return self._computer.peak_bytes

    def chunks(self, features: np.ndarray, ivectors: Ivectors | None = None) -> Iterator[Array]:
        """Outputs of chunk after chunk, on the device; each is valid until the next is asked for.

        The last may have more rows than the utterance has outputs.
        """
        self.network.check_inputs(features, ivectors)
        if len(features) == 0:
            raise DataError("an utterance without frames")
        computer, device_features = self._computer, tensor.asarray(features, like=self._like)
        computer.reset()
        end = -self._context.left
        for done, begin_output in enumerate(range(0, len(features), self._frames)):
            begin, end = end, begin_output + self._frames + self._context.right
            rows = np.clip(np.arange(begin, end), 0, len(features) - 1).astype(np.int32)
            fill_rows(computer.input_buffer("input"), device_features, rows)
            if ivectors is not None and "ivector" in computer.expected_inputs():
                num_rows = computer.input_buffer("ivector").shape[0]
                computer.accept_input("ivector", self._ivector_rows(ivectors, end, num_rows))
            computer.run()
            output = computer.get_output("output")
            again = partial(self._again, features, ivectors, done + 1)
            self._watch.look("'output'", output, computer, again)
            # A copy: what the program gives out may also be part of its state.
            tensor.copy(self._output, output)
            self._scaling.apply(self._output)
            yield self._output

    def stream(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Output rows, on the host, as pieces of features (frames, dim) come, without i-vectors.

        A chunk is computed as soon as the frames that it depends on are there. NotFiniteError if an
        output is not finite.
        """
        self._computer.reset()
        left, right = self._context.left, self._context.right
        buffer = last = np.empty((0, self.network.input_dim), np.float32)
        num_frames = num_given = 0
        for piece in pieces:
            self.network.check_inputs(piece, None)
            if num_frames == 0:
                buffer = np.repeat(piece[:1], left, axis=0)
            num_frames += len(piece)
            buffer, last = np.concatenate([buffer, piece]), piece[-1:]
            while num_given * self._factor + self._frames + right <= num_frames:
                buffer, rows = self._next_chunk(buffer, num_given == 0)
                num_given += len(rows)
                yield rows
        num_outputs = -(-num_frames // self._factor)
        while num_given < num_outputs:
            padding = np.repeat(last, left + right + self._frames, axis=0)
            buffer, rows = self._next_chunk(np.concatenate([buffer, padding]), num_given == 0)
            yield rows[: num_outputs - num_given]
            num_given += len(rows)

    def warm_up(self) -> None:
        """Have all that is compiled or recorded in the first runs done before a stream begins."""
        frames = self._context.left + self._context.right + _CHUNKS_TO_WARM_UP * self._frames
        silence = np.zeros((frames, self.network.input_dim), np.float32)
        with suppress(NotFiniteError):
            for _ in range(_STREAMS_TO_WARM_UP):
                for _ in self.stream([silence]):
                    pass

    def _next_chunk(self, buffer: np.ndarray, is_first: bool) -> tuple[np.ndarray, np.ndarray]:
        """The frames that are left when a chunk has been computed, and its output rows."""
        size = self._frames + (self._context.left + self._context.right if is_first else 0)
        device_rows = tensor.asarray(np.ascontiguousarray(buffer[:size]), like=self._like)
        fill_rows(self._computer.input_buffer("input"), device_rows, slice(0, size))
        self._computer.run()
        tensor.copy(self._output, self._computer.get_output("output"))
        self._scaling.apply(self._output)
        rows = tensor.to_host(self._output).copy()
        check_finite("outputs", rows)
        return buffer[size:], rows

    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """Output rows (after subsampling) x dimension, for features of at least one frame.

        DataError for inputs that do not fit.
        """
        num_outputs = -(-len(features) // self._factor)
        parts = [tensor.to_host(chunk).copy() for chunk in self.chunks(features, ivectors)]
        return np.concatenate(parts)[:num_outputs]

    def _again(self, features: np.ndarray, ivectors: Ivectors | None, num_chunks: int) -> None:
        """Come to the state after so many chunks again, from the beginning."""
        for _ in islice(self.chunks(features, ivectors), num_chunks):
            pass

    def _ivector_rows(self, ivectors: Ivectors, frame: int, num_rows: int) -> np.ndarray:
        """I-vectors for a chunk whose input ends before `frame`, (num_rows, dim), all the same.

        As in Kaldi the newest that the stream has at that time, the last where there are no more.
        """
        row = 0 if ivectors.period <= 0 else min(frame // ivectors.period, len(ivectors.rows) - 1)
        return np.repeat(ivectors.rows[row : row + 1], num_rows, axis=0)

    def close(self) -> None:
        """Nothing to log; as UtteranceComputer."""

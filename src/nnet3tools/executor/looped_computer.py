"""A network's outputs for a stream of frames, in constant memory (DecodableNnetSimpleLooped).

One looped program computes chunk after chunk. It carries the state of recurrences, and the frames
that later chunks look back to, from each chunk to the next, so nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice

import numpy as np

from nnet3tools import tensor
from nnet3tools.errors import DataError, NotFiniteError, check_num_frames
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
    """Computes streams, or utterance after utterance, with one looped program.

    Of the options, the subsampling factor, frames per chunk, initial left context, acoustic scale
    and those of optimization and computation apply.
    """

    def __init__(
        self,
        nnet: Nnet,
        options: SimpleComputationOptions,
        priors: np.ndarray | None = None,
        *,
        like: Array | None = None,
    ) -> None:
        """The network should be prepared for test; `like` is any array of the device to run on.

        UserError for networks that cannot be computed in a loop.
        """
        options.check()
        check_num_frames("frames-per-chunk", options.frames_per_chunk)  # no chunk is shorter
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
        self._complete: list[tuple[str, np.ndarray]] = []

    @property
    def peak_bytes(self) -> int:
        """Bytes of the program's matrices, which do not depend on the length of utterances."""
        return self._computer.peak_bytes

    def stream(self, pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yield output rows, on the host, for pieces of features (frames, dim), without i-vectors.

        A chunk is computed as soon as the frames that it depends on are there. NotFiniteError if an
        output is not finite.
        """
        for rows in self._chunks(pieces):
            check_finite("outputs", rows)
            yield rows

    def compute(self, features: np.ndarray, ivectors: Ivectors | None = None) -> np.ndarray:
        """The output (rows, dim) of an utterance of at least one frame.

        DataError for inputs that do not fit the network.
        """
        if len(features) == 0:
            raise DataError("an utterance without frames")
        parts: list[np.ndarray] = []
        for rows in self._chunks([features], ivectors):
            parts.append(rows)
            again = partial(self._run_chunks, len(parts), features, ivectors)
            output = self._computer.get_output("output")
            self._watch.look("'output'", output, self._computer, again)
        return np.concatenate(parts)

    def accept(
        self,
        key: str,
        features: np.ndarray,
        ivectors: Ivectors | None = None,
        held_bytes: int = 0,
    ) -> None:
        """Compute an utterance; `ready` then yields its output. `held_bytes` is not used."""
        self._complete.append((key, self.compute(features, ivectors)))

    def ready(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield (key, output) of the utterances accepted since the last call."""
        while self._complete:
            yield self._complete.pop(0)

    def finish(self) -> None:
        """Nothing to do: `accept` completes utterances."""

    def close(self) -> None:
        """Nothing: a looped computer has nothing to log."""

    def warm_up(self) -> None:
        """Compile and record everything now that the first stream would otherwise wait for."""
        frames = self._context.left + self._context.right + _CHUNKS_TO_WARM_UP * self._frames
        silence = np.zeros((frames, self.network.input_dim), np.float32)
        with suppress(NotFiniteError):
            for _ in range(_STREAMS_TO_WARM_UP):
                for _ in self.stream([silence]):
                    pass

    def _chunks(
        self, pieces: Iterable[np.ndarray], ivectors: Ivectors | None = None
    ) -> Iterator[np.ndarray]:
        """Yield the output rows of each chunk of a new stream of features, given in pieces."""
        self._computer.reset()
        left, right = self._context.left, self._context.right
        buffer = last = np.empty((0, self.network.input_dim), np.float32)
        num_frames = num_given = 0
        for piece in pieces:
            self.network.check_inputs(piece, ivectors)
            if num_frames == 0:
                buffer = np.repeat(piece[:1], left, axis=0)
            num_frames += len(piece)
            buffer, last = np.concatenate([buffer, piece]), piece[-1:]
            while num_given * self._factor + self._frames + right <= num_frames:
                buffer, rows = self._next_chunk(buffer, num_given, ivectors)
                num_given += len(rows)
                yield rows
        num_outputs = -(-num_frames // self._factor)
        while num_given < num_outputs:
            padding = np.repeat(last, left + right + self._frames, axis=0)
            padded = np.concatenate([buffer, padding])
            buffer, rows = self._next_chunk(padded, num_given, ivectors)
            yield rows[: num_outputs - num_given]
            num_given += len(rows)

    def _next_chunk(
        self, buffer: np.ndarray, num_given: int, ivectors: Ivectors | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(frames left over, output rows) of the next chunk, after `num_given` output rows."""
        size = self._frames + (0 if num_given else self._context.left + self._context.right)
        computer = self._computer
        device_rows = tensor.asarray(np.ascontiguousarray(buffer[:size]), like=self._like)
        fill_rows(computer.input_buffer("input"), device_rows, slice(0, size))
        if ivectors is not None and "ivector" in computer.expected_inputs():
            num_rows = computer.input_buffer("ivector").shape[0]
            end = num_given * self._factor + self._frames + self._context.right
            computer.accept_input("ivector", _newest_ivector(ivectors, end, num_rows))
        computer.run()
        # A copy: the program's output may also be part of its state.
        tensor.copy(self._output, computer.get_output("output"))
        self._scaling.apply(self._output)
        return buffer[size:], tensor.to_host(self._output).copy()

    def _run_chunks(self, count: int, features: np.ndarray, ivectors: Ivectors | None) -> None:
        """Compute the first `count` chunks of an utterance, without keeping their outputs."""
        for _ in islice(self._chunks([features], ivectors), count):
            pass


def _newest_ivector(ivectors: Ivectors, frame: int, num_rows: int) -> np.ndarray:
    """The newest i-vector that a stream has when it has read the frames before `frame`.

    It is repeated: (num_rows, dim).
    """
    row = 0 if ivectors.period <= 0 else min(frame // ivectors.period, len(ivectors.rows) - 1)
    return np.repeat(ivectors.rows[row : row + 1], num_rows, axis=0)

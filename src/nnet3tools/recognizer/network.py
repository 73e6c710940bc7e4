"""A recognizer's network: computers of whole utterances and of live streams."""

from __future__ import annotations

import threading
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nnet3tools.executor.simple_options import SimpleComputationOptions
from nnet3tools.executor.utterance_computer import UtteranceComputer, computer_together
from nnet3tools.fast_dataclasses import dataclass, field, replace
from nnet3tools.graph.context import is_local_in_time
from nnet3tools.nnet.nnet import Nnet
from nnet3tools.recognizer.batched_streams import BatchedNetwork, BatchedStream

if TYPE_CHECKING:
    from nnet3tools.executor.looped_computer import LoopedComputer, LoopedStream


@dataclass
class AcousticNetwork:
    """A network prepared for test, with its priors; makes the objects that compute its outputs.

    `options` are for whole utterances; a stream is computed in chunks of `stream_frames` frames. If
    `batches` is not None, it computes chunks of several streams as one minibatch.
    """

    nnet: Nnet
    priors: np.ndarray
    options: SimpleComputationOptions
    stream_frames: int
    batches: BatchedNetwork | None = None
    _free: list[LoopedComputer] = field(default_factory=list)
    """Computers that no stream uses."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def utterance_computer(self) -> UtteranceComputer:
        """The object that computes outputs of whole utterances, made at the first call."""
        return computer_together(self.nnet, self.options, self.priors)

    @property
    def _stream_options(self) -> SimpleComputationOptions:
        return replace(self.options, frames_per_chunk=self.stream_frames)

    @cached_property
    def _first_looped(self) -> LoopedComputer:
        from nnet3tools.executor.looped_computer import LoopedComputer

        computer = LoopedComputer(self.nnet, self._stream_options, self.priors)
        computer.warm_up()
        return computer

    def batch_streams(self) -> None:
        """Let later streams share minibatches, if each output depends on a fixed window of frames.

        Streams of a network with recurrences do not share minibatches, because each keeps a state.
        """
        if is_local_in_time(self.nnet):
            self.batches = BatchedNetwork(self.nnet, self._stream_options, self.priors)
            self.batches.warm_up()

    def new_stream(self) -> LoopedStream | BatchedStream:
        """An object that computes the network's outputs for one live stream.

        The first LoopedStream compiles the program, some 0.7 s for a TDNN-F. When a stream is
        deleted, its LoopedComputer is kept for the next. UserError for a network that cannot be
        computed in a loop.
        """
        from nnet3tools.executor.looped_computer import LoopedStream

        if self.batches is not None:
            return BatchedStream(self.batches)
        with self._lock:
            computer = self._free.pop() if self._free else self._first_looped.another()
        stream = LoopedStream(computer)
        weakref.finalize(stream, self._free.append, computer)
        return stream

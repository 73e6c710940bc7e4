"""A recognizer for many live streams, which work in several threads with one network."""

from __future__ import annotations

import math
import threading

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.graph.time_reach import is_local_in_time
from nnet3tools.recognizer.batched_streams import BatchedNetwork
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.stream import Stream, StreamNetwork

_LEAST_COMMON_DIVISOR = 20
"""For 11025 and 16000 Hz it is 25; with 1 the filters take up to 300 MB and 3 s."""


class LiveRecognizer:
    """Makes streams, whose chunks are computed together if the network allows it.

    If the network has recurrences, each stream has a looped computation with its own state.
    """

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        network = recognizer.network
        self._lock = threading.Lock()
        """Held while a looped computation is made."""
        self.batches: BatchedNetwork | None = None
        """None for a network with recurrences."""
        if is_local_in_time(network.nnet):
            self.batches = BatchedNetwork(network.nnet, network.stream_options, network.priors)

    @property
    def sample_rate(self) -> float:
        """The sampling rate that the features are made for."""
        return self._recognizer.features.sample_rate

    def check_rate(self, rate: float) -> None:
        """DataError for a sampling rate that streams cannot have, or whose filters are too large.

        Samples are resampled in periods of `rate` / gcd(`rate`, `self.sample_rate`) samples. The
        time and memory of a period's filters grow with its length.
        """
        self._recognizer.features.check_rate(rate)
        common = math.gcd(round(rate), round(self.sample_rate))
        if rate != round(rate) or common < _LEAST_COMMON_DIVISOR:
            raise DataError(
                f"cannot resample from {rate:g} to {self.sample_rate:g}: expected rates with a "
                f"common divisor of at least {_LEAST_COMMON_DIVISOR}"
            )

    def stream(self, sample_rate: float, nbest: int = 0, name: str = "stream") -> Stream:
        """A new stream, as `Recognizer.stream`. DataError if the sampling rate does not fit."""
        network: StreamNetwork
        if self.batches is not None:
            network = self.batches.stream()
        else:
            with self._lock:
                network = self._recognizer.network.new_stream()
        return self._recognizer.stream(sample_rate, nbest=nbest, network=network, name=name)

    def warm_up(self) -> None:
        """Compile and record all that the first streams would otherwise wait for.

        DataError if the recognizer cannot be used for streams.
        """
        if self.batches is not None:
            self.batches.warm_up()
        stream = self.stream(self.sample_rate)
        stream.accept(np.zeros(int(self.sample_rate), np.int16))
        stream.final()
        if self.batches is not None:
            self.batches.num_chunks = self.batches.num_minibatches = 0

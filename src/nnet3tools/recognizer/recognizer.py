"""The recognizer: a model directory and a decoding graph as one object, from sound to words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.recognizer.loaded_models import LoadedModels
from nnet3tools.recognizer.stream import SampleFormat, Stream


@dataclass
class Recognizer(LoadedModels):
    """Recognizes sound. Streams and searches that it makes may run in several threads."""

    def stream(
        self,
        sample_rate: float,
        *,
        endpointing: bool = True,
        nbest: int = 0,
        sample_format: SampleFormat = SampleFormat.INT16,
        name: str = "stream",
    ) -> Stream:
        """A new live stream of sound with this sampling rate.

        With `endpointing`, utterances end by the rules of `endpoint`. `nbest` is the number of
        alternatives in results. `name` is used in warnings. DataError if the sampling rate does
        not fit, or if endpointing needs silence phones that are not known.
        """
        if endpointing and not self.endpoint.silence_phones:
            raise DataError(
                "ends of utterances are found by silence phones: expected phones/silence.csl in "
                "the graph's folder, or --endpoint.silence-phones"
            )
        endpoint = self.endpoint if endpointing else None
        return Stream(self, sample_rate, endpoint, nbest, sample_format, name)

    def prepare_for_many_streams(self) -> None:
        """Compile all that the first streams would wait for; compute chunks of streams together.

        DataError if the recognizer cannot be used for streams.
        """
        self.network.batch_streams()
        stream = self.stream(self.sample_rate)
        stream.accept(np.zeros(int(self.sample_rate), np.int16))
        stream.final()
        if self.batches is not None:
            self.batches.num_chunks = self.batches.num_minibatches = 0

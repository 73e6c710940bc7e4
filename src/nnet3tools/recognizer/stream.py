"""Live recognition: sound comes in pieces of any size, words come out as they are said.

    stream = recognizer.stream(16000)
    for data in microphone:                # bytes (PCM) or arrays
        if stream.accept(data):            # an utterance has ended
            print(stream.result().text)
        else:
            print(stream.partial().text)
    print(stream.final().text)             # the sound has ended

Results do not depend on how the sound is cut: chunks of the network and the places where ends of
utterances are looked for are counted from the start of the stream.
"""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nnet3tools.decoding.endpoint import EndpointOptions
from nnet3tools.decoding.traceback import path_so_far
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.recognizer.results import Partial, Result

if TYPE_CHECKING:
    from nnet3tools.recognizer.recognizer import Recognizer

_SECONDS_BETWEEN_CHECKS = 0.1
"""About the time from one look for the end of an utterance to the next."""

_LARGEST_FLOAT = 100.0
"""Larger samples are not sound that is too loud, but values of another format."""


class Stream:
    """One live stream of sound. Its methods may be called in any thread, one at a time."""

    def __init__(
        self,
        recognizer: Recognizer,
        sample_rate: float,
        endpoint: EndpointOptions | None = None,
        nbest: int = 0,
        sample_format: str = "int16",
        name: str = "stream",
    ) -> None:
        """Use `Recognizer.stream`, which supplies the endpoint rules, instead of this constructor.

        Without `endpoint`, utterances end only by `result` and `final`. `nbest` is the number of
        alternatives in results. `name` is used in warnings. DataError for a sampling rate from
        which the features cannot be computed.
        """
        self._recognizer, self._rate = recognizer, sample_rate
        self._network = recognizer.network.new_stream()
        self._endpoint, self._nbest, self._name = endpoint, nbest, name
        self._silence = endpoint.phones() if endpoint else frozenset()
        self._type = np.dtype(sample_format).newbyteorder("<")
        self._check_interval = max(1, round(_SECONDS_BETWEEN_CHECKS / recognizer.output_seconds))
        self._search = recognizer.new_search()
        self._finished: deque[Result] = deque()
        self._num_utterances = 0
        self._offset = 0.0
        """The time at which the present part of the stream began: 0, or that of `final`."""
        self._begin()

    def _begin(self) -> None:
        """Reset features, normalization, network state and search for a new part of the stream."""
        self._features = self._recognizer.features.stream(self._rate)
        self._normalized = self._recognizer.normalization.stream()
        self._rest = b""
        self._num_samples = self._num_outputs = 0
        self._begin_utterance()

    def _begin_utterance(self) -> None:
        self._search.start()
        self._first_output = self._num_outputs

    # -- sound in, results out

    def accept(self, samples: np.ndarray | bytes) -> bool:
        """Process sound; return whether a finished utterance waits for `result`.

        Bytes are samples in the stream's format; they may end within a sample. A float array
        (samples,) has values from -1 to 1, an int16 array the range of 16-bit samples. After
        `final` a new part of the stream begins; its times continue those of the previous part.
        """
        self._search_rows(self._network.accept(self._frames_of(samples)))
        return bool(self._finished)

    def partial(self, with_words: bool = False) -> Partial:
        """The partial result of the present utterance; `with_words` adds the times of its words."""
        if not self._search.num_frames:
            return Partial()
        path, _ = path_so_far(self._search)
        text = " ".join(map(self._recognizer.word_text, path.transcript.tolist()))
        return Partial(text, self._recognizer.words_of(path, self._start) if with_words else ())

    @property
    def duration(self) -> float:
        """Seconds of sound accepted so far."""
        return self._offset + self._num_samples / self._rate

    @property
    def num_waiting(self) -> int:
        """Number of finished utterances that wait for `result`."""
        return len(self._finished)

    def result(self) -> Result:
        """The result of the first finished utterance; if there is none, end the present one."""
        if not self._finished:
            self._end_utterance()
        return self._finished.popleft()

    def final(self) -> Result:
        """End the input; return the result of the last utterance.

        Results of earlier finished utterances are not included: call `result` for them first.
        """
        features = self._normalized(self._features.finish())
        rows = [self._network.accept(features), self._network.finish()]
        self._search_rows(np.concatenate(rows), is_last=True)
        self._end_utterance()
        self._offset = self.duration
        self._begin()
        return self._finished.pop()

    def _frames_of(self, samples: np.ndarray | bytes) -> np.ndarray:
        """Normalized features (frames, dim) of the frames that `samples` complete.

        DataError for samples that are not finite or of an unknown type.
        """
        if not isinstance(samples, np.ndarray):
            data = self._rest + samples
            size = len(data) // self._type.itemsize * self._type.itemsize
            self._rest = data[size:]
            samples = np.frombuffer(data[:size], self._type)
        samples = in_16_bits(samples)
        self._num_samples += len(samples)
        return self._normalized(self._features.accept(samples))

    def _search_rows(self, loglikes: np.ndarray, is_last: bool = False) -> None:
        """Decode network outputs (rows, pdfs), and end the utterance where an endpoint rule holds.

        With `is_last`, endpoint rules are not applied, because the end of the input ends the
        utterance.
        """
        begin = 0
        while begin < len(loglikes):
            size = self._check_interval - self._num_outputs % self._check_interval
            rows = loglikes[begin : begin + size]
            self._search.advance(rows)
            self._num_outputs += len(rows)
            if len(rows) == size and not is_last and self._has_ended():
                self._end_utterance()
            begin += size

    # -- utterances

    @property
    def _start(self) -> float:
        """The start of the present utterance in seconds from the start of the stream."""
        return self._offset + self._first_output * self._recognizer.output_seconds

    def _has_ended(self) -> bool:
        """Whether an endpoint rule ends the present utterance here, or no path is left."""
        if self._endpoint is None:
            return False
        if not self._search.is_alive:
            return True
        path, relative_cost = path_so_far(self._search)
        phones = self._recognizer.transitions.phones[path.alignment]
        silent = trailing_silence(phones, self._silence)
        seconds = self._recognizer.output_seconds
        length = self._search.num_frames * seconds
        return self._endpoint.is_end(length, silent * seconds, relative_cost)

    def _end_utterance(self) -> None:
        """Append the present utterance's result to the finished ones; begin a new utterance."""
        self._num_utterances += 1
        start = self._start
        end = self._offset + self._num_outputs * self._recognizer.output_seconds
        result = Result(start=start, end=end)
        if self._search.num_frames:
            key = f"{self._name}-{self._num_utterances}"
            if (decoded := self._recognizer.decoding.finish(self._search, key)) is not None:
                result = self._recognizer.result_of(decoded, start, self._nbest)
        self._finished.append(result)
        self._begin_utterance()


def trailing_silence(phones: NDArray[np.int32], silence: frozenset[int]) -> int:
    """The number of frames of silence at the end, given the phone of each frame, (frames,)."""
    is_silence = silence.__contains__
    return sum(1 for _ in takewhile(is_silence, reversed(phones.tolist())))


def in_16_bits(samples: np.ndarray) -> NDArray[np.float32]:
    """Samples (samples,), int16 or floats from -1 to 1, converted to the range of int16."""
    if samples.ndim != 1 or not (samples.dtype == np.int16 or samples.dtype.kind == "f"):
        raise DataError(
            "expected samples of one channel as int16 or floats, found an array of shape "
            f"{samples.shape} and type {samples.dtype}"
        )
    if samples.dtype.kind != "f":
        return samples.astype(np.float32)
    if not np.isfinite(samples).all():
        raise NotFiniteError("a sample is not finite")
    if (largest := np.abs(samples).max(initial=0.0)) > _LARGEST_FLOAT:
        raise DataError(f"expected floats from -1 to 1, found a sample of size {largest:g}")
    return np.float32(32768.0) * samples.astype(np.float32)

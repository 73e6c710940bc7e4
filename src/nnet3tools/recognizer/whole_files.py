"""Recognition of whole utterances, with network outputs computed in batches of utterances."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from nnet3tools.errors import DataError
from nnet3tools.fast_dataclasses import dataclass, replace
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.results import Result


@dataclass(frozen=True)
class Utterance:
    """An utterance in UtteranceQueue: network outputs, seconds of sound, seconds of work so far."""

    key: str
    outputs: np.ndarray
    """The network's outputs; without rows as long as they are not computed."""
    duration: float
    seconds: float


class UtteranceQueue:
    """Recognizes utterances: call `accept` for each, then `recognize` for each from `ready`."""

    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._computer = recognizer.network.utterance_computer
        self._searches = threading.local()
        """The `search` of each thread."""
        self._utterances: deque[Utterance] = deque()
        """Accepted utterances that `ready` has not given yet, in order."""
        self._computing = 0.0
        """Seconds of computing that utterances share, because they are computed together."""
        self._given = 0.0
        """Seconds of sound accepted so far."""

    def accept(self, key: str, samples: np.ndarray, rate: int) -> None:
        """Add an utterance: samples (samples,) at `rate` Hz; DataError for unusable sound."""
        began = time.perf_counter()
        features = self._recognizer.features.compute(samples, rate)
        if not len(features):
            raise DataError("the sound is shorter than a frame")
        features = self._recognizer.normalization.whole(features)
        seconds = time.perf_counter() - began
        self._compute(partial(self._computer.accept, key, features))
        duration = len(samples) / rate
        self._given += duration
        self._utterances.append(Utterance(key, features[:0], duration, seconds))

    def finish(self) -> None:
        """Compute the network outputs of all accepted utterances that still wait."""
        self._compute(self._computer.finish)

    def _compute(self, work: Callable[[], None]) -> None:
        began = time.perf_counter()
        work()
        self._computing += time.perf_counter() - began

    def ready(self) -> Iterator[Utterance]:
        """Iterate, in order, over the accepted utterances whose network outputs are computed."""
        for _, outputs in self._computer.ready():
            utterance = self._utterances.popleft()
            shared = self._computing * utterance.duration / max(self._given, 1e-3)
            yield replace(utterance, outputs=outputs, seconds=utterance.seconds + shared)

    def recognize(self, utterance: Utterance, nbest: int = 0) -> tuple[Result, float] | None:
        """(result with `nbest` alternatives, real-time factor); None, after a warning, if no path.

        Several threads may call this method at the same time.
        """
        began = time.perf_counter()
        if not hasattr(self._searches, "search"):
            self._searches.search = self._recognizer.new_search()
        search = self._searches.search
        decoded = self._recognizer.decoding.decode(search, utterance.key, utterance.outputs)
        if decoded is None:
            return None
        result = self._recognizer.result_of(decoded, nbest=nbest)
        seconds = utterance.seconds + time.perf_counter() - began
        return result, seconds / max(utterance.duration, 1e-3)

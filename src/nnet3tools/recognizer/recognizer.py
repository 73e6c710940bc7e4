"""The recognizer: from sound, as whole files or as a stream, to words with times."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from nnet3tools.decoding.search import Search
from nnet3tools.decoding.utterance import UtteranceDecoder
from nnet3tools.decoding.word_times import Lexicon, SpokenWord, spoken_words
from nnet3tools.errors import DataError
from nnet3tools.executor.looped_computer import LoopedComputer
from nnet3tools.executor.utterance_computer import UtteranceComputer
from nnet3tools.features.sound_features import SoundFeatures
from nnet3tools.fst.lattice import CompactLattice
from nnet3tools.io import log
from nnet3tools.io.wave import Wave
from nnet3tools.lang.symbols import SymbolTable
from nnet3tools.nnet.hmm.transition_model import Transitions
from nnet3tools.recognizer.normalization import Normalization


@dataclass(frozen=True)
class Recognized:
    """The recognized words of an utterance, with times and confidences."""

    words: list[tuple[str, float, float, float]]
    """For each word (text, begin in seconds, length in seconds, confidence)."""
    real_time_factor: float


# -- recognizing


@dataclass(frozen=True)
class Utterance:
    """An accepted utterance and the seconds spent on it so far.

    `outputs` are the network's outputs, or None if a stream has searched them already.
    """

    key: str
    outputs: np.ndarray | None
    duration: float
    seconds: float


@dataclass
class Recognizer:
    """Recognizes utterances: call `accept` for each, then `recognize` for each from `ready`."""

    features: SoundFeatures
    normalization: Normalization
    computer: UtteranceComputer | LoopedComputer
    decoding: UtteranceDecoder
    decoder: Search
    transitions: Transitions
    words: SymbolTable
    lexicon: Lexicon | None
    output_seconds: float
    """Seconds from one output of the network to the next."""
    piece_seconds: float
    """Length of the pieces of a stream, in seconds."""
    latencies: list[float] = field(default_factory=list)
    """Seconds of computing for each piece of a stream."""
    _utterances: deque[Utterance] = field(default_factory=deque)
    """Accepted utterances that `ready` has not given yet, in order."""
    _computing: float = 0.0
    """Seconds of computing that utterances share, because they are computed together."""
    _given: float = 0.0
    """Seconds of sound accepted so far."""

    def accept(self, key: str, wave: Wave) -> None:
        """Add an utterance; a stream is decoded before this method returns.

        DataError for sound that cannot be used.
        """
        began = time.perf_counter()
        if len(wave.samples) != 1:
            log.warning(f"{key}: sound with {len(wave.samples)} channels: the first one is decoded")
        samples = wave.samples[0]
        if isinstance(self.computer, LoopedComputer):
            self.features.check_rate(wave.rate)
            self._stream(self.computer, samples, wave.rate)
            seconds = time.perf_counter() - began
        else:
            features = self.features.compute(samples, wave.rate)
            if not len(features):
                raise DataError("the sound is shorter than a frame")
            features = self.normalization.whole(features)
            seconds = time.perf_counter() - began
            self._compute(partial(self.computer.accept, key, features))
        self._given += wave.duration
        self._utterances.append(Utterance(key, None, wave.duration, seconds))

    def finish(self) -> None:
        """Compute the network outputs of all accepted utterances that still wait."""
        self._compute(self.computer.finish)

    def _compute(self, work: Callable[[], None]) -> None:
        began = time.perf_counter()
        work()
        self._computing += time.perf_counter() - began

    def ready(self) -> Iterator[Utterance]:
        """Iterate over the accepted utterances that can be recognized now, in order.

        Call `recognize` for each before taking the next.
        """
        if isinstance(self.computer, LoopedComputer):
            while self._utterances:
                yield self._utterances.popleft()
            return
        for _, outputs in self.computer.ready():
            utterance = self._utterances.popleft()
            shared = self._computing * utterance.duration / max(self._given, 1e-3)
            yield replace(utterance, outputs=outputs, seconds=utterance.seconds + shared)

    def recognize(self, utterance: Utterance) -> Recognized | None:
        """The words of an utterance; None, after a warning, if no path is found."""
        began = time.perf_counter()
        if utterance.outputs is not None:
            self.decoder.start()
            self.decoder.advance(utterance.outputs)
        decoded = self.decoding.finish(self.decoder, utterance.key)
        if decoded is None:
            return None
        lattice = decoded.lattice
        assert isinstance(lattice, CompactLattice)
        spoken = spoken_words(decoded.best, lattice, self.transitions, self.lexicon)
        seconds = utterance.seconds + time.perf_counter() - began
        return Recognized(list(map(self._shown, spoken)), seconds / max(utterance.duration, 1e-3))

    def _shown(self, spoken: SpokenWord) -> tuple[str, float, float, float]:
        word = self.words.symbols.get(spoken.word)
        if word is None:
            raise DataError(f"word {spoken.word} is not in {self.words.name}")
        begin, end = spoken.begin * self.output_seconds, spoken.end * self.output_seconds
        return word, begin, end - begin, spoken.confidence

    def _stream(self, computer: LoopedComputer, samples: np.ndarray, rate: int) -> None:
        """Decode the samples of an utterance as a stream, piece after piece."""
        self.decoder.start()
        pieces = self._pieces(samples, max(1, round(rate * self.piece_seconds)))
        features = self.normalization.stream(self.features.stream(pieces))
        for loglikes in computer.stream(features):
            self.decoder.advance(loglikes)
        if not self.decoder.num_frames:
            raise DataError("the sound is shorter than a frame")

    def _pieces(self, samples: np.ndarray, size: int) -> Iterator[np.ndarray]:
        """Yield pieces of `size` samples; the time until the next is requested is the latency."""
        for begin in range(0, len(samples), size):
            given = time.perf_counter()
            yield samples[begin : begin + size]
            self.latencies.append(time.perf_counter() - given)

    def report(self) -> None:
        """Log the latencies of the pieces of streams, if there were any."""
        if self.latencies:
            times = np.array(self.latencies) * 1000
            log.log(
                f"{len(times)} pieces of {self.piece_seconds:g}s of sound took {times.mean():.1f} "
                f"ms each, {np.percentile(times, 99):.1f} ms at most in 99 of 100 cases, "
                f"{times.max():.1f} ms at most"
            )


def text_of(key: str, result: Recognized, form: str) -> str:
    """The result of utterance `key` as text in the given form: text, CTM or a line of JSON."""
    if form == "text":
        return " ".join([key, *(word for word, *_ in result.words)]) + "\n"
    if form == "ctm":
        return "".join(
            f"{key} 1 {begin:.2f} {length:.2f} {word} {confidence:.2f}\n"
            for word, begin, length, confidence in result.words
        )
    words = [
        {"word": w, "begin": round(b, 3), "length": round(n, 3), "confidence": round(c, 3)}
        for w, b, n, c in result.words
    ]
    factor = round(result.real_time_factor, 4)
    line = {"utterance": key, "words": words, "real_time_factor": factor}
    return json.dumps(line, ensure_ascii=False) + "\n"

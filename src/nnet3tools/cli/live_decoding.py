"""Decoding of streams for nnet3-decode: results are written as soon as they are known."""

from __future__ import annotations

import time
from collections import deque

from nnet3tools.cli.sound_files import skipping, waves
from nnet3tools.errors import DataError
from nnet3tools.io import log
from nnet3tools.io.files import open_input
from nnet3tools.io.numpy_later import np
from nnet3tools.io.writer import Writer
from nnet3tools.recognizer.json_results import partial_text, result_text
from nnet3tools.recognizer.live_sound import live_sound
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.results import Partial, Result
from nnet3tools.recognizer.stream import Stream
from nnet3tools.recognizer.utterances import UtteranceCounts

_MOST_LATENCIES = 100_000


class Output:
    """Writes the results of utterances as lines of text, each flushed at once."""

    def __init__(self, writer: Writer, form: str) -> None:
        """Make an output to `writer` in the format `form`: text, ctm, json or vosk."""
        self._writer, self._form = writer, form
        self.shows_partial = form in ("json", "vosk")
        """Whether partial results are written."""

    def write_result(self, key: str, result: Result, real_time_factor: float | None = None) -> None:
        """Write the result of utterance `key`; JSON has `real_time_factor` unless it is None."""
        self._write(result_text(key, result, self._form, real_time_factor))

    def write_partial(self, key: str, partial: Partial) -> None:
        """Write the partial result of utterance `key`."""
        self._write(partial_text(key, partial, self._form))

    def _write(self, text: str) -> None:
        self._writer.write_text(text)
        self._writer.flush()


def decode_streams(
    recognizer: Recognizer,
    options: RecognizerOptions,
    sources: list[str],
    output: Output,
    counts: UtteranceCounts,
) -> float:
    """Decode tables, files and standard input ("-") as streams; returns the seconds of sound.

    Ctrl-C ends the input: the result so far is written before the program exits.
    """
    live, seconds = _LiveDecoding(recognizer, options, output), 0.0
    for source in sources:
        if source == "-":
            with skipping("stdin", counts):
                seconds += live.decode_standard_input()
                counts.done += 1
            continue
        for key, samples, rate in waves([source], counts):
            with skipping(key, counts):
                seconds += live.decode_file(key, samples, rate)
                counts.done += 1
    live.report()
    return seconds


class _LiveDecoding:
    """Decodes streams one by one and writes their results."""

    def __init__(self, recognizer: Recognizer, options: RecognizerOptions, output: Output) -> None:
        self._recognizer, self._options, self._output = recognizer, options, output
        self._latencies: deque[float] = deque(maxlen=_MOST_LATENCIES)
        """Seconds of computing for each of the last pieces of sound."""

    def decode_file(self, key: str, samples: np.ndarray, rate: int) -> float:
        """Decode a file's samples (`rate` per second) as one utterance; returns its seconds."""
        stream = self._recognizer.stream(
            rate, endpointing=False, nbest=self._options.nbest, name=key
        )
        size = max(1, round(rate * self._options.piece_seconds))
        for begin in range(0, len(samples), size):
            began = time.perf_counter()
            stream.accept(samples[begin : begin + size])
            self._latencies.append(time.perf_counter() - began)
        self._output.write_result(key, _last_result(stream))
        return stream.duration

    def decode_standard_input(self) -> float:
        """Decode live sound, utterance after utterance; returns its seconds."""
        options = self._options
        with open_input("-", header=False) as reader:
            rate = options.sample_rate or self._recognizer.features.sample_rate
            sound = live_sound(reader, rate, options.sample_format)
            stream = self._recognizer.stream(
                sound.rate, nbest=options.nbest, sample_format=sound.sample_format, name="stdin"
            )
            utterances = _Utterances("stdin", self._output)
            is_waiting = True
            try:
                for piece in sound.pieces:
                    is_waiting = False
                    began = time.perf_counter()
                    utterances.advance(stream, piece)
                    self._latencies.append(time.perf_counter() - began)
                    is_waiting = True
            except SystemExit:
                # If the signal has come in the middle of a computation, only the search is sound.
                utterances.write_last(stream.final() if is_waiting else stream.result())
                raise
            utterances.write_last(_last_result(stream))
        return stream.duration

    def report(self) -> None:
        """Log the milliseconds that computing a piece of sound took: mean, percentile, maximum."""
        if not self._latencies:
            return
        times = sorted(1000 * seconds for seconds in self._latencies)
        log.log(
            f"{len(times)} pieces of sound took {sum(times) / len(times):.1f} ms each, "
            f"{times[99 * (len(times) - 1) // 100]:.1f} ms at most in 99 of 100 cases, "
            f"{times[-1]:.1f} ms at most"
        )


def _last_result(stream: Stream) -> Result:
    """The result at the end of a stream's input; DataError if there was less than a frame."""
    result = stream.final()
    if result.end == 0.0:
        raise DataError("the sound is shorter than a frame")
    return result


class _Utterances:
    """Writes the results of live sound, with keys NAME-1, NAME-2 ...

    A partial result is written if its text has changed. A result without words is written only at
    the end of the input, if there was no other.
    """

    def __init__(self, name: str, output: Output) -> None:
        self._name, self._output = name, output
        self._number = 1
        self._partial = ""

    def advance(self, stream: Stream, piece: np.ndarray | bytes) -> None:
        """Pass a piece of sound to the stream; write the results known now."""
        stream.accept(piece)
        while stream.num_waiting:
            if (result := stream.result()).words:
                self._write(result)
            self._partial = ""
        if not self._output.shows_partial:
            return
        partial = stream.partial()
        if partial.text != self._partial:
            self._partial = partial.text
            self._output.write_partial(f"{self._name}-{self._number}", partial)

    def write_last(self, result: Result) -> None:
        """Write the result at the end of the input."""
        if result.words or self._number == 1:
            self._write(result)

    def _write(self, result: Result) -> None:
        self._output.write_result(f"{self._name}-{self._number}", result)
        self._number += 1

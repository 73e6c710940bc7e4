"""Recognizer: a model directory that turns sound into words."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nnet3tools.api.arrays import Path
from nnet3tools.cli.recognizing import options_of_directory, read_options
from nnet3tools.errors import DataError, OptionError, naming
from nnet3tools.fast_dataclasses import dataclass
from nnet3tools.features.sound_files import read_instead
from nnet3tools.io import log
from nnet3tools.io.table_reader import read_object
from nnet3tools.io.wave import WAVE
from nnet3tools.recognizer.loading import load_recognizer
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Recognizer as _Recognizer
from nnet3tools.recognizer.results import Result
from nnet3tools.recognizer.stream import in_16_bits
from nnet3tools.recognizer.whole_files import UtteranceQueue


@dataclass(eq=False, repr=False)
class Recognizer(_Recognizer):
    """Recognizes speech with a model directory, as nnet3-decode does; made by `Recognizer.load`.

    Threads may call its methods; calls of `transcribe` take turns, streams do not.
    """

    def __post_init__(self) -> None:
        self._queue = UtteranceQueue(self)
        self._lock = threading.Lock()
        self._arguments: tuple[object, ...] = ()

    @classmethod
    def load(
        cls, folder: Path, graph: Path | None = None, options: Mapping[str, object] | None = None
    ) -> Recognizer:
        """The recognizer of a model directory (docs/recognizer.md lists its files).

        `graph` is an FST, or a folder with HCLG.fst, in place of the directory's. `options` are
        options of nnet3-decode that override the directory's, such as {"beam": 13.0}. DataError,
        which names the file, if a file is missing or does not fit; OptionError for wrong options.
        """
        name = os.fspath(folder)
        texts = {
            k: str(v).lower() if isinstance(v, bool) else v for k, v in (options or {}).items()
        }
        words = [f"--{key}={text}" for key, text in texts.items()]
        found = options_of_directory(name, RecognizerOptions, words)
        found.check()
        chosen = None if graph is None else os.fspath(graph)
        loaded = cls(**vars(load_recognizer(found, name, chosen, read_options)))
        loaded._arguments = folder, graph, options
        return loaded

    def __reduce__(self) -> tuple[object, ...]:
        return Recognizer.load, self._arguments

    def transcribe(
        self, sound: Path | ArrayLike, *, sample_rate: float | None = None, nbest: int = 0
    ) -> Result:
        """The words of one utterance, with times in seconds and confidences.

        `sound` is a file (16-bit wave files; with the package soundfile also FLAC, Ogg and others),
        of which the first channel is taken; or an array (samples,) of int16 or of floats from -1 to
        1, for which `sample_rate` in Hz must be given. `nbest` is the number of alternatives.
        DataError for sound that cannot be read or used.
        """
        if isinstance(sound, (str, os.PathLike)):
            name = os.fspath(sound)
            samples, rate = _first_channel(name)
            if sample_rate not in (None, rate):
                raise DataError(f"{name}: {rate} samples per second, not {sample_rate}")
        else:
            if sample_rate is None or not 1 <= sample_rate < 2**31:
                raise OptionError(f"an array of samples needs sample_rate in Hz, not {sample_rate}")
            name, samples, rate = "array of samples", in_16_bits(np.asarray(sound)), sample_rate
        with self._lock, naming(name):
            self._queue.accept(name, samples, int(rate))
            self._queue.finish()
            (utterance,) = self._queue.ready()
            found = self._queue.recognize(utterance, nbest)
        if found is None:
            raise DataError(f"{name}: no path through the decoding graph fits the sound")
        return found[0]


def _first_channel(path: str) -> tuple[NDArray[np.float32], float]:
    """(samples of a sound file's first channel in the range of 16-bit integers, rate in Hz)."""
    try:
        wave = read_object(path, WAVE)
        num_channels, samples, rate = len(wave.samples), wave.samples[0], wave.rate
    except DataError as error:
        sound = read_instead(path, error)
        num_channels, samples, rate = sound.num_channels, sound.samples, sound.rate
    if num_channels != 1:
        log.warning(f"{path}: sound with {num_channels} channels: the first one is taken")
    return in_16_bits(samples), rate

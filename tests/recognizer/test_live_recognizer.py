"""Streams in several threads: the words are those of streams alone."""

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.recognizing import options_of_directory, read_options
from nnet3tools.errors import DataError
from nnet3tools.recognizer.loading import load_recognizer
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.results import Result
from nnet3tools.recognizer.stream import Stream
from support.plain_sound import with_sound_features
from support.tiny_recognizer import write_model, write_recognizer
from support.utterance_networks import recurrent_config

BEAM = "--lattice-beam=0.3"
"""Random models make large lattices, which tests determinize in Python."""


@pytest.fixture(params=["local", "recurrent"])
def recognizer(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Recognizer:
    with_sound_features(monkeypatch)
    write_recognizer(tmp_path / "dir")
    if request.param == "recurrent":
        write_model(tmp_path / "dir/final.mdl", recurrent_config(13))
    folder = str(tmp_path / "dir")
    options = options_of_directory(folder, RecognizerOptions, ["--stream=true", BEAM])
    return load_recognizer(options, folder, None, read_options)


def results_of(stream: Stream, samples: np.ndarray) -> list[Result]:
    """The results of a stream that is given 0.2 s at a time."""
    results = []
    for begin in range(0, len(samples), 3200):
        if stream.accept(samples[begin : begin + 3200].tobytes()):
            results += [stream.result() for _ in range(stream.num_waiting)]
    return [*results, stream.final()]


def test_streams_in_many_threads_have_the_words_of_streams_alone(recognizer: Recognizer) -> None:
    rng = np.random.default_rng(6)
    sounds = [rng.normal(0, 2000, 8000 + 1000 * i).astype(np.int16) for i in range(8)]
    alone = [results_of(recognizer.stream(16000), sound) for sound in sounds]
    recognizer.prepare_for_many_streams()
    is_local = len(recognizer.network.nnet.components) == 1
    assert (recognizer.network.batches is not None) == is_local
    found: dict[int, list[Result]] = {}

    def run(i: int) -> None:
        found[i] = results_of(recognizer.stream(16000), sounds[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(sounds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, expected in enumerate(alone):
        assert [r.text for r in found[i]] == [r.text for r in expected]
        times = [(w.start, w.end) for r in expected for w in r.words]
        assert [(w.start, w.end) for r in found[i] for w in r.words] == times
    assert any(result.text for results in found.values() for result in results)


def test_rates_from_which_resampling_would_be_slow_are_refused(recognizer: Recognizer) -> None:
    features = recognizer.features
    features._frame = replace(features._frame, allow_downsample=True)
    for rate in (16000, 16001, 22050, 44100, 192000, 399989):
        recognizer.features.check_rate(rate)
    for rate in (400001, 2**32 - 1):
        with pytest.raises(DataError, match="from 1000 to 400000 Hz"):
            recognizer.stream(rate)
    with pytest.raises(DataError, match="allow-upsample"):
        recognizer.features.check_rate(8000)

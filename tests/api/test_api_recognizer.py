"""nnet3tools.Recognizer with a tiny model directory, against nnet3-decode."""

import json
import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

import nnet3tools
from nnet3tools import Recognizer
from support.programs import run
from support.tiny_recognizer import write_recognizer, write_wave

pytest.importorskip("kaldi_native_fbank")


@pytest.fixture
def recognizer() -> Recognizer:
    """The recognizer of a tiny model directory, in the current folder."""
    write_recognizer(Path("model"))
    write_wave(Path("a.wav"), seconds=1.3)
    return Recognizer.load("model")


def samples() -> np.ndarray:
    """The samples of a.wav, int16."""
    return np.frombuffer(Path("a.wav").read_bytes()[44:], "<i2")


def test_words_are_those_of_nnet3_decode(recognizer: Recognizer) -> None:
    assert run("nnet3-decode", "--format=json", "--output=out.json", "model", "a.wav") == 0
    want = json.loads(Path("out.json").read_text())
    assert want["words"]
    array = samples()
    for result in (
        recognizer.transcribe("a.wav"),
        pickle.loads(pickle.dumps(recognizer)).transcribe(Path("a.wav")),
        recognizer.transcribe(array, sample_rate=16000),
        recognizer.transcribe((array / np.float32(32768)).tolist(), sample_rate=16000.0),
    ):
        found = [(w.text, round(w.start, 3), round(w.confidence, 3)) for w in result.words]
        assert found == [(w["word"], w["begin"], w["confidence"]) for w in want["words"]]
        assert result.text == " ".join(word for word, *_ in found)


def test_a_stream_hears_what_the_whole_file_says(recognizer: Recognizer) -> None:
    whole = recognizer.transcribe("a.wav").text
    stream = recognizer.stream(endpointing=False)
    data = samples().tobytes()
    partials = []
    for begin in range(0, len(data), 3201):  # samples are cut, too
        assert not stream.accept(data[begin : begin + 3201])
        partials.append(stream.partial().text)
    assert stream.final().text == whole
    assert any(text and whole.startswith(text.split()[0]) for text in partials)
    floats = recognizer.stream(16000, endpointing=False, sample_format="float32")
    floats.accept((samples() / np.float32(32768)).tobytes())
    assert floats.result().words


def test_streams_and_files_in_several_threads(recognizer: Recognizer) -> None:
    whole = recognizer.transcribe("a.wav").text
    data, found = samples(), []

    def speak() -> None:
        stream = recognizer.stream(endpointing=False)
        for begin in range(0, len(data), 800):
            stream.accept(data[begin : begin + 800])
        found.append(stream.final().text)
        found.append(recognizer.transcribe("a.wav").text)

    threads = [threading.Thread(target=speak) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [whole] * 12


def test_options_override_the_directory(recognizer: Recognizer) -> None:
    best = recognizer.transcribe("a.wav", nbest=3)
    assert 1 <= len(best.alternatives) <= 3
    other = Recognizer.load("model", Path("model/graph"), {"beam": 12.5, "allow-downsample": True})
    assert other.sample_rate == recognizer.sample_rate == 16000
    noise = np.random.default_rng(2).normal(0, 0.1, 48000)
    assert other.transcribe(noise, sample_rate=48000).words
    with pytest.raises(nnet3tools.OptionError, match="did you mean --beam"):
        Recognizer.load("model", options={"beem": 12.5})


def test_what_is_missing_or_does_not_fit_is_named(recognizer: Recognizer) -> None:
    for rate in (None, 0, float("nan")):
        with pytest.raises(nnet3tools.OptionError, match=f"sample_rate in Hz, not {rate}"):
            recognizer.transcribe(samples(), sample_rate=rate)
    with pytest.raises(nnet3tools.DataError, match="one channel"):
        recognizer.transcribe(samples().reshape(2, -1), sample_rate=16000)
    with pytest.raises(nnet3tools.OptionError, match="int16 or float32, not int32"):
        recognizer.stream(16000, sample_format="int32")
    with pytest.raises(nnet3tools.DataError, match="8000"):
        recognizer.transcribe(samples(), sample_rate=8000)
    with pytest.raises(nnet3tools.DataError, match="shorter than a frame"):
        recognizer.transcribe(samples()[:100], sample_rate=16000)
    with pytest.raises(nnet3tools.DataError, match=r"nosuch\.wav"):
        recognizer.transcribe("nosuch.wav")
    Path("text.wav").write_text("no sound\n")
    with pytest.raises(nnet3tools.DataError, match=r"text\.wav"):
        recognizer.transcribe("text.wav")
    assert recognizer.transcribe("a.wav").words  # still usable
    Path("model/final.mdl").unlink()
    with pytest.raises(nnet3tools.DataError, match=r"final\.mdl"):
        Recognizer.load("model")


def test_flac_and_float_waves_are_read(recognizer: Recognizer) -> None:
    soundfile = pytest.importorskip("soundfile")
    want = recognizer.transcribe("a.wav").text
    stereo = np.stack([samples(), np.zeros_like(samples())], axis=1)
    soundfile.write("a.flac", stereo, 16000)
    soundfile.write("float.wav", samples() / np.float32(32768), 16000, subtype="FLOAT")
    for name in ("a.flac", "float.wav"):
        assert recognizer.transcribe(name).text == want

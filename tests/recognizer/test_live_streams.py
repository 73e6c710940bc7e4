"""Live streams: results depend on the sound only, not on its pieces; times; ends of utterances."""

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.recognizing import options_of_directory, read_options
from nnet3tools.decoding.endpoint import EndpointOptions, EndpointRule
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.recognizer.loading import load_recognizer
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.results import Result
from nnet3tools.recognizer.stream import Stream
from nnet3tools.recognizer.whole_files import UtteranceQueue
from support.plain_sound import with_sound_features
from support.tiny_recognizer import write_model, write_recognizer
from support.utterance_networks import recurrent_config

NEVER = EndpointRule(False, 1e9)


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Recognizer:
    """The tiny recognizer; an utterance of it ends after 0.6 s with a final state."""
    from nnet3tools.cli.recognizing import read_options

    with pytest.MonkeyPatch.context() as patch:
        with_sound_features(patch)
        folder: Path = tmp_path_factory.mktemp("tiny")
        write_recognizer(folder)
        options = options_of_directory(str(folder), RecognizerOptions)
        loaded = load_recognizer(options, str(folder), None, read_options)
    rule = EndpointRule(False, 0.0, 8.0, 0.6)
    endpoint = EndpointOptions("3", rule, NEVER, NEVER, NEVER, NEVER)
    return replace(loaded, endpoint=endpoint)


def sound(seconds: float, rate: int = 16000, seed: int = 1) -> np.ndarray:
    draw = np.random.default_rng(seed)
    loudness = np.exp(draw.normal(0, 1, int(seconds * 10) + 1)).repeat(rate // 10)
    samples = draw.normal(0, 800, int(seconds * rate))
    return (samples * loudness[: len(samples)]).clip(-32768, 32767).astype(np.int16)


def results(stream: Stream, pieces: list) -> list[Result]:
    found = []
    for piece in pieces:
        assert stream.accept(piece) == bool(stream.num_waiting)
        while stream.num_waiting:
            found.append(stream.result())
    return [*found, stream.final()]


def random_cuts(draw: np.random.Generator, data) -> list:
    """The data in pieces, some of them empty, of bytes that are cut anywhere."""
    number = draw.integers(0, 40)
    cuts = np.sort(draw.integers(0, len(data) + 1, number)).tolist()
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@pytest.mark.parametrize("rate", [16000, 44100])
@pytest.mark.parametrize("seed", range(4))
def test_results_do_not_depend_on_where_the_sound_is_cut(recognizer, seed, rate):
    if rate != 16000:
        recognizer = with_downsampling(recognizer)
    samples = sound(3.0, rate, seed)
    expected = results(recognizer.stream(rate, nbest=2), [samples])
    assert len(expected) > 2
    assert any(result.words for result in expected)
    draw = np.random.default_rng(seed)
    for _ in range(4):
        pieces = random_cuts(draw, samples.tobytes())
        assert results(recognizer.stream(rate, nbest=2), pieces) == expected
    arrays = random_cuts(draw, samples)
    assert results(recognizer.stream(rate, nbest=2), arrays) == expected
    floats = random_cuts(draw, (samples / 32768).astype("<f4").tobytes())
    stream = recognizer.stream(rate, nbest=2, sample_format="float32")
    assert results(stream, floats) == expected


def with_downsampling(recognizer: Recognizer) -> Recognizer:
    from nnet3tools.features.sound_features import SoundFeatures
    from nnet3tools.features.sound_options import FrameOptions, MfccOptions

    frame = FrameOptions(allow_downsample=True)
    with pytest.MonkeyPatch.context() as patch:
        with_sound_features(patch)
        return replace(recognizer, features=SoundFeatures(MfccOptions(frame=frame)))


def test_partial_results_are_those_of_the_same_sound_in_other_pieces(recognizer):
    samples = sound(2.0)
    one, other = (recognizer.stream(16000, endpointing=False) for _ in range(2))
    for begin in range(0, len(samples), 3200):
        piece = samples[begin : begin + 3200]
        one.accept(piece)
        for part in np.array_split(piece, 7):
            other.accept(part)
        assert one.partial(with_words=True) == other.partial(with_words=True)
    words = one.partial(with_words=True).words
    assert words
    assert all(one.end <= two.start + 1e-9 for one, two in pairwise(words))


@pytest.mark.parametrize("seconds", [0.03, 0.1, 0.7, 2.0])
def test_a_stream_has_the_words_and_confidences_of_the_whole_file(recognizer, seconds):
    samples = sound(seconds)
    queue = UtteranceQueue(recognizer)
    queue.accept("a", samples, 16000)
    queue.finish()
    [utterance] = queue.ready()
    whole, _ = queue.recognize(utterance, nbest=3)
    [streamed] = results(recognizer.stream(16000, endpointing=False, nbest=3), [samples])
    assert streamed.text == whole.text
    assert [a.text for a in streamed.alternatives] == [a.text for a in whole.alternatives]
    assert whole.alternatives[0].text == whole.text
    for one, other in zip(streamed.words, whole.words, strict=True):
        assert (one.start, one.end) == pytest.approx((other.start, other.end))
        assert one.confidence == pytest.approx(other.confidence, abs=1e-3)


def test_utterances_follow_each_other_and_times_count_from_the_start_of_the_stream(recognizer):
    stream = recognizer.stream(16000)
    found = results(stream, [sound(2.0)])
    again = results(stream, [sound(2.0)])
    assert stream.duration == 4.0
    for result, after in zip(found, [*found[1:], again[0]], strict=True):
        assert result.end <= after.start + 0.03
        for word in result.words:
            assert result.start - 1e-9 <= word.start <= word.end <= result.end + 1e-9
    shifted = [result.start - 2.0 for result in again]
    assert shifted == pytest.approx([result.start for result in found])
    assert [result.text for result in again] == [result.text for result in found]


def test_a_result_on_request_ends_the_utterance(recognizer):
    stream = recognizer.stream(16000, endpointing=False)
    assert stream.result() == Result()
    stream.accept(sound(1.0))
    partial = stream.partial()
    assert partial.text
    result = stream.result()
    assert result.words
    assert stream.partial().text == ""
    assert stream.final().start == result.end


def test_streams_do_not_disturb_each_other(recognizer):
    pieces = [np.array_split(sound(1.5, seed=seed), 9) for seed in range(3)]
    expected = [results(recognizer.stream(16000), of_one) for of_one in pieces]
    streams = [recognizer.stream(16000) for _ in pieces]
    found: list[list[Result]] = [[] for _ in pieces]
    for number in range(9):
        for stream, of_one, so_far in zip(streams, pieces, found, strict=True):
            stream.accept(of_one[number])
            while stream.num_waiting:
                so_far.append(stream.result())
    assert [[*so_far, s.final()] for s, so_far in zip(streams, found, strict=True)] == expected


def test_nothing_and_less_than_a_frame_have_empty_results(recognizer):
    stream = recognizer.stream(16000)
    assert stream.partial().text == ""
    assert stream.final() == Result()
    assert not stream.accept(b"\x00")
    assert stream.final().words == ()
    assert results(stream, [sound(1.0)])[0].words


def test_what_is_not_sound_is_refused_and_the_stream_goes_on(recognizer):
    stream = recognizer.stream(16000, endpointing=False)
    stream.accept(sound(0.5))
    for wrong in (np.zeros((2, 100), np.int16), np.zeros(100, np.int32), np.zeros(3, complex)):
        with pytest.raises(DataError, match="expected samples of one channel"):
            stream.accept(wrong)
    with pytest.raises(NotFiniteError):
        stream.accept(np.array([0.0, np.nan]))
    for wrong in (sound(0.5).astype(np.float32), np.array([0.0, 7e28])):
        with pytest.raises(DataError, match="expected floats from -1 to 1"):
            stream.accept(wrong)
    stream.accept(sound(0.5, seed=2))
    assert stream.final().words
    with pytest.raises(DataError, match=r"8000 \.vs 16000"):
        recognizer.stream(8000)
    no_phones = replace(recognizer, endpoint=EndpointOptions())
    with pytest.raises(DataError, match="silence-phones"):
        no_phones.stream(16000)


def test_an_utterance_whose_paths_have_all_died_ends_without_words(recognizer):
    stream = recognizer.stream(16000)
    stream._search_rows(np.full((3, 4), -np.inf, np.float32))
    assert stream.num_waiting
    assert stream.result().words == ()
    assert any(result.words for result in results(stream, [sound(1.0)]))


# -- streams in several threads


BEAM = "--lattice-beam=0.3"
"""Random models make large lattices, which tests determinize in Python."""


@pytest.fixture(params=["local", "recurrent"])
def shared_recognizer(
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


def test_streams_in_many_threads_have_the_words_of_streams_alone(
    shared_recognizer: Recognizer,
) -> None:
    rng = np.random.default_rng(6)
    sounds = [rng.normal(0, 2000, 8000 + 1000 * i).astype(np.int16) for i in range(8)]
    alone = [results_of(shared_recognizer.stream(16000), sound) for sound in sounds]
    shared_recognizer.prepare_for_many_streams()
    is_local = len(shared_recognizer.network.nnet.components) == 1
    assert (shared_recognizer.network.batches is not None) == is_local
    found: dict[int, list[Result]] = {}

    def run(i: int) -> None:
        found[i] = results_of(shared_recognizer.stream(16000), sounds[i])

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


def test_rates_from_which_resampling_would_be_slow_are_refused(
    shared_recognizer: Recognizer,
) -> None:
    features = shared_recognizer.features
    features._frame = replace(features._frame, allow_downsample=True)
    for rate in (16000, 16001, 22050, 44100, 192000, 399989):
        shared_recognizer.features.check_rate(rate)
    for rate in (400001, 2**32 - 1):
        with pytest.raises(DataError, match="from 1000 to 400000 Hz"):
            shared_recognizer.stream(rate)
    with pytest.raises(DataError, match="allow-upsample"):
        shared_recognizer.features.check_rate(8000)

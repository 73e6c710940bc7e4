"""Live streams: results depend on the sound only, not on its pieces; times; ends of utterances."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nnet3tools.cli.recognizing import options_of_directory
from nnet3tools.decoding.endpoint import EndpointOptions, EndpointRule
from nnet3tools.errors import DataError, NotFiniteError
from nnet3tools.recognizer.loading import load_recognizer
from nnet3tools.recognizer.options import RecognizerOptions
from nnet3tools.recognizer.recognizer import Recognizer
from nnet3tools.recognizer.results import Result
from nnet3tools.recognizer.stream import Stream
from nnet3tools.recognizer.whole_files import UtteranceQueue
from support.plain_sound import with_sound_features
from support.tiny_recognizer import write_recognizer

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

"""Parts of nnet3-train-recognizer and of egs/an4: scores, copies, pronunciations, sizes."""

import importlib.util
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nnet3tools.errors import OptionError
from nnet3tools.features.resample import allowed_lengths, at_size, lengths_of_copies
from nnet3tools.lang.lexicon import Pronunciation
from nnet3tools.recipe.speech.pronunciations import pronunciations_said, weighted
from nnet3tools.recipe.speech.scoring import Scores, aligned, best_scale
from nnet3tools.recipe.speech.sizes import SIZES, size_for
from nnet3tools.recipe.speech.training import xconfig
from nnet3tools.xconfig.configs import Conversion, write_config_dir

ROOT = Path(__file__).resolve().parents[2]


# -- scores


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [("A B C", "A B C", 0), ("A B C", "A C", 1), ("A", "A A B", 2), ("A B", "C", 2), ("A", "", 1)],
)
def test_alignments_have_the_fewest_errors(said: str, heard: str, errors: int) -> None:
    pairs = aligned(said.split(), heard.split())
    assert sum(a != b for a, b in pairs) == errors
    assert [a for a, _ in pairs if a] == said.split()
    assert [b for _, b in pairs if b] == heard.split()


def test_utterances_without_recognized_words_count() -> None:
    said = {"u1": ["A", "B", "C"], "u2": ["D"], "u3": ["E", "F"]}
    scores = Scores.of(said, {"u1": ["A", "X", "C"], "u2": ["D"]})
    assert (scores.percent, scores.num_errors, scores.num_words) == (50.0, 3, 6)
    assert scores.worst(5) == ["u3", "u1"]  # u2 has no errors
    assert scores.confusions["B", "X"] == 1


def test_of_equally_good_scales_the_middle_one_is_taken() -> None:
    assert best_scale({0.4: 5, 0.5: 3, 0.6: 3, 0.7: 3, 0.8: 6}) == 0.6
    assert best_scale({0.4: 5, 0.5: 6}) == 0.4


# -- copies


def test_allowed_lengths_are_10_percent_apart_and_cover_all_utterances() -> None:
    lengths = allowed_lengths(67, 660)
    assert lengths[:3] == [66, 72, 78]
    assert all(length % 3 == 0 for length in lengths)
    assert lengths[-2] < 660 <= lengths[-1]
    assert allowed_lengths(5, 5) == [30]


def test_copies_have_the_lengths_around_their_own() -> None:
    lengths = [60, 66, 72, 78, 84]
    assert lengths_of_copies(72, lengths, 4) == [72, 78, 66, 84]
    assert lengths_of_copies(59, lengths, 3) == [60, 60, 60]  # there is nothing shorter
    assert lengths_of_copies(90, lengths, 2) == [84, 84]


def test_a_slower_copy_has_the_same_loudness_and_the_size_asked_for() -> None:
    samples = (np.sin(np.arange(16000) * 0.1) * 1000).astype(np.int16)
    slower = at_size(samples, 17600)
    assert slower.dtype == np.int16
    assert len(slower) == 17600
    assert np.abs(slower[500:-500]).max() == pytest.approx(1000, rel=0.02)
    peak = int(np.argmax(np.abs(np.fft.rfft(slower)))) / 17600
    assert peak == pytest.approx(0.1 / (2 * np.pi) / 1.1, rel=0.01)


# -- pronunciations

EY, EIGHTY, OW = ("EY",), ("EY", "T", "IY"), ("OW",)
LEXICON = [
    Pronunciation(word, phones)
    for word, phones in (("A", ("AH",)), ("A", EY), ("O", OW), ("OH", OW), ("EIGHTY", EIGHTY))
]
PHONES = {"A": [("AH",), EY], "O": [OW], "OH": [OW], "EIGHTY": [EIGHTY]}


def said(words: str, phones: str) -> list[tuple[str, tuple[str, ...], bool]] | None:
    return pronunciations_said(words.split(), phones.split(), PHONES, "SIL")


def test_alignments_tell_which_pronunciation_was_said_and_where_silence_was() -> None:
    rows = said("A EIGHTY O", "SIL EY EY T IY SIL OW SIL")
    assert rows == [("A", EY, False), ("EIGHTY", EIGHTY, True), ("O", OW, True)]
    assert said("A", "AH AH") is None
    assert said("OUCH", "AH") is None
    assert said("O " * 3000, "OW " * 3000) == [("O", OW, False)] * 3000


def test_rare_pronunciations_and_rare_words_of_the_same_sound_are_less_probable() -> None:
    counts = Counter({("A", EY): 9, ("O", OW): 7, ("OH", OW): 3})
    found = [entry.probability for entry in weighted(LEXICON, counts)]
    assert found == [0.1, 1.0, 1.0, 0.5, 1.0]  # no utterance has EIGHTY


def test_no_pronunciation_becomes_impossible() -> None:
    found = weighted(LEXICON, Counter({("O", OW): 30000}))
    assert [e.probability for e in found if e.phones == OW] == [1.0, 1e-4]


# -- sizes


def test_more_sound_takes_larger_networks() -> None:
    names = [size_for("auto", hours).name for hours in (0.02, 1.0, 10.0, 100.0, 1000.0, 1e5)]
    assert names == ["tiny", "small", "medium", "large", "huge", "huge"]
    assert size_for("large", 0.1).name == "large"
    with pytest.raises(OptionError, match="--size=bigger: expected auto or one of tiny, small"):
        size_for("bigger", 1.0)


def test_small_data_are_seen_more_often_but_not_for_ever() -> None:
    tiny = size_for("tiny", 0.0)
    passes = [tiny.num_passes(0, frames) for frames in (1, 100_000, 1_000_000, 10**9)]
    assert passes == sorted(passes, reverse=True)
    assert passes[0] <= 30
    assert passes[-1] == tiny.passes[0]


@pytest.mark.parametrize("is_second", [False, True])
@pytest.mark.parametrize("name", [size.name for size in SIZES])
def test_each_size_has_a_network_that_converts(tmp_path: Path, name: str, is_second: bool) -> None:
    size = size_for(name, 0.0)
    text = xconfig(size, 40, is_second, tmp_path)
    write_config_dir(Conversion(text, "network.xconfig", ""), str(tmp_path))
    final = (tmp_path / "final.config").read_text()
    assert ("output-node name=output-xent" in final) == is_second
    assert ("SpecAugment" in final) == (is_second and size.has_spec_augment)


# -- egs/an4


def load(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(script).stem, ROOT / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_eighth_speaker_is_held_out_with_all_that_was_said() -> None:
    rows = [(f"s{i:02d}-{j}", f"s{i:02d}", "A", "x.wav") for i in range(20) for j in range(3)]
    prepare = load("egs/an4/local/prepare_data.py")
    trained, held_out = prepare.without_held_out(rows)
    assert {row[1] for row in held_out} == {"s00", "s08", "s16"}
    assert len(held_out) == 9
    assert sorted(trained + held_out) == rows

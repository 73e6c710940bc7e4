"""The scripts of egs/an4: scores by hand, durations, held-out utterances."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

LOCAL = Path(__file__).resolve().parents[2] / "egs" / "an4" / "local"
sys.path.append(str(LOCAL))

import prepare_data  # noqa: E402  # type: ignore[import-not-found]
import pronunciations  # noqa: E402  # type: ignore[import-not-found]
import score  # noqa: E402  # type: ignore[import-not-found]


def run(script: str, *args: object) -> str:
    command = [sys.executable, str(LOCAL / script), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("said", "heard", "errors"),
    [("A B C", "A B C", 0), ("A B C", "A C", 1), ("A", "A A B", 2), ("A B", "C", 2), ("A", "", 1)],
)
def test_alignments_have_the_fewest_errors(said: str, heard: str, errors: int) -> None:
    pairs = score.aligned(said.split(), heard.split())
    assert sum(a != b for a, b in pairs) == errors
    assert [a for a, _ in pairs if a] == said.split()
    assert [b for _, b in pairs if b] == heard.split()


def test_the_score_counts_all_utterances_and_shows_the_worst(tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("u1 A B C\nu2 D\nu3 E F\n")
    (tmp_path / "hyp").write_text("u1 A X C\nu2 D\n")  # nothing was recognised of u3
    assert run("score.py", tmp_path / "ref", tmp_path / "hyp", tmp_path) == "50.00 3 6\n"
    worst = (tmp_path / "worst.txt").read_text()
    assert worst.startswith("u3: 2 errors\n  ref E   F\n  hyp *** ***\n")
    assert "   1  B -> X\n" in (tmp_path / "confusions.txt").read_text()


def test_both_copies_of_an_utterance_are_held_out_with_all_their_pieces(tmp_path: Path) -> None:
    keys = [f"{copy}-s{i}-x{i}-s{i}-b-{piece}" for copy in ("pv1", "pv2") for i in range(48)
            for piece in (0, 30)]  # fmt: skip
    (tmp_path / "all.scp").write_text("".join(f"{key} a.ark:{i}\n" for i, key in enumerate(keys)))
    run("hold_out.py", tmp_path / "all.scp", tmp_path)
    valid = (tmp_path / "valid.scp").read_text().splitlines()
    assert {line.split("-")[1] for line in valid} == {"s0", "s24"}
    assert len(valid) == 2 * 2 * 2
    assert len((tmp_path / "train.scp").read_text().splitlines()) == len(keys) - len(valid)


def test_copies_have_allowed_numbers_of_frames() -> None:
    lengths = prepare_data.allowed_lengths()
    assert lengths[:3] == [66, 72, 78]
    assert all(length % 3 == 0 for length in lengths)
    samples = np.sin(np.arange(16000) * 0.1) * 1000
    size = (lengths[5] - 1) * 160 + 400
    assert prepare_data.num_frames(size) == lengths[5]
    longer = prepare_data.resampled(samples, size)
    assert len(longer) == size
    assert np.abs(longer[500:-500]).max() == pytest.approx(1000, rel=0.02)


def test_every_eighth_speaker_is_held_out_with_all_that_was_said() -> None:
    rows = [(f"s{i:02d}-{j}", f"s{i:02d}", "A", "x.wav") for i in range(20) for j in range(3)]
    trained, held_out = prepare_data.without_held_out(rows)
    assert {row[1] for row in held_out} == {"s00", "s08", "s16"}
    assert len(held_out) == 9
    assert sorted(trained + held_out) == rows


LEXICON = {
    "A": [("AH",), ("EY",)],
    "O": [("OW",)],
    "OH": [("OW",)],
    "EIGHTY": [("EY", "T", "IY")],
}


def test_alignments_tell_which_pronunciation_was_said_and_where_silence_was() -> None:
    rows = pronunciations.said(
        ["A", "EIGHTY", "O"], ["SIL", "EY", "EY", "T", "IY", "SIL", "OW", "SIL"], LEXICON, "SIL"
    )
    assert rows == [
        ("A", ("EY",), False),
        ("EIGHTY", ("EY", "T", "IY"), True),
        ("O", ("OW",), True),
    ]
    assert pronunciations.said(["A"], ["AH", "AH"], LEXICON, "SIL") is None


def test_rare_pronunciations_and_rare_words_of_the_same_sound_are_less_probable() -> None:
    counts = Counter({("A", ("EY",)): 9, ("O", ("OW",)): 7, ("OH", ("OW",)): 3})
    found = pronunciations.probabilities(LEXICON, counts)
    assert found["A", ("EY",)] == 1.0
    assert found["A", ("AH",)] == 0.1
    assert found["O", ("OW",)] == 1.0
    assert found["OH", ("OW",)] == 0.5
    assert found["EIGHTY", ("EY", "T", "IY")] == 1.0  # no utterance has it


def test_a_dictionary_gets_probabilities_of_its_alignments(tmp_path: Path) -> None:
    folder = tmp_path / "dict"
    folder.mkdir()
    (folder / "lexicon.txt").write_text("<UNK> SPN\nO OW\nOH OW\n")
    (folder / "optional_silence.txt").write_text("SIL\n")
    (tmp_path / "phones.txt").write_text("<eps> 0\nSIL 1\nSPN 2\nOW 3\n")
    (tmp_path / "text").write_text("u1 O O OH\nu2 O\n")
    (tmp_path / "ali").write_text("u1 1 3 1 3 3\nu2 3 2\n")
    args = (folder, tmp_path / "text", tmp_path / "ali", tmp_path / "phones.txt", tmp_path / "out")
    assert run("pronunciations.py", *args) == "0.500 of 2 boundaries, 1 not understood\n"
    lines = (tmp_path / "out" / "lexiconp.txt").read_text().splitlines()
    assert lines == ["<UNK> 1.0000 SPN", "O 1.0000 OW", "OH 0.6667 OW"]
    assert not (tmp_path / "out" / "lexicon.txt").exists()
    (tmp_path / "text").write_text("u1 O OUCH\nu2 O O\n")  # OUCH has no phones
    (tmp_path / "ali").write_text("u1 3 2\nu2 3\n")
    assert run("pronunciations.py", *args) == "0.000 of 0 boundaries, 2 not understood\n"


def test_no_pronunciation_becomes_impossible(tmp_path: Path) -> None:
    """0.00005 of four digits would be none, which nnet3-prepare-lang refuses."""
    folder = tmp_path / "dict"
    folder.mkdir()
    (folder / "lexicon.txt").write_text("O OW\nOH OW\n")
    (folder / "optional_silence.txt").write_text("SIL\n")
    (tmp_path / "phones.txt").write_text("SIL 1\nOW 3\n")
    keys = range(30000)
    (tmp_path / "text").write_text("".join(f"u{key} O\n" for key in keys))
    (tmp_path / "ali").write_text("".join(f"u{key} 3\n" for key in keys))
    args = (folder, tmp_path / "text", tmp_path / "ali", tmp_path / "phones.txt", tmp_path / "out")
    run("pronunciations.py", *args)
    lines = (tmp_path / "out" / "lexiconp.txt").read_text().splitlines()
    assert lines == ["O 1.0000 OW", "OH 0.0001 OW"]


def test_the_page_shows_words_that_need_escaping(tmp_path: Path) -> None:
    for folder, name, text in (
        ("data/test", "text", "u1 A <UNK> C\n"),
        ("flat/decode", "text", "u1 A C C D\n"),
        ("flat/log", "train.0.log", "# nothing\n"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text(text)
    run("page.py", tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "<i>&lt;UNK&gt;</i><b>C</b>" in page
    assert "66.67 %" in page
    assert "Second model" not in page  # there is none yet
